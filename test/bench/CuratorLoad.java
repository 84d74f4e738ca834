// Copyright (c) 2026, zklock contributors

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
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
 * Threads that lock and unlock with Curator, all on one ZooKeeper session.
 *
 * <p>The form of the requests, and the clock, are those of load.h. Times are in microseconds.
 *
 * <pre>
 * connect     hosts, timeout (ms)
 * run         sessions, path, think, begin, from, end: each of so many threads acquires, thinks,
 *             releases, again and again; %d in the path is the number of the thread. Result: how
 *             long each acquisition took
 * batch       path, count: acquires an InterProcessMultiLock of so many paths, and releases it.
 *             Result: how long the acquisition took
 * enqueue     path: another thread begins to acquire, and keeps what it gets
 * drain       whoever has been enqueued releases when it has what it waits for. Result: when each
 *             of them got it
 * </pre>
 */
public final class CuratorLoad {
  private CuratorFramework client;
  private final ExecutorService threads =
      Executors.newCachedThreadPool(
          task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
          });
  private final List<Future<Long>> enqueued = new ArrayList<>();
  private CountDownLatch draining = new CountDownLatch(1);

  public static void main(String[] args) throws Exception {
    CuratorLoad load = new CuratorLoad();
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

  private static String path(Map<String, String> arguments, int number) {
    return arguments.get("path").replace("%d", Integer.toString(number));
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
      InterProcessLock lock = new InterProcessMutex(client, path(arguments, i));
      tasks.add(() -> lockAndUnlock(lock, think, begin, from, end, others));
    }
    List<Long> durations = new ArrayList<>();
    for (Future<List<Long>> thread : threads.invokeAll(tasks)) {
      durations.addAll(thread.get());
    }
    return answer("durations", durations, others.get());
  }

  private static List<Long> lockAndUnlock(
      InterProcessLock lock, long think, long begin, long from, long end, AtomicLong others)
      throws Exception {
    List<Long> durations = new ArrayList<>();
    sleepUntil(begin);
    for (long before; (before = now()) < end; ) {
      lock.acquire();
      long acquired = now();
      if (acquired >= from && acquired <= end) {
        durations.add(acquired - before);
      } else {
        others.incrementAndGet();
      }
      if (think > 0) {
        sleepUntil(Math.min(acquired + think, end));
      }
      lock.release();
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
