// Copyright (c) 2026, zklock contributors

import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

/** The locks of several products behind one interface. */
final class PeerLocks {
  private PeerLocks() {}

  /** A lock on one path, for one thread. */
  interface PeerLock {
    /** Waits for at most so many milliseconds, for ever if negative. True if held. */
    boolean acquire(long timeout) throws Exception;

    void release() throws Exception;

    /** Ends what the lock has of its own. */
    default void close() throws Exception {}

    /** The path of the lock's node, null if it has none. */
    default String node() {
      return null;
    }

    /** How often the lock was found taken; for those that ask again and again. */
    default int refusals() {
      return 0;
    }
  }

  static PeerLock create(String kind, CuratorFramework client, String path) throws Exception {
    switch (kind) {
      case "mutex":
        return new Mutex(client, path);
      case "multi":
        return new Curators(
            new InterProcessMultiLock(
                List.of(
                    new InterProcessMutex(client, path),
                    new InterProcessMutex(client, path + "_more"))));
      case "write":
        return new Curators(new InterProcessReadWriteLock(client, path).writeLock());
      case "read":
        return new Curators(new InterProcessReadWriteLock(client, path).readLock());
      case "semaphore":
        return new Curators(new InterProcessSemaphoreMutex(client, path));
      case "recipe":
        return new Recipe(client.getZookeeperClient().getCurrentConnectionString(), path);
      case "hive_exclusive":
        return new Hive(client, path, "EXCLUSIVE", CreateMode.EPHEMERAL_SEQUENTIAL);
      case "hive_shared":
        return new Hive(client, path, "SHARED", CreateMode.EPHEMERAL_SEQUENTIAL);
      case "hive_lock_table":
        return new Hive(client, path, "EXCLUSIVE", CreateMode.PERSISTENT_SEQUENTIAL);
      default:
        throw new IllegalArgumentException("unknown kind of lock " + kind);
    }
  }

  /** Any of Curator's locks. */
  private static class Curators implements PeerLock {
    private final InterProcessLock lock;

    Curators(InterProcessLock lock) {
      this.lock = lock;
    }

    @Override
    public boolean acquire(long timeout) throws Exception {
      if (timeout < 0) {
        lock.acquire();
        return true;
      }
      return lock.acquire(timeout, TimeUnit.MILLISECONDS);
    }

    @Override
    public void release() throws Exception {
      lock.release();
    }
  }

  /** Curator's mutex, which tells its own node to those who extend it. */
  private static final class Mutex extends Curators {
    private static final class Telling extends InterProcessMutex {
      Telling(CuratorFramework client, String path) {
        super(client, path);
      }

      String node() {
        return getLockPath();
      }
    }

    private final Telling mutex;

    Mutex(CuratorFramework client, String path) {
      this(new Telling(client, path));
    }

    private Mutex(Telling mutex) {
      super(mutex);
      this.mutex = mutex;
    }

    @Override
    public String node() {
      return mutex.node();
    }
  }

  /**
   * ZooKeeper's own recipe. It names its node after the session, so each lock has a session of its
   * own. If the node before it goes between being listed and being watched, the recipe waits for
   * ever: whoever wants the lock has to ask again now and then. And a watch that fires after unlock()
   * makes it lock again: it must be closed before it hears of that.
   */
  private static final class Recipe implements PeerLock {
    private static final long ASK_AGAIN_MS = 50;

    private final String hosts;
    private final String path;
    private ZooKeeper session;
    private WriteLock lock;

    Recipe(String hosts, String path) {
      this.hosts = hosts;
      this.path = path;
    }

    @Override
    public boolean acquire(long timeout) throws Exception {
      long end = System.nanoTime() + timeout * 1_000_000;
      CountDownLatch held = new CountDownLatch(1);
      if (session == null) {
        CountDownLatch connected = new CountDownLatch(1);
        session = new ZooKeeper(hosts, 10000, event -> connected.countDown());
        connected.await();
      }
      lock =
          new WriteLock(
              session,
              path,
              ZooDefs.Ids.OPEN_ACL_UNSAFE,
              new LockListener() {
                @Override
                public void lockAcquired() {
                  held.countDown();
                }

                @Override
                public void lockReleased() {}
              });
      do {
        lock.lock();
        if (held.await(ASK_AGAIN_MS, TimeUnit.MILLISECONDS)) {
          return true;
        }
      } while (timeout < 0 || System.nanoTime() < end);
      release();
      return false;
    }

    @Override
    public void release() {
      synchronized (lock) {
        lock.unlock();
        lock.close();
      }
    }

    @Override
    public void close() throws Exception {
      if (session != null) {
        session.close();
      }
    }

    @Override
    public String node() {
      return lock.getId();
    }
  }

  /**
   * Hive is not in Debian. This does what its ZooKeeperHiveLockManager publishes: creates the nodes
   * of the path as persistent ones, then a sequential LOCK-MODE- node; looks once for a conflicting
   * one with a lower number; if there is any, deletes its own, sleeps, and does it all again. When
   * it has unlocked and nobody is left it deletes the path's node too. LOCK TABLE makes persistent
   * lock nodes.
   */
  private static final class Hive implements PeerLock {
    private static final long SLEEP_MS = 5;

    private final CuratorFramework client;
    private final String path;
    private final String mode;
    private final CreateMode createMode;
    private final AtomicInteger refusals = new AtomicInteger();
    private String node;

    Hive(CuratorFramework client, String path, String mode, CreateMode createMode) {
      this.client = client;
      this.path = path;
      this.mode = mode;
      this.createMode = createMode;
    }

    @Override
    public boolean acquire(long timeout) throws Exception {
      long end = System.nanoTime() + timeout * 1_000_000;
      for (; ; ) {
        try {
          if (lockPrimitive()) {
            return true;
          }
          refusals.incrementAndGet();
        } catch (KeeperException.NoNodeException | KeeperException.NodeExistsException changed) {
          // Somebody deleted the path's node; try again.
        }
        if (timeout >= 0 && System.nanoTime() >= end) {
          return false;
        }
        Thread.sleep(SLEEP_MS);
      }
    }

    private boolean lockPrimitive() throws Exception {
      for (int end = path.indexOf('/', 1); ; end = path.indexOf('/', end + 1)) {
        try {
          client.create().forPath(end < 0 ? path : path.substring(0, end), new byte[0]);
        } catch (KeeperException.NodeExistsException fine) {
          // It is there.
        }
        if (end < 0) {
          break;
        }
      }
      String prefix = path + "/LOCK-" + mode + "-";
      byte[] data = "query:1700000000000:EXPLICIT:lock table t:127.0.0.1".getBytes();
      node = client.create().withMode(createMode).forPath(prefix, data);
      int number = number(node, prefix);
      for (String child : client.getChildren().forPath(path)) {
        int other = number(path + "/" + child, path + "/LOCK-EXCLUSIVE-");
        if (other < 0 && mode.equals("EXCLUSIVE")) {
          other = number(path + "/" + child, path + "/LOCK-SHARED-");
        }
        if (other >= 0 && other < number) {
          client.delete().forPath(node);
          return false;
        }
      }
      return true;
    }

    private static int number(String node, String prefix) {
      try {
        return node.startsWith(prefix) ? Integer.parseInt(node.substring(prefix.length())) : -1;
      } catch (NumberFormatException none) {
        return -1;
      }
    }

    @Override
    public void release() throws Exception {
      try {
        client.delete().forPath(node);
        if (client.getChildren().forPath(path).isEmpty()) {
          client.delete().forPath(path);
        }
      } catch (KeeperException.NoNodeException | KeeperException.NotEmptyException fine) {
        // Others were quicker.
      }
    }

    @Override
    public String node() {
      return node;
    }

    @Override
    public int refusals() {
      return refusals.get();
    }
  }
}
