// Copyright (c) 2026, zklock contributors

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.time.Instant;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A Java service that knows nothing of PostgreSQL: it takes Curator's InterProcessMutex some rounds
 * in a row, and appends a line to a log when it enters and when it leaves.
 *
 * <p>Usage: Demo HOSTS LOCK_PATH LOG_FILE ROUNDS. It says "connected 0x(session)", waits for a line
 * on standard input, takes its turns, says "done", and ends its session.
 */
public final class Demo {
  private static final long TURN_MS = 50;

  public static void main(String[] args) throws Exception {
    Path log = Paths.get(args[2]);
    int rounds = Integer.parseInt(args[3]);
    try (CuratorFramework client =
        CuratorFrameworkFactory.newClient(
            args[0], 10000, 15000, new ExponentialBackoffRetry(100, 10, 1000))) {
      client.start();
      if (!client.blockUntilConnected(20, TimeUnit.SECONDS)) {
        throw new IllegalStateException("cannot connect to ZooKeeper at " + args[0]);
      }
      say("connected 0x" + Long.toHexString(client.getZookeeperClient().getZooKeeper().getSessionId()));
      if (new BufferedReader(new InputStreamReader(System.in)).readLine() == null) {
        return;
      }

      InterProcessMutex mutex = new InterProcessMutex(client, args[1]);
      for (int round = 0; round < rounds; round++) {
        mutex.acquire();
        try {
          append(log, "enters");
          Thread.sleep(TURN_MS);
          append(log, "leaves");
        } finally {
          mutex.release();
        }
      }
    }
    say("done");
  }

  private static void append(Path log, String what) throws IOException {
    double now = Duration.between(Instant.EPOCH, Instant.now()).toNanos() / 1e9;
    Files.writeString(
        log,
        String.format(Locale.ROOT, "Java\t%s\t%.6f%n", what, now),
        StandardOpenOption.CREATE,
        StandardOpenOption.APPEND);
  }

  private static void say(String line) {
    System.out.println(line);
    System.out.flush();
  }
}
