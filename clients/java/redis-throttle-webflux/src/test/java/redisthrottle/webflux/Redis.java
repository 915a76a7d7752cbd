package redisthrottle.webflux;

import io.lettuce.core.RedisURI;
import java.time.Duration;
import redisthrottle.Limiter;
import redisthrottle.LimiterBuilder;
import redisthrottle.Rule;
import redisthrottle.lettuce.LettuceConnector;
import redisthrottle.lettuce.Server;

/** Limiters of the tests. */
final class Redis {
  private Redis() {}

  /** Returns a limiter that has a connection. */
  static Limiter limiter(Server server) {
    Limiter limiter = builder(server.uri()).build();
    Rule probe = Rule.gcra("probe", 1, 1, Duration.ofSeconds(1));
    Server.await("a reply", () -> !limiter.peek(probe.of("a")).degraded());
    return limiter;
  }

  /** Returns a builder of a limiter whose server is unreachable. */
  static LimiterBuilder unreachable() {
    return builder(RedisURI.create("127.0.0.1", 1));
  }

  private static LimiterBuilder builder(RedisURI uri) {
    return Limiter.builder(LettuceConnector.of(Server.CLIENT, uri)).timeout(Duration.ofMinutes(1));
  }
}
