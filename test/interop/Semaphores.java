// Copyright (c) 2026, zklock contributors

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/**
 * The permits that LockPeer has, by Curator's InterProcessSemaphoreV2.
 *
 * <pre>
 * permit acquire NAME PATH PERMITS TIMEOUT_MS      true, or false after the timeout; -1 waits for
 *                                                  ever
 * permit release NAME                              the youngest permit of that name
 * permit rounds NAME PATH PERMITS ROUNDS SLEEP_MS  ROUNDS times: acquire, sleep, release. Result:
 *                                                  for each the microseconds since 1970 when it
 *                                                  began and ended to be inside
 * </pre>
 */
final class Semaphores {
  private final Map<String, Deque<Lease>> leases = new ConcurrentHashMap<>();

  Object run(CuratorFramework client, String[] words) throws Exception {
    Deque<Lease> held = leases.computeIfAbsent(words[3], key -> new ArrayDeque<>());
    switch (words[2]) {
      case "acquire":
        Lease lease = acquire(semaphore(client, words), Long.parseLong(words[6]));
        if (lease != null) {
          held.push(lease);
        }
        return lease != null;
      case "release":
        held.pop().close();
        return true;
      case "rounds":
        return rounds(
            semaphore(client, words), Integer.parseInt(words[6]), Long.parseLong(words[7]));
      default:
        throw new IllegalArgumentException("unknown command " + words[2]);
    }
  }

  private static InterProcessSemaphoreV2 semaphore(CuratorFramework client, String[] words) {
    return new InterProcessSemaphoreV2(client, words[4], Integer.parseInt(words[5]));
  }

  private static Lease acquire(InterProcessSemaphoreV2 semaphore, long timeout) throws Exception {
    return timeout < 0 ? semaphore.acquire() : semaphore.acquire(timeout, TimeUnit.MILLISECONDS);
  }

  private static Object rounds(InterProcessSemaphoreV2 semaphore, int rounds, long sleep)
      throws Exception {
    List<Object> times = new ArrayList<>();
    for (int i = 0; i < rounds; i++) {
      Lease lease = semaphore.acquire();
      long start = now();
      Thread.sleep(sleep);
      times.add(List.of(start, now()));
      lease.close();
    }
    return times;
  }

  private static long now() {
    return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
  }
}
