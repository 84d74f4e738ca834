// Copyright (c) 2026, zklock contributors

import java.nio.charset.StandardCharsets;
import java.util.NoSuchElementException;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.recipes.queue.DistributedQueue;

/**
 * Queues of ZooKeeper's own recipe and of Curator.
 *
 * <pre>
 * queue offer NAME KIND PATH DATA    adds an element
 * queue element NAME KIND PATH       the first one's data, or "none"
 * queue remove NAME KIND PATH        likewise, and removes it
 * queue take NAME KIND PATH          likewise, and waits for one
 * </pre>
 *
 * <p>KIND is zookeeper or curator; NAME is that of a thread.
 */
final class Queues {
  private static final String NONE = "none";

  Object run(CuratorFramework client, String[] words) throws Exception {
    boolean curator = words[4].equals("curator");
    byte[] data = words.length > 6 ? words[6].getBytes(StandardCharsets.UTF_8) : null;
    try {
      Object result =
          curator
              ? run(words[2], new SimpleDistributedQueue(client, words[5]), data)
              : run(
                  words[2],
                  new DistributedQueue(
                      client.getZookeeperClient().getZooKeeper(), words[5], Ids.OPEN_ACL_UNSAFE),
                  data);
      return result instanceof byte[] ? new String((byte[]) result, StandardCharsets.UTF_8) : result;
    } catch (NoSuchElementException none) {
      return NONE;
    }
  }

  private static Object run(String action, SimpleDistributedQueue queue, byte[] data)
      throws Exception {
    switch (action) {
      case "offer":
        return queue.offer(data);
      case "element":
        return queue.element();
      case "remove":
        return queue.remove();
      default:
        return queue.take();
    }
  }

  private static Object run(String action, DistributedQueue queue, byte[] data) throws Exception {
    switch (action) {
      case "offer":
        return queue.offer(data);
      case "element":
        return queue.element();
      case "remove":
        return queue.remove();
      default:
        return queue.take();
    }
  }
}
