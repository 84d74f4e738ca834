// Copyright (c) 2026, zklock contributors

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A Java service that locks with Curator and writes to a database what its lock protects.
 *
 * <p>It obeys lines, one after the other, in the form of LockPeer. FencedMutex is the class that
 * doc/guarantees.md shows.
 *
 * <pre>
 * connect HOSTS SESSION_TIMEOUT_MS URL   to ZooKeeper, and by JDBC to the database
 * acquire PATH                           result: the fencing token
 * write SQL                              in a transaction of its own, with the token in app.token.
 *                                        Result: "held 00000", or whether the service believes
 *                                        that it holds the lock, and the SQLSTATE of its failure
 * release
 * </pre>
 */
public final class FencePeer {
  private CuratorFramework client;
  private Connection database;
  private FencedMutex mutex;
  private long token;

  public static void main(String[] args) throws Exception {
    FencePeer peer = new FencePeer();
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = input.readLine()) != null; ) {
      String[] words = line.split(" ", 3);
      String answer;
      try {
        answer = "\"ok\":true,\"result\":\"" + peer.run(words[1], words.length > 2 ? words[2] : "");
      } catch (Exception error) {
        answer = "\"ok\":false,\"error\":\"" + error.toString().replaceAll("[\"\\\\\\s]+", " ");
      }
      System.out.println("{\"id\":" + words[0] + "," + answer + "\"}");
      System.out.flush();
    }
    System.exit(0);
  }

  private String run(String command, String argument) throws Exception {
    switch (command) {
      case "connect":
        String[] words = argument.split(" ");
        connect(words[0], Integer.parseInt(words[1]), words[2]);
        return "";
      case "acquire":
        mutex = new FencedMutex(client, argument);
        mutex.acquire();
        token = mutex.token();
        return Long.toString(token);
      case "write":
        return (mutex.isOwnedByCurrentThread() ? "held " : "free ") + write(argument);
      case "release":
        mutex.release();
        return "";
      default:
        throw new IllegalArgumentException("unknown command " + command);
    }
  }

  private void connect(String hosts, int sessionTimeout, String url) throws Exception {
    client =
        CuratorFrameworkFactory.newClient(
            hosts, sessionTimeout, 15000, new ExponentialBackoffRetry(50, 20, 1000));
    client.start();
    if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
      throw new IllegalStateException("cannot connect to " + hosts);
    }
    database = DriverManager.getConnection(url);
    database.setAutoCommit(false);
  }

  private String write(String sql) throws SQLException {
    try (PreparedStatement set =
            database.prepareStatement("SELECT set_config('app.token', ?, true)");
        Statement statement = database.createStatement()) {
      set.setString(1, Long.toString(token));
      set.execute();
      statement.execute(sql);
      database.commit();
      return "00000";
    } catch (SQLException error) {
      database.rollback();
      return error.getSQLState();
    }
  }
}
