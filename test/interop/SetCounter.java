// Copyright (c) 2026, zklock contributors

import java.io.File;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataNode;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/**
 * Sets the counter from which a ZooKeeper server numbers the children of a node, in the data of a
 * server that does not run: what would take two thousand million children otherwise.
 *
 * <pre>
 * SetCounter DATA_DIRECTORY PATH NUMBER
 * </pre>
 */
public final class SetCounter {
  private SetCounter() {}

  public static void main(String[] args) throws Exception {
    File directory = new File(args[0]);
    DataTree tree = new DataTree();
    Map<Long, Integer> sessions = new ConcurrentHashMap<>();
    FileTxnSnapLog log = new FileTxnSnapLog(directory, directory);
    log.restore(tree, sessions, (header, record, digest) -> {});
    DataNode node = tree.getNode(args[1]);
    if (node == null) {
      throw new IllegalArgumentException("there is no node " + args[1]);
    }
    tree.setCversionPzxid(args[1], Integer.parseInt(args[2]), node.stat.getPzxid());
    log.save(tree, new ConcurrentHashMap<>(sessions), true);
    log.close();
  }
}
