// Copyright (c) 2026, zklock contributors

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Threads that lock and unlock with Curator, all on one ZooKeeper session; and threads whose
 * transactions a lock guards, each on a database connection of its own.
 *
 * <p>The form of the requests and of paths, and the clock, are those of load.h. Times are in
 * microseconds.
 *
 * <pre>
 * connect     hosts, timeout (ms): to ZooKeeper; who locks in the database alone need not
 * run         sessions, path, think, begin, from, end: each of so many threads acquires, thinks,
 *             releases, again and again. Result: how long each acquisition took
 * run         ..., url, lock: each thread acquires, updates a row of the database, commits,
 *             releases. "lock" is an expression that locks $path until the end of the transaction;
 *             if it is empty, Curator locks. Result: how long all of that took, each time
 * batch       path, count: acquires an InterProcessMultiLock of so many paths, and releases it.
 *             Result: how long the acquisition took
 * enqueue     path: another thread begins to acquire, and keeps what it gets
 * drain       whoever has been enqueued releases when it has what it waits for. Result: when each
 *             of them got it
 * </pre>
 */
public final class JavaLoad {
  private CuratorFramework client;
  private final ExecutorService threads =
      Executors.newCachedThreadPool(
          task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
          });
  private final Map<String, List<Connection>> connections = new HashMap<>();
  private final List<Future<Long>> enqueued = new ArrayList<>();
  private CountDownLatch draining = new CountDownLatch(1);

  public static void main(String[] args) throws Exception {
    JavaLoad load = new JavaLoad();
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = input.readLine()) != null; ) {
      String[] words = line.split("\t");
      Map<String, String> arguments = new HashMap<>();
      for (int i = 2; i < words.length; i++) {
        int sign = words[i].indexOf('=');
        arguments.put(words[i].substring(0, sign), words[i].substring(sign + 1));
      }
      String result = load.serve(words[1], arguments);
      System.out.println("{\"id\":" + words[0] + ",\"ok\":true,\"result\":" + result + "}");
      System.out.flush();
    }
    if (load.client != null) {
      load.client.close();
    }
    System.exit(0);
  }

  private String serve(String command, Map<String, String> arguments) throws Exception {
    switch (command) {
      case "connect":
        return connect(arguments.get("hosts"), Integer.parseInt(arguments.get("timeout")));
      case "run":
        return run(arguments);
      case "batch":
        return batch(arguments.get("path"), Integer.parseInt(arguments.get("count")));
      case "enqueue":
        return enqueue(arguments.get("path"));
      case "drain":
        return drain();
      default:
        throw new IllegalArgumentException("unknown command " + command);
    }
  }

  private String connect(String hosts, int timeout) throws Exception {
    client =
        CuratorFrameworkFactory.newClient(
            hosts, timeout, 15000, new ExponentialBackoffRetry(50, 20, 1000));
    client.start();
    if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
      throw new IllegalStateException("cannot connect to " + hosts);
    }
    return "1";
  }

  private static long now() {
    return System.nanoTime() / 1000;
  }

  private static void sleepUntil(long time) {
    for (long left; (left = time - now()) > 0; ) {
      LockSupport.parkNanos(left * 1000);
    }
  }

  /** What a thread enters and leaves again and again; only the entry is timed. */
  private interface Section {
    void enter() throws Exception;

    void leave() throws Exception;
  }

  /** Paths as load.h describes them, for the thread with a number. */
  private static final class Paths {
    private static final AtomicLong USED = new AtomicLong();
    private final String pattern;
    private final boolean change;

    Paths(String pattern, int number) {
      this.pattern = pattern.replace("%d", Integer.toString(number));
      this.change = this.pattern.contains("%");
    }

    String next() {
      if (!change) {
        return pattern;
      }
      return pattern
          .replace("%n", ProcessHandle.current().pid() + "-" + USED.incrementAndGet())
          .replace("%r", Integer.toString(ThreadLocalRandom.current().nextInt(10_000) + 1));
    }
  }

  /** A lock of Curator's. */
  private final class Mutex implements Section {
    private final Paths paths;
    private InterProcessLock lock;

    Mutex(Paths paths) {
      this.paths = paths;
    }

    @Override
    public void enter() throws Exception {
      if (lock == null || paths.change) {
        lock = new InterProcessMutex(client, paths.next());
      }
      lock.acquire();
    }

    @Override
    public void leave() throws Exception {
      lock.release();
    }
  }

  /** A lock of the database's, which the end of the transaction releases. */
  private static final class TransactionLock implements Section {
    private final Paths paths;
    private final PreparedStatement statement;

    TransactionLock(Paths paths, Connection connection, String lock) throws SQLException {
      this.paths = paths;
      statement = connection.prepareStatement("SELECT " + lock.replace("$path", "?::text"));
    }

    @Override
    public void enter() throws SQLException {
      statement.setString(1, paths.next());
      statement.executeQuery().close();
    }

    @Override
    public void leave() {}
  }

  /** A transaction that a lock guards; nothing is left to do after it. */
  private static final class Transaction implements Section {
    private final Section guard;
    private final Connection connection;
    private final PreparedStatement update;

    Transaction(Section guard, Connection connection, int row) throws SQLException {
      this.guard = guard;
      this.connection = connection;
      update = connection.prepareStatement("UPDATE guarded SET n = n + 1 WHERE id = ?");
      update.setInt(1, row);
    }

    @Override
    public void enter() throws Exception {
      guard.enter();
      if (update.executeUpdate() != 1) {
        throw new IllegalStateException("there is no such row");
      }
      connection.commit();
      guard.leave();
    }

    @Override
    public void leave() {}
  }

  private Section section(Map<String, String> arguments, int number) throws SQLException {
    String path = arguments.get("path");
    Paths paths = new Paths(path, number);
    String url = arguments.get("url");
    if (url == null) {
      return new Mutex(paths);
    }
    Connection connection = connection(url, number);
    String lock = arguments.get("lock");
    Section guard =
        lock.isEmpty() ? new Mutex(paths) : new TransactionLock(paths, connection, lock);
    // What is guarded by one lock is one row.
    return new Transaction(guard, connection, path.contains("%") ? number : 1);
  }

  private Connection connection(String url, int number) throws SQLException {
    List<Connection> open = connections.computeIfAbsent(url, key -> new ArrayList<>());
    while (open.size() < number) {
      Connection connection = DriverManager.getConnection(url);
      connection.setAutoCommit(false);
      open.add(connection);
    }
    return open.get(number - 1);
  }

  private String run(Map<String, String> arguments) throws Exception {
    int sessions = Integer.parseInt(arguments.get("sessions"));
    long think = Long.parseLong(arguments.get("think"));
    long begin = Long.parseLong(arguments.get("begin"));
    long from = Long.parseLong(arguments.get("from"));
    long end = Long.parseLong(arguments.get("end"));
    AtomicLong others = new AtomicLong();
    List<Callable<List<Long>>> tasks = new ArrayList<>();
    for (int i = 1; i <= sessions; i++) {
      Section section = section(arguments, i);
      tasks.add(() -> enterAndLeave(section, think, begin, from, end, others));
    }
    List<Long> durations = new ArrayList<>();
    for (Future<List<Long>> thread : threads.invokeAll(tasks)) {
      durations.addAll(thread.get());
    }
    return answer("durations", durations, others.get());
  }

  private static List<Long> enterAndLeave(
      Section section, long think, long begin, long from, long end, AtomicLong others)
      throws Exception {
    List<Long> durations = new ArrayList<>();
    sleepUntil(begin);
    for (long before; (before = now()) < end; ) {
      section.enter();
      long entered = now();
      if (entered >= from && entered <= end) {
        durations.add(entered - before);
      } else {
        others.incrementAndGet();
      }
      if (think > 0) {
        sleepUntil(Math.min(entered + think, end));
      }
      section.leave();
    }
    return durations;
  }

  private String batch(String path, int count) throws Exception {
    List<String> paths = new ArrayList<>();
    for (int i = 1; i <= count; i++) {
      paths.add(path.replace("%d", Integer.toString(i)));
    }
    InterProcessLock lock = new InterProcessMultiLock(client, paths);
    long before = now();
    lock.acquire();
    long taken = now() - before;
    lock.release();
    return Long.toString(taken);
  }

  private String enqueue(String path) {
    CountDownLatch mayRelease = draining;
    InterProcessLock lock = new InterProcessMutex(client, path);
    enqueued.add(
        threads.submit(
            () -> {
              lock.acquire();
              long acquired = now();
              mayRelease.await();
              lock.release();
              return acquired;
            }));
    return "1";
  }

  private String drain() throws Exception {
    List<Long> grants = new ArrayList<>();
    draining.countDown();
    for (Future<Long> thread : enqueued) {
      grants.add(thread.get());
    }
    enqueued.clear();
    draining = new CountDownLatch(1);
    return answer("grants", grants, 0);
  }

  private static String answer(String name, List<Long> values, long others) {
    StringBuilder text = new StringBuilder("{\"" + name + "\":\"");
    for (int i = 0; i < values.size(); i++) {
      text.append(i == 0 ? "" : " ").append(values.get(i));
    }
    return text.append("\",\"others\":" + others + "}").toString();
  }
}
