package redisthrottle.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.protocol.ProtocolVersion;
import java.time.Duration;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redisthrottle.Backend;
import redisthrottle.Decision;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.Source;

/** Runs against {@code redis-throttle-lab serve}, which makes decisions without a Redis. */
class LabTest {
  @ParameterizedTest
  @EnumSource(ProtocolVersion.class)
  void allows_and_denies_calls_over_lettuce(ProtocolVersion protocol) throws Exception {
    RedisClient client = RedisClient.create();
    client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
    try (Server lab = Server.lab()) {
      RedisURI uri =
          RedisURI.builder(lab.uri())
              .withAuthentication("user", "secret".toCharArray())
              .withClientName("test")
              .build();
      try (Limiter limiter =
          Limiter.builder(LettuceConnector.of(client, uri))
              .timeout(Duration.ofMinutes(1))
              .build()) {
        assertEquals(Backend.MODULE, limiter.ready());
        Rule once = Rule.gcra("once", 1, 1, Duration.ofHours(1));
        for (boolean allowed : new boolean[] {true, false}) {
          Decision decision = limiter.check(once.of("42"));
          assertEquals(allowed, decision.allowed());
          assertEquals(Source.SERVER, decision.source());
        }
      }
    } finally {
      client.shutdown();
    }
  }
}
