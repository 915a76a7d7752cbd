package redisthrottle.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.http.HttpResponse;
import java.security.Principal;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.annotation.Order;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.WebFilter;
import reactor.core.publisher.Mono;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.lettuce.Server;

/** Runs applications in Netty, with a server that has the module. */
class ReactiveTest {
  private static final String TOMCAT_OF_ACTUATOR =
      "org.springframework.boot.tomcat.autoconfigure.actuate.web.server"
          + ".TomcatReactiveManagementContextAutoConfiguration";

  private static Server redis;

  @BeforeAll
  static void start() {
    redis = Server.withModule("--rl.debug-commands", "yes");
    redis.send("RL.DEBUG", "CLOCK", "FREEZE");
  }

  @AfterAll
  static void stop() {
    redis.close();
  }

  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  @RestController
  static class Application {
    @GetMapping({"/", "/{name}"})
    Mono<String> index() {
      return Mono.just("hello");
    }

    @Autowired Limiter limiter;

    @GetMapping("/handlers/once")
    Mono<String> once() {
      Item item = Rule.fixed("handler", 1, Duration.ofHours(1)).of("ada");
      return Mono.fromCompletionStage(() -> limiter.admitAsync(List.of(item)))
          .map(admission -> "once");
    }

    /** Stands for Spring Security. */
    @Bean
    @Order(-100)
    WebFilter login() {
      return (exchange, chain) -> {
        String user = exchange.getRequest().getHeaders().getFirst("X-User");
        Mono<Principal> principal = Mono.justOrEmpty(user).map(name -> () -> name);
        return chain.filter(exchange.mutate().principal(principal).build());
      };
    }
  }

  private static Program start(String... arguments) {
    return Program.start(WebApplicationType.REACTIVE, Application.class, redis, arguments);
  }

  @Test
  void responds_with_429_to_the_eleventh_request_with_six_lines() {
    try (Program program = start("--spring.config.location=classpath:six-lines.yaml")) {
      program.assertLimitedBySixLines();
      assertEquals(200, program.get("/other").statusCode());
      assertEquals("once", program.get("/handlers/once").body());
      HttpResponse<String> denied = program.get("/handlers/once");
      assertEquals(429, denied.statusCode());
      assertEquals("3600", Program.field(denied, "Retry-After"));
      assertTrue(denied.body().contains("\"violated-policies\":[\"handler\"]"), denied.body());
    }
  }

  @Test
  void limits_by_the_principal_and_takes_the_first_route_below_a_base_path() {
    try (Program program =
        start(
            // A gateway that is switched off needs nothing of the limiter.
            "--spring.cloud.gateway.server.webflux.enabled=false",
            "--spring.cloud.gateway.server.webflux.redis.enabled=false",
            "--spring.webflux.base-path=/shop",
            "--throttle.filter-order=-99",
            "--throttle.rules.once.algorithm=fixed",
            "--throttle.rules.once.limit=1",
            "--throttle.rules.once.window=1h",
            "--throttle.routes[0].path=/me",
            "--throttle.routes[0].methods=get",
            "--throttle.routes[0].rules=once",
            "--throttle.routes[0].key=principal")) {
      assertEquals(200, program.get("/shop/me", "X-User", "ada").statusCode());
      assertEquals(429, program.send("HEAD", "/shop/me", "X-User", "ada").statusCode());
      assertEquals(200, program.get("/shop/me", "X-User", "bob").statusCode());
      assertEquals(400, program.get("/shop/me").statusCode());
      assertEquals(200, program.get("/shop/you").statusCode());
    }
  }

  @Test
  void limits_a_file_in_every_form_of_its_path() {
    try (Program program =
        start(
            "--throttle.prefix=files",
            "--throttle.rules.one.algorithm=fixed",
            "--throttle.rules.one.limit=1",
            "--throttle.rules.one.window=1h",
            "--throttle.routes[0].path=/files/**",
            "--throttle.routes[0].rules=one")) {
      assertEquals("a file\n", program.get("/files/a.txt").body());
      for (String path : List.of("/files/a.txt", "//files/a.txt", "/%2e/files/a.txt")) {
        assertEquals(429, program.get(path).statusCode(), path);
      }
    }
  }

  @Test
  void limits_no_request_to_the_port_of_actuator() {
    try (Program program =
        start(
            "--management.server.port=0",
            // Tomcat, which another test needs, brings a second server of Actuator.
            "--spring.autoconfigure.exclude=" + TOMCAT_OF_ACTUATOR,
            "--management.endpoints.web.exposure.include=health",
            "--throttle.rules.one.algorithm=fixed",
            "--throttle.rules.one.limit=1",
            "--throttle.rules.one.window=1h",
            "--throttle.routes[0].path=/**",
            "--throttle.routes[0].rules=one")) {
      for (int probe = 1; probe <= 3; probe++) {
        assertEquals(200, program.probe("/actuator/health").statusCode());
      }
      assertEquals(200, program.get("/").statusCode());
      assertEquals(429, program.get("/").statusCode());
    }
  }
}
