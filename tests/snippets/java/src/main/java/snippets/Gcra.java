package snippets;

import java.time.Duration;
import org.redisson.Redisson;
import org.redisson.api.GcraResult;
import org.redisson.api.RGcra;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Calls Redisson's {@code RGcra}, and prints each result as the integers of the server's reply:
 * {@code Gcra PORT KEY BURST TOKENS SECONDS COUNT...}.
 *
 * <p>Of each COUNT, the first line is the reply to {@code GCRA}, the second the reply to the script
 * that Redisson sends for a stored rate.
 */
final class Gcra {
  private Gcra() {}

  @SuppressWarnings("deprecation") // only the deprecated form sends GCRA outside a script
  public static void main(String[] arguments) {
    Config config = new Config();
    config.useSingleServer().setAddress("redis://127.0.0.1:" + arguments[0]);
    RedissonClient client = Redisson.create(config);
    long burst = Long.parseLong(arguments[2]);
    long tokens = Long.parseLong(arguments[3]);
    Duration period = Duration.ofSeconds(Long.parseLong(arguments[4]));
    RGcra direct = client.getGcra(arguments[1]);
    RGcra stored = client.getGcra(arguments[1] + ":stored");
    stored.setRate(burst, tokens, period);
    for (int at = 5; at < arguments.length; at++) {
      long count = Long.parseLong(arguments[at]);
      print(direct.tryAcquire(burst, tokens, period, count));
      print(stored.tryAcquire(count));
    }
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  private static void print(GcraResult result) {
    System.out.printf(
        "%d %d %d %d %d%n",
        result.isLimited() ? 1 : 0,
        result.getMaxTokens(),
        result.getAvailableTokens(),
        result.getRetryAfterSeconds(),
        result.getFullBurstAfterSeconds());
  }
}
