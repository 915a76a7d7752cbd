package redisthrottle.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisURI;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import redisthrottle.Backend;
import redisthrottle.Connector;
import redisthrottle.FakeServer;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.lettuce.Server;

/** Starts applications without a web server, and looks at the limiter and its server. */
class ConnectionTest {
  private static final String[] RULE = {
    "--throttle.rules.api.algorithm=token-bucket",
    "--throttle.rules.api.capacity=2",
    "--throttle.rules.api.rate=1",
    "--throttle.rules.api.period=1m"
  };

  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  static class Application {}

  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  static class WithOwnLimiter {
    static final FakeServer SERVER = new FakeServer();

    @Bean
    Limiter limiter() {
      return SERVER.limiter().build();
    }
  }

  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  static class WithRule extends WithOwnLimiter {
    @Bean
    String name(Rule rule) {
      return rule.name();
    }
  }

  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  static class WithCustomizer {
    /** Has the name of a rule. */
    @Bean
    Rule api(@Qualifier("api") Rule given) {
      return Rule.fixed("other-" + given.name(), given.limit(), Duration.ofMinutes(1));
    }

    @Bean
    ThrottleLimiterCustomizer customizer() {
      return builder -> builder.prefix("custom");
    }
  }

  private static ConfigurableApplicationContext start(Class<?> source, String... arguments) {
    return new SpringApplicationBuilder(source)
        .web(WebApplicationType.NONE)
        .properties(
            "logging.level.root=warn",
            "spring.main.banner-mode=off",
            // The gateway, which another test needs, refuses an application without a server.
            "spring.cloud.gateway.server.webflux.enabled=false",
            "spring.cloud.gateway.server.webflux.redis.enabled=false",
            "throttle.timeout=1m")
        .run(arguments);
  }

  private static Set<String> threads() {
    Set<String> names = new TreeSet<>();
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      String name = thread.getName();
      if (name.startsWith("lettuce") || name.startsWith("redis-throttle")) {
        names.add(name + " " + thread.getId());
      }
    }
    return names;
  }

  @Test
  void uses_the_server_of_spring_boot_and_leaves_no_thread() {
    try (Server redis = Server.withModule("--requirepass", "secret")) {
      Set<String> before = threads();
      String url = "redis://default:secret@127.0.0.1:" + redis.uri().getPort();
      try (var context = start(Application.class, "--spring.data.redis.url=" + url)) {
        assertEquals(Backend.MODULE, context.getBean(Limiter.class).ready());
        assertTrue(threads().size() > before.size());
      }
      Server.await("the threads end", () -> before.containsAll(threads()));
    }
  }

  @Test
  void ends_the_threads_of_its_own_driver() {
    try (Server redis = Server.withModule()) {
      Set<String> before = threads();
      String[] arguments = {
        "--throttle.url=" + redis.uri().toURI(),
        "--spring.autoconfigure.exclude="
            + "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration"
      };
      try (var context = start(Application.class, arguments)) {
        assertEquals(Backend.MODULE, context.getBean(Limiter.class).ready());
        assertTrue(threads().size() > before.size());
      }
      Server.await("the threads end", () -> before.containsAll(threads()));
    }
  }

  /** Returns what a run writes. */
  private static String output(Runnable run) {
    PrintStream before = System.out;
    ByteArrayOutputStream written = new ByteArrayOutputStream();
    System.setOut(new PrintStream(written, true, StandardCharsets.UTF_8));
    try {
      run.run();
    } finally {
      System.setOut(before);
    }
    return written.toString(StandardCharsets.UTF_8);
  }

  @Test
  void warns_of_rules_that_no_route_has_and_no_bean() {
    String warning = "has the rules [api], and no bean depends on them";
    String text = output(() -> start(WithOwnLimiter.class, RULE).close());
    assertTrue(text.contains(warning), text);
    assertEquals("", output(() -> start(WithRule.class, RULE).close()));
  }

  @Test
  void starts_without_the_server() throws IOException {
    int port;
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = socket.getLocalPort();
    }
    String url = "--throttle.url=redis://127.0.0.1:" + port;
    String text =
        output(
            () -> {
              try (var context = start(Application.class, url)) {
                Rule rule = Rule.fixed("r", 1, Duration.ofHours(1));
                assertTrue(context.getBean(Limiter.class).check(rule.of("ada")).degraded());
              }
            });
    assertEquals(
        1, text.split("the server is not ready, so on-error decides", -1).length - 1, text);
  }

  @Test
  void takes_the_limiter_of_the_application() {
    try (var context = start(WithOwnLimiter.class, RULE)) {
      assertTrue(context.getBeansOfType(Connector.class).isEmpty());
      Limiter limiter = context.getBean(Limiter.class);
      assertSame(context.getBean("limiter"), limiter);
      assertTrue(limiter.check(context.getBean(Rule.class).of("ada")).allowed());
      assertFalse(WithOwnLimiter.SERVER.received().isEmpty());
    }
  }

  @Test
  void makes_a_bean_of_each_rule_next_to_one_of_the_same_name() {
    try (Server redis = Server.withModule()) {
      String[] arguments = {
        "--throttle.url=" + redis.uri().toURI(), RULE[0], RULE[1], RULE[2], RULE[3]
      };
      try (var context = start(WithCustomizer.class, arguments)) {
        Map<String, Rule> rules = context.getBeansOfType(Rule.class);
        assertEquals(Set.of("api", "throttleRule.api"), rules.keySet());
        Rule given = rules.get("throttleRule.api");
        assertEquals(Rule.tokenBucket("api", 2, 1, Duration.ofMinutes(1)), given);
        assertEquals("other-api", rules.get("api").name());
        context.getBean(Limiter.class).check(given.of("ada"));
        assertEquals("1", redis.send("EXISTS", "custom:api:ada"));
      }
    }
  }

  @Test
  void reads_the_details_of_spring_boot() {
    try (var context =
        start(
            WithOwnLimiter.class,
            "--spring.data.redis.sentinel.master=primary",
            "--spring.data.redis.sentinel.nodes=127.0.0.1:26379,127.0.0.2:26380",
            "--spring.data.redis.sentinel.password=sentinel-secret",
            "--spring.data.redis.username=ada",
            "--spring.data.redis.password=secret",
            "--spring.data.redis.database=3",
            "--spring.data.redis.ssl.enabled=true")) {
      ServerAddress address = context.getBean(ServerAddress.class);
      assertFalse(address.isCluster());
      assertNotNull(address.ssl());
      RedisURI uri = address.uris().get(0);
      assertEquals("primary", uri.getSentinelMasterId());
      assertEquals(3, uri.getDatabase());
      assertTrue(uri.isSsl());
      assertEquals("ada", uri.getCredentialsProvider().resolveCredentials().block().getUsername());
      assertEquals(2, uri.getSentinels().size());
      RedisURI sentinel = uri.getSentinels().get(1);
      assertEquals("127.0.0.2:26380", sentinel.getHost() + ":" + sentinel.getPort());
      assertTrue(sentinel.isSsl());
      char[] password =
          sentinel.getCredentialsProvider().resolveCredentials().block().getPassword();
      assertEquals("sentinel-secret", new String(password));
    }
    try (var context =
        start(
            WithOwnLimiter.class,
            "--spring.data.redis.cluster.nodes=127.0.0.1:7001,127.0.0.1:7002")) {
      ServerAddress address = context.getBean(ServerAddress.class);
      assertTrue(address.isCluster());
      assertEquals(2, address.uris().size());
      assertFalse(address.uris().get(0).isSsl());
    }
  }

  @Test
  void names_no_password_of_a_wrong_address() {
    for (String url :
        new String[] {"redis://ada:hunter2@", "redis://ada:hunter2@ho st", "ada:hunter2"}) {
      String text = "--throttle.url=" + url;
      Throwable one =
          assertThrows(RuntimeException.class, () -> start(Application.class, text).close());
      String all = "";
      for (; one != null; one = one.getCause()) {
        all += one;
      }
      assertTrue(all.contains("throttle.url: expected redis://"), all);
      assertFalse(all.contains("hunter2"), all);
    }
  }
}
