// Copyright (c) 2026, zklock contributors

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.data.Stat;

/**
 * A Java service that takes turns with others by locks of several products, and obeys lines.
 *
 * <p>A request on standard input is "id command argument ...", parted by blanks. The answer is one
 * line of JSON, {"id":1,"ok":true,"result":...} or {"id":1,"ok":false,"error":"..."}. Each lock has
 * a name and a thread of its own, which runs that lock's requests in order: so any number of them
 * can wait at once.
 *
 * <pre>
 * connect HOSTS SESSION_TIMEOUT_MS     result: the session's id as "0x..."
 * acquire NAME PATH TIMEOUT_MS [KIND]  true, or false after the timeout; -1 waits for ever
 * release NAME
 * interrupt NAME                       ends a waiting acquire with an error
 * node NAME                            of a lock held: [path, czxid, session id of its owner]
 * prove NAME                           true if the ensemble commits that the node of a lock exists
 * refusals NAME                        how often a lock that polls was found taken
 * participants PATH                    node paths in the order of the queue
 * counter FILE ROUNDS PATH [SLEEP_MS [KIND]]
 *                                      ROUNDS times: acquire; read the number in FILE, sleep, write
 *                                      it plus one; release. Result: milliseconds it took
 * permit ... NAME ...                  see Semaphores
 * election ... NAME ...                see Elections
 * queue ... NAME ...                   see Queues
 * container PATH                       creates a container node
 * revoke NODE                          asks the lock that has this node to be released
 * ttl PATH MS                          creates a persistent node with a TTL
 * close                                ends the session; the end of the input does so too
 * </pre>
 *
 * <p>The kinds of locks are those of PeerLocks; the default is mutex.
 */
public final class LockPeer {
  private CuratorFramework client;
  private final Map<String, Holder> holders = new ConcurrentHashMap<>();
  private final Semaphores semaphores = new Semaphores();
  private final Elections elections = new Elections();
  private final Queues queues = new Queues();

  /** A lock and the thread that asks for it: Curator's locks belong to threads. */
  private static final class Holder {
    final ExecutorService thread =
        Executors.newSingleThreadExecutor(
            task -> {
              Thread thread = new Thread(task);
              thread.setDaemon(true);
              return thread;
            });
    volatile PeerLocks.PeerLock lock;
    volatile boolean held;
    volatile Future<?> acquiring;
  }

  private interface Action {
    Object run() throws Exception;
  }

  public static void main(String[] args) throws Exception {
    LockPeer peer = new LockPeer();
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = input.readLine()) != null; ) {
      String[] words = line.trim().split("\\s+");
      if (words.length >= 2) {
        peer.dispatch(words);
      }
    }
    peer.close();
    System.exit(0);
  }

  private void dispatch(String[] words) {
    String id = words[0];
    switch (words[1]) {
      case "acquire":
        Holder holder = holder(words[2]);
        holder.acquiring =
            inThread(
                holder,
                id,
                () ->
                    acquire(
                        holder,
                        words[3],
                        Long.parseLong(words[4]),
                        words.length > 5 ? words[5] : "mutex"));
        break;
      case "release":
        inThread(
            holder(words[2]),
            id,
            () -> {
              holder(words[2]).lock.release();
              holder(words[2]).held = false;
              return true;
            });
        break;
      case "node":
        inThread(holder(words[2]), id, () -> node(holder(words[2])));
        break;
      case "prove":
        inThread(holder(words[2]), id, () -> prove(holder(words[2])));
        break;
      case "counter":
        inThread(
            holder("counter " + id),
            id,
            () ->
                counter(
                    Paths.get(words[2]),
                    Integer.parseInt(words[3]),
                    words[4],
                    words.length > 5 ? Long.parseLong(words[5]) : 1,
                    words.length > 6 ? words[6] : "mutex"));
        break;
      case "permit":
        Holder owner = holder(words[3]);
        owner.acquiring = inThread(owner, id, () -> semaphores.run(client, words));
        break;
      case "election":
        inThread(holder(words[3]), id, () -> elections.run(client, words));
        break;
      case "queue":
        inThread(holder(words[3]), id, () -> queues.run(client, words));
        break;
      default:
        answer(id, () -> runCommand(words));
    }
  }

  private Object runCommand(String[] words) throws Exception {
    switch (words[1]) {
      case "connect":
        return connect(words[2], Integer.parseInt(words[3]));
      case "interrupt":
        return holder(words[2]).acquiring.cancel(true);
      case "refusals":
        return holder(words[2]).lock.refusals();
      case "participants":
        return new ArrayList<>(new InterProcessMutex(client, words[2]).getParticipantNodes());
      case "container":
        return client.create().withMode(CreateMode.CONTAINER).forPath(words[2], new byte[0]);
      case "revoke":
        Revoker.attemptRevoke(client, words[2]);
        return true;
      case "ttl":
        return client
            .create()
            .withTtl(Long.parseLong(words[3]))
            .withMode(CreateMode.PERSISTENT_WITH_TTL)
            .forPath(words[2], new byte[0]);
      case "close":
        close();
        return true;
      default:
        throw new IllegalArgumentException("unknown command " + words[1]);
    }
  }

  private Holder holder(String name) {
    return holders.computeIfAbsent(name, key -> new Holder());
  }

  private Future<?> inThread(Holder holder, String id, Action action) {
    return holder.thread.submit(() -> answer(id, action));
  }

  private Object connect(String hosts, int sessionTimeout) throws Exception {
    close();
    int patience = Math.max(15000, sessionTimeout);
    client =
        CuratorFrameworkFactory.builder()
            .connectString(hosts)
            .sessionTimeoutMs(sessionTimeout)
            .connectionTimeoutMs(patience)
            .retryPolicy(new ExponentialBackoffRetry(50, 20, 1000))
            // Curator 5.7 no longer puts that into its nodes by itself.
            .defaultData(InetAddress.getLoopbackAddress().getHostAddress().getBytes(StandardCharsets.UTF_8))
            .build();
    client.start();
    if (!client.blockUntilConnected(2 * patience, TimeUnit.MILLISECONDS)) {
      throw new IllegalStateException("cannot connect to " + hosts);
    }
    return hex(client.getZookeeperClient().getZooKeeper().getSessionId());
  }

  private void close() throws Exception {
    for (Holder holder : holders.values()) {
      closeLock(holder);
    }
    if (client != null) {
      client.close();
      client = null;
    }
  }

  private static void closeLock(Holder holder) throws Exception {
    if (holder.lock != null) {
      holder.lock.close();
    }
  }

  private Object acquire(Holder holder, String path, long timeout, String kind) throws Exception {
    if (!holder.held) {
      closeLock(holder);
      holder.lock = PeerLocks.create(kind, client, path);
    }
    holder.held = holder.lock.acquire(timeout);
    return holder.held;
  }

  private Object node(Holder holder) throws Exception {
    String path = holder.lock == null ? null : holder.lock.node();
    if (path == null) {
      throw new IllegalStateException("not held");
    }
    Stat stat = client.checkExists().forPath(path);
    if (stat == null) {
      throw new IllegalStateException(path + " is gone");
    }
    return List.of(path, stat.getCzxid(), hex(stat.getEphemeralOwner()));
  }

  /** A check alone, as a transaction: nothing is written, but it takes a quorum. */
  private Object prove(Holder holder) throws Exception {
    client.transaction().forOperations(client.transactionOp().check().forPath(holder.lock.node()));
    return true;
  }

  private Object counter(Path file, int rounds, String path, long sleep, String kind)
      throws Exception {
    long start = System.nanoTime();
    PeerLocks.PeerLock lock = PeerLocks.create(kind, client, path);
    for (int i = 0; i < rounds; i++) {
      lock.acquire(-1);
      try {
        long value = Long.parseLong(Files.readString(file).trim());
        Thread.sleep(sleep);
        Files.writeString(file, (value + 1) + "\n");
      } finally {
        lock.release();
      }
    }
    lock.close();
    return (System.nanoTime() - start) / 1_000_000;
  }

  private void answer(String id, Action action) {
    String line;
    try {
      line = ",\"ok\":true,\"result\":" + json(action.run());
    } catch (Throwable error) {
      line = ",\"ok\":false,\"error\":" + json(error.toString());
    }
    synchronized (this) {
      System.out.println("{\"id\":" + id + line + "}");
      System.out.flush();
    }
  }

  private static String hex(long number) {
    return "0x" + Long.toHexString(number);
  }

  private static String json(Object value) {
    if (value instanceof List) {
      List<String> parts = new ArrayList<>();
      ((List<?>) value).forEach(part -> parts.add(json(part)));
      return "[" + String.join(",", parts) + "]";
    }
    if (value == null || value instanceof Number || value instanceof Boolean) {
      return String.valueOf(value);
    }
    StringBuilder text = new StringBuilder("\"");
    for (char c : value.toString().toCharArray()) {
      if (c == '"' || c == '\\' || c < ' ') {
        text.append(String.format("\\u%04x", (int) c));
      } else {
        text.append(c);
      }
    }
    return text.append('"').toString();
  }
}
