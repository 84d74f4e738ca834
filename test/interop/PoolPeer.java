// Copyright (c) 2026, zklock contributors

import com.zaxxer.hikari.HikariDataSource;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/**
 * A Java service whose database connection is one of a pool, HikariCP.
 *
 * <p>It obeys lines, one after the other, in the form of LockPeer.
 *
 * <pre>
 * open URL      a pool of one connection
 * borrow        takes the connection from the pool
 * query SQL     in the borrowed connection. Result: the first column of the first row, or the
 *               SQLSTATE of its failure
 * giveback      returns the connection to the pool
 * </pre>
 */
public final class PoolPeer {
  private HikariDataSource pool;
  private Connection connection;

  public static void main(String[] args) throws Exception {
    PoolPeer peer = new PoolPeer();
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

  private String run(String command, String argument) throws SQLException {
    switch (command) {
      case "open":
        pool = new HikariDataSource();
        pool.setJdbcUrl(argument);
        pool.setMaximumPoolSize(1);
        return "";
      case "borrow":
        connection = pool.getConnection();
        return "";
      case "query":
        return query(argument);
      case "giveback":
        connection.close();
        return "";
      default:
        throw new IllegalArgumentException("unknown command " + command);
    }
  }

  private String query(String sql) {
    try (Statement statement = connection.createStatement();
        ResultSet result = statement.executeQuery(sql)) {
      result.next();
      return result.getString(1);
    } catch (SQLException error) {
      return error.getSQLState();
    }
  }
}
