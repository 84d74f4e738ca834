// Copyright (c) 2026, zklock contributors

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.zookeeper.recipes.leader.LeaderElectionAware;
import org.apache.zookeeper.recipes.leader.LeaderElectionSupport;

/**
 * Candidates of several products. The requests of LockPeer:
 *
 * <pre>
 * election stand NAME PATH KIND   the kinds are latch, selector and support; NAME is its id too
 * election leads NAME             does it believe that it leads?
 * election leader NAME            who leads in its opinion, by name
 * election leave NAME             it does not stand any more
 * </pre>
 */
final class Elections {
  private final Map<String, Candidate> candidates = new ConcurrentHashMap<>();

  private interface Candidate {
    boolean leads();

    String leader() throws Exception;

    void leave() throws Exception;
  }

  Object run(CuratorFramework client, String[] words) throws Exception {
    String name = words[3];
    switch (words[2]) {
      case "stand":
        candidates.put(name, create(client, name, words[4], words[5]));
        return true;
      case "leads":
        return candidates.get(name).leads();
      case "leader":
        return candidates.get(name).leader();
      case "leave":
        candidates.remove(name).leave();
        return true;
      default:
        throw new IllegalArgumentException("unknown command " + words[2]);
    }
  }

  private static Candidate create(CuratorFramework client, String id, String path, String kind)
      throws Exception {
    switch (kind) {
      case "latch":
        return new Latch(client, id, path);
      case "selector":
        return new Selector(client, id, path);
      case "support":
        return new Support(client, id, path);
      default:
        throw new IllegalArgumentException("unknown kind " + kind);
    }
  }

  private static final class Latch implements Candidate {
    private final LeaderLatch latch;

    Latch(CuratorFramework client, String id, String path) throws Exception {
      latch = new LeaderLatch(client, path, id);
      latch.start();
    }

    @Override
    public boolean leads() {
      return latch.hasLeadership();
    }

    @Override
    public String leader() throws Exception {
      return latch.getLeader().getId();
    }

    @Override
    public void leave() throws Exception {
      latch.close();
    }
  }

  private static final class Selector implements Candidate {
    private final CountDownLatch end = new CountDownLatch(1);
    private final LeaderSelector selector;

    Selector(CuratorFramework client, String id, String path) {
      selector =
          new LeaderSelector(
              client,
              path,
              new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework taker) throws Exception {
                  end.await();
                }
              });
      selector.setId(id);
      selector.start();
    }

    @Override
    public boolean leads() {
      return selector.hasLeadership();
    }

    @Override
    public String leader() throws Exception {
      return selector.getLeader().getId();
    }

    @Override
    public void leave() {
      end.countDown();
      selector.close();
    }
  }

  private static final class Support implements Candidate, LeaderElectionAware {
    private final LeaderElectionSupport support = new LeaderElectionSupport();
    private volatile boolean elected;

    Support(CuratorFramework client, String id, String path) throws Exception {
      support.setZooKeeper(client.getZookeeperClient().getZooKeeper());
      support.setRootNodeName(path);
      support.setHostName(id);
      support.addListener(this);
      support.start();
    }

    @Override
    public void onElectionEvent(LeaderElectionSupport.EventType event) {
      if (event == LeaderElectionSupport.EventType.ELECTED_COMPLETE) {
        elected = true;
      } else if (event == LeaderElectionSupport.EventType.STOP_START
          || event == LeaderElectionSupport.EventType.FAILED) {
        elected = false;
      }
    }

    @Override
    public boolean leads() {
      return elected;
    }

    @Override
    public String leader() throws Exception {
      return support.getLeaderHostName();
    }

    @Override
    public void leave() {
      support.stop();
    }
  }
}
