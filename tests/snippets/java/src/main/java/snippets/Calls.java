package snippets;

import java.util.Locale;

/**
 * Makes calls through a driver, and prints how the last one ended: {@code Calls DRIVER PORT TIMES
 * [LOSSY]}.
 *
 * <p>Each call has a key of its own. With LOSSY, a cluster client's connections to PORT go to that
 * port.
 */
final class Calls {
  private Calls() {}

  /** Makes one call of {@code RL.GCRA}. */
  interface Caller {
    void call(String key) throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    int port = Integer.parseInt(arguments[1]);
    int lossy = arguments.length > 3 ? Integer.parseInt(arguments[3]) : port;
    Caller caller = connect(arguments[0], port, lossy);
    String ended = "replied";
    for (int n = 0; n < Integer.parseInt(arguments[2]); n++) {
      long began = System.nanoTime();
      try {
        caller.call("user:" + n);
      } catch (Exception lost) {
        double seconds = (System.nanoTime() - began) / 1e9;
        ended = String.format(Locale.ROOT, "lost after %.0f s", seconds);
        break;
      }
    }
    System.out.println(ended);
    System.out.flush();
    // Closes the connections at once; a client's own end waits for its threads.
    Runtime.getRuntime().halt(0);
  }

  private static Caller connect(String driver, int port, int lossy) {
    return switch (driver) {
      case "lettuce" -> Lettuce.single(port, false);
      case "lettuce-once" -> Lettuce.single(port, true);
      case "lettuce-cluster" -> Lettuce.cluster(port, lossy);
      case "jedis" -> WithJedis.single(port, false);
      case "jedis-once" -> WithJedis.single(port, true);
      case "jedis-cluster" -> WithJedis.cluster(port, lossy, false);
      case "jedis-cluster-once" -> WithJedis.cluster(port, lossy, true);
      case "redisson" -> WithRedisson.single(port, false);
      case "redisson-once" -> WithRedisson.single(port, true);
      case "redisson-cluster" -> WithRedisson.cluster(port, lossy, false);
      case "redisson-cluster-once" -> WithRedisson.cluster(port, lossy, true);
      default -> throw new IllegalArgumentException("unknown driver " + driver);
    };
  }
}
