package redisthrottle.spring;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.ImportAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.reactor.netty.autoconfigure.NettyReactiveWebServerAutoConfiguration;
import org.springframework.boot.tomcat.autoconfigure.servlet.TomcatServletWebServerAutoConfiguration;
import org.springframework.boot.webflux.autoconfigure.HttpHandlerAutoConfiguration;
import org.springframework.boot.webflux.autoconfigure.WebFluxAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import redisthrottle.Connector;
import redisthrottle.FakeServer;

/** Starts applications with wrong properties. */
class PropertyChecksTest {
  /** The properties that a line of the table changes. */
  private static final Map<String, String> CORRECT =
      Map.of(
          "rules.api.algorithm", "fixed",
          "rules.api.limit", "1",
          "rules.api.window", "1h",
          "routes[0].path", "/api",
          "routes[0].rules", "api");

  @Configuration(proxyBeanMethods = false)
  @ImportAutoConfiguration({
    TomcatServletWebServerAutoConfiguration.class,
    ThrottleAutoConfiguration.class,
    ThrottleServletAutoConfiguration.class
  })
  static class Application {
    @Bean
    Connector server() {
      return new FakeServer();
    }

    @Bean
    String text() {
      return "no function";
    }
  }

  @Configuration(proxyBeanMethods = false)
  @ImportAutoConfiguration({
    HttpHandlerAutoConfiguration.class,
    WebFluxAutoConfiguration.class,
    NettyReactiveWebServerAutoConfiguration.class,
    ThrottleAutoConfiguration.class,
    ThrottleWebFluxAutoConfiguration.class
  })
  static class ReactiveApplication {}

  /** Starts an application, and returns what it writes. */
  private static String failure(WebApplicationType type, Class<?> application, String... changed) {
    Map<String, String> all = new LinkedHashMap<>(CORRECT);
    for (String one : changed) {
      String[] parts = one.split("=", 2);
      all.put(parts[0], parts[1]);
    }
    List<String> arguments = new ArrayList<>(List.of("--server.port=0"));
    all.forEach((name, value) -> arguments.add("--throttle." + name + "=" + value));
    PrintStream before = System.out;
    ByteArrayOutputStream written = new ByteArrayOutputStream();
    System.setOut(new PrintStream(written, true, StandardCharsets.UTF_8));
    try {
      assertThrows(
          RuntimeException.class,
          () ->
              new SpringApplicationBuilder(application)
                  .web(type)
                  .run(arguments.toArray(String[]::new))
                  .close());
    } finally {
      System.setOut(before);
    }
    return written.toString(StandardCharsets.UTF_8);
  }

  @ParameterizedTest(name = "{0}")
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          rules.api.limit=0            | throttle.rules.api.limit: invalid limit
          rules.api.limit=many         | throttle.rules.api.limit: invalid rate: expected text
          rules.api.limit=5/month      | rules.api.limit: invalid rate: expected Rule.quota for
          rules.api.limit=5/minute     | rules.api.window: not beside the limit 5/minute
          rules.api.aligned=maybe      | Property: throttle.rules.api.aligned
          routes[0].paths=/api         | Property: throttle.routes[0].paths
          rules.api.algorithm=fixxed   | Property: throttle.rules.api.algorithm
          rules.api.period=1h          | api.period: not of this algorithm: fixed takes limit
          rules.api.color=red          | Property: throttle.rules.api.color
          rules.api.window=60          | window: expected a duration with its unit, such as 60s
          rules.api.window=${none:60}  | rules.api.window: expected a duration with its unit
          rules.b.algorithm=lease;rules.b.limit=1;rules.b.ttl=60 | rules.b.ttl: expected a duration
          rules.b.forget=60            | throttle.rules.b.forget: expected a duration with its unit
          breaker-pause=60             | throttle.breaker-pause: expected a duration with its unit
          timeout=60                   | throttle.timeout: expected a duration with its unit
          rules.api.count=all          | Perhaps throttle.rules.api.counts is meant.
          routes[0].pth=/a             | Perhaps throttle.routes[0].path is meant.
          timeouts=1s                  | Perhaps throttle.timeout is meant.
          rules.b.algorithm=sliding;rules.b.rate=3/minute | window; write limit: 3/minute
          rules.b.algorithm=gcra;rules.b.burst=3;rules.b.limit=3/minute | write rate: 3/minute
          rules.b.limit=1              | throttle.rules.b.algorithm: missing
          rules.b.algorithm=gcra       | rules.b.burst: missing: gcra takes burst, rate, period
          rules.api.local-share=2      | throttle.rules.api.local-share: invalid localShare
          rules.b.algorithm=policy;rules.b.fallback=b | throttle.rules.b.fallback: expected a rule
          rules.[b!].algorithm=policy  | throttle.rules.b!.name: invalid name
          colour=red                   | Property: throttle.colour
          timeout=2h                   | throttle.timeout: invalid timeout
          silence=2s                   | throttle.silence: invalid silence
          hmac-secret=short            | throttle.hmac-secret: invalid hmacSecret
          trusted-proxies=proxy        | throttle.trusted-proxies: invalid trustedProxies
          degraded-header=a b          | throttle.degraded-header: invalid degradedHeader
          routes[0].rules=day          | throttle.routes[0].rules: no rule day; there are [api]
          routes[0].rules=             | throttle.routes[0].rules: invalid rules: expected 1 to 16
          routes[0].rules=api,api      | routes[0].rules: invalid rules: expected no repeated
          routes[0].path=api           | throttle.routes[0].path: expected a pattern
          routes[0].path=/{a           | throttle.routes[0].path: bad pattern
          routes[0].methods=GTE        | throttle.routes[0].methods: expected some of [DELETE, GET,
          routes[0].key=nobody         | throttle.routes[0].key: expected address, principal,
          routes[0].key=text           | throttle.routes[0].key: text is no Function<
          routes[0].key=header:        | throttle.routes[0].key: invalid headers: expected one
          routes[0].key=header:A,,B    | throttle.routes[0].key: invalid headers: expected one
          routes[0].key=principal      | set throttle.filter-order to -99 or more
          routes[1].rules=api          | throttle.routes[1].path: expected a pattern
          routes[1].path=/api;routes[1].rules=api | throttle.routes[1]: never matches
          """)
  void stops_the_start_with_the_name_of_the_property(String changed, String expected) {
    String text = failure(WebApplicationType.SERVLET, Application.class, changed.split(";"));
    assertTrue(text.contains("APPLICATION FAILED TO START"), text);
    assertTrue(text.contains(expected), text);
  }

  @Test
  void stops_the_start_of_a_reactive_application_too() {
    String text =
        failure(WebApplicationType.REACTIVE, ReactiveApplication.class, "routes[0].rules=day");
    assertTrue(text.contains("throttle.routes[0].rules: no rule day"), text);
    assertTrue(text.contains("Correct the property throttle.routes[0].rules."), text);
  }
}
