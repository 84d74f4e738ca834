/*
 * StaleNode.java
 *		A ZooKeeper server that can get an ephemeral node of a session that does not exist.
 *
 * It is ZooKeeper's own server. Bugs that leave such nodes behind are races that cannot be
 * had at will, so one is put into the data of the running server, with the server's own
 * means: for each file "stale" in its directory with a line "path session czxid", which is
 * deleted when that is done. All servers of an ensemble must be given the same.
 *
 * Copyright (c) 2026, zklock contributors
 */
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;
import org.apache.zookeeper.server.ZooKeeperServerMain;
import org.apache.zookeeper.server.quorum.QuorumPeerMain;

public class StaleNode {
    interface Running {
        ZooKeeperServer server() throws Exception;
    }

    static class Standalone extends ZooKeeperServerMain implements Running {
        public ZooKeeperServer server() throws Exception {
            Field field = ZooKeeperServerMain.class.getDeclaredField("cnxnFactory");
            field.setAccessible(true);
            Field server = ServerCnxnFactory.class.getDeclaredField("zkServer");
            server.setAccessible(true);
            return (ZooKeeperServer) server.get(field.get(this));
        }

        void run(String[] args) throws Exception {
            initializeAndRun(args);
        }
    }

    static class Member extends QuorumPeerMain implements Running {
        public ZooKeeperServer server() {
            return quorumPeer.getActiveServer();
        }

        void run(String[] args) throws Exception {
            initializeAndRun(args);
        }
    }

    static void put(ZooKeeperServer server, String line) throws Exception {
        String[] words = line.trim().split(" ");
        String parent = words[0].substring(0, words[0].lastIndexOf('/'));
        DataTree tree = server.getZKDatabase().getDataTree();
        int cversion = tree.statNode(parent, null).getCversion();
        tree.createNode(words[0], new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE,
                Long.parseUnsignedLong(words[1].substring(2), 16), cversion + 1,
                Long.parseLong(words[2]), 0, new Stat());
    }

    static void watch(Running running) {
        Path file = Paths.get("stale");
        try {
            while (true) {
                if (Files.exists(file)) {
                    String line = new String(Files.readAllBytes(file));
                    if (line.endsWith("\n")) {
                        put(running.server(), line);
                        Files.delete(file);
                    }
                }
                Thread.sleep(20);
            }
        } catch (Exception e) {
            e.printStackTrace();
        }
    }

    static void watchInBackground(Running running) {
        Thread thread = new Thread(() -> watch(running), "stale");
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] args) throws Exception {
        if (new String(Files.readAllBytes(Paths.get(args[0]))).contains("\nserver.")) {
            Member member = new Member();
            watchInBackground(member);
            member.run(args);
        } else {
            Standalone standalone = new Standalone();
            watchInBackground(standalone);
            standalone.run(args);
        }
    }
}
