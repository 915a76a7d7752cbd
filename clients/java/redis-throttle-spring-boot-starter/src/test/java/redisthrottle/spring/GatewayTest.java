package redisthrottle.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.net.http.HttpResponse;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.cloud.gateway.filter.ratelimit.KeyResolver;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import reactor.core.publisher.Mono;
import redisthrottle.gateway.ThrottleRateLimiter;
import redisthrottle.lettuce.Server;

/** Runs a gateway whose limiter and rules come from the starter. */
class GatewayTest {
  private static final String ROUTE = "--spring.cloud.gateway.server.webflux.routes[0].";

  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  @RestController
  static class Application {
    @GetMapping("/up")
    Map<String, String> up() {
      return Map.of("status", "UP");
    }

    @Bean
    KeyResolver key() {
      return exchange -> Mono.just("ada");
    }
  }

  @Test
  void gives_the_gateway_the_limiter_and_the_rules() {
    try (Server redis = Server.withModule();
        Program program =
            Program.start(
                WebApplicationType.REACTIVE,
                Application.class,
                redis,
                "--throttle.rules.once.algorithm=fixed",
                "--throttle.rules.once.limit=1",
                "--throttle.rules.once.window=1h",
                ROUTE + "id=to",
                ROUTE + "uri=forward:///up",
                ROUTE + "predicates[0]=Path=/to",
                ROUTE + "filters[0].name=RequestRateLimiter",
                ROUTE + "filters[0].args.throttle.rule=once")) {
      assertNotNull(program.context.getBean(ThrottleRateLimiter.class));
      assertEquals(200, program.get("/to").statusCode());
      HttpResponse<String> denied = program.get("/to");
      assertEquals(429, denied.statusCode());
      assertEquals("\"once\";q=1;w=3600", Program.field(denied, "RateLimit-Policy"));
      assertEquals(1, Integer.parseInt(redis.send("EXISTS", "rl:once:ada")));
    }
  }
}
