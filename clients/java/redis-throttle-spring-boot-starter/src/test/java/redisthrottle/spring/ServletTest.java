package redisthrottle.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.servlet.Filter;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.net.InetAddress;
import java.net.Socket;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.Principal;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.boot.web.servlet.ServletRegistrationBean;
import org.springframework.boot.webmvc.error.ErrorController;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.servlet.mvc.method.annotation.StreamingResponseBody;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.lettuce.Server;

/** Runs applications in Tomcat, with a server that has the module. */
class ServletTest {
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
  @Import(Errors.class)
  @RestController
  static class Application {
    static final LinkedBlockingQueue<String> STARTED = new LinkedBlockingQueue<>();
    static final LinkedBlockingQueue<String> ROWS = new LinkedBlockingQueue<>();

    @GetMapping({"/", "/pages/{name}"})
    String index(@RequestHeader(name = "X-Degraded", required = false) String degraded) {
      return degraded == null ? "hello" : "degraded";
    }

    /** Ends, in another thread, with the row that the test adds. */
    @GetMapping("/export")
    Callable<String> export() {
      STARTED.add("export");
      return ROWS::take;
    }

    @Autowired Limiter limiter;

    /** Takes a unit in the handler, or in a thread of its own. */
    @GetMapping("/once")
    String once() {
      limiter.admit(List.of(Rule.fixed("once", 1, Duration.ofHours(1)).of("ada"))).close();
      return "once";
    }

    @GetMapping("/later")
    Callable<String> later() {
      return this::once;
    }

    /** Writes as long as the client reads. */
    @GetMapping("/stream")
    StreamingResponseBody stream() {
      return out -> {
        for (; ; ) {
          out.write(new byte[64 * 1024]);
          out.flush();
        }
      };
    }

    @PostMapping("/pages/{name}")
    String change() {
      return "changed";
    }

    /** Stands for Spring Security. */
    @Bean
    FilterRegistrationBean<Filter> login() {
      FilterRegistrationBean<Filter> login =
          new FilterRegistrationBean<>(
              (request, response, chain) -> chain.doFilter(new Known(request), response));
      login.setOrder(-100);
      return login;
    }

    /** A servlet next to that of Spring MVC, as those of SOAP are. */
    @Bean
    ServletRegistrationBean<HttpServlet> reports() {
      HttpServlet reports =
          new HttpServlet() {
            @Override
            protected void doGet(HttpServletRequest request, HttpServletResponse response) {
              response.setStatus(200);
            }
          };
      return new ServletRegistrationBean<>(reports, "/reports/*");
    }

    @Bean
    Function<HttpServletRequest, String> byColour() {
      return request -> request.getHeader("X-Colour");
    }
  }

  /** Responds to errors, in a dispatch of their own. */
  @RestController
  static class Errors implements ErrorController {
    @RequestMapping("/error")
    String error(@RequestHeader(name = "X-Degraded", required = false) String degraded) {
      return degraded == null ? "an error" : "a degraded error";
    }
  }

  private static final class Known extends HttpServletRequestWrapper {
    Known(ServletRequest request) {
      super((HttpServletRequest) request);
    }

    @Override
    public Principal getUserPrincipal() {
      String user = getHeader("X-User");
      return user == null ? null : () -> user;
    }
  }

  private static Program start(String... arguments) {
    return Program.start(WebApplicationType.SERVLET, Application.class, redis, arguments);
  }

  @Test
  void responds_with_429_to_the_eleventh_request_with_six_lines() {
    try (Program program = start("--spring.config.location=classpath:six-lines.yaml")) {
      String scraped = program.assertLimitedBySixLines();
      assertTrue(
          scraped.contains("redis_throttle_remaining_ratio_bucket{rule=\"api\",le=\"0.0\"}"));
      assertEquals(
          "{\"groups\":[\"liveness\",\"readiness\"],\"status\":\"UP\"}",
          program.get("/actuator/health").body());
    }
  }

  @Test
  void takes_the_first_route_whose_path_and_methods_match() {
    try (Program program =
        start(
            "--server.servlet.context-path=/shop",
            "--spring.mvc.servlet.path=/web",
            "--throttle.prefix=routes",
            "--throttle.rules.one.algorithm=fixed",
            "--throttle.rules.one.limit=1",
            "--throttle.rules.one.window=1h",
            "--throttle.rules.two.algorithm=fixed",
            "--throttle.rules.two.limit=2 per hour",
            "--throttle.routes[0].path=/pages/a{rest}",
            "--throttle.routes[0].methods=GET",
            "--throttle.routes[0].rules=one",
            "--throttle.routes[1].path=/pages/**",
            "--throttle.routes[1].rules=two")) {
      assertEquals(200, program.get("/shop/web/pages/ab").statusCode());
      // A path that reaches the same controller in another form, and a HEAD.
      assertEquals(429, program.get("/shop/web/pages/%61b;x=1").statusCode());
      assertEquals(429, program.send("HEAD", "/shop/web/pages/ab").statusCode());
      assertEquals(200, program.get("/shop/web/").statusCode());
      String[] preflight = {"Origin", "http://a.test", "Access-Control-Request-Method", "GET"};
      assertEquals(200, program.send("OPTIONS", "/shop/web/pages/ab", preflight).statusCode());
      assertEquals(200, program.send("POST", "/shop/web/pages/ab").statusCode());
      assertEquals(200, program.send("OPTIONS", "/shop/web/pages/ab", preflight).statusCode());
      assertEquals(200, program.send("OPTIONS", "/shop/web/pages/ab").statusCode());
      assertEquals(429, program.send("POST", "/shop/web/pages/ab").statusCode());
    }
  }

  @Test
  void limits_other_servlets_by_the_path_that_chose_them() {
    try (Program program =
        start(
            "--throttle.prefix=servlets",
            "--throttle.rules.one.algorithm=fixed",
            "--throttle.rules.one.limit=1",
            "--throttle.rules.one.window=1h",
            "--throttle.routes[0].path=/reports/**",
            "--throttle.routes[0].rules=one")) {
      assertEquals(200, program.get("/reports/a").statusCode());
      for (String path :
          new String[] {"/reports/a", "//reports/a", "/%72eports/a", "/reports;x/a"}) {
        assertEquals(429, program.get(path).statusCode(), path);
      }
    }
  }

  @Test
  void limits_by_a_header_by_the_principal_and_by_a_bean() {
    try (Program program =
        start(
            "--throttle.prefix=keys",
            "--throttle.filter-order=-99",
            "--throttle.rules.one.algorithm=fixed",
            "--throttle.rules.one.limit=1",
            "--throttle.rules.one.window=1h",
            "--throttle.routes[0].path=/pages/header",
            "--throttle.routes[0].rules=one",
            "--throttle.routes[0].key=header:X-Api-Key",
            "--throttle.routes[1].path=/pages/principal",
            "--throttle.routes[1].rules=one",
            "--throttle.routes[1].key=principal",
            "--throttle.routes[2].path=/pages/bean",
            "--throttle.routes[2].rules=one",
            "--throttle.routes[2].key=byColour",
            "--throttle.routes[3].path=/pages/both",
            "--throttle.routes[3].rules=one",
            "--throttle.routes[3].key=header:X-Tenant, X-Api-Key")) {
      String[][] routes = {
        {"/pages/header", "X-Api-Key", "k1", "k2"},
        {"/pages/principal", "X-User", "ada", "bob"},
        {"/pages/bean", "X-Colour", "red", "blue"}
      };
      for (String[] route : routes) {
        assertEquals(200, program.get(route[0], route[1], route[2]).statusCode(), route[0]);
        assertEquals(429, program.get(route[0], route[1], route[2]).statusCode(), route[0]);
        assertEquals(200, program.get(route[0], route[1], route[3]).statusCode(), route[0]);
        assertEquals(400, program.get(route[0]).statusCode(), route[0]);
      }
      String[] both = {"X-Tenant", "acme", "X-Api-Key", "k1"};
      assertEquals(200, program.get("/pages/both", both).statusCode());
      assertEquals(429, program.get("/pages/both", both).statusCode());
      // The parts of one key never make the key of others.
      assertEquals(200, program.get("/pages/header", "X-Api-Key", "acme|k1").statusCode());
      assertEquals(400, program.get("/pages/both", "X-Tenant", "acme").statusCode());
      String[] twice = {"X-Tenant", "acme", "X-Tenant", "acme", "X-Api-Key", "k2"};
      assertEquals(400, program.get("/pages/both", twice).statusCode());
    }
  }

  @Test
  void hides_the_degraded_header_of_a_client_in_every_dispatch() {
    try (Program program = start("--throttle.degraded-header=X-Degraded")) {
      assertEquals("hello", program.get("/", "X-Degraded", "1").body());
      assertEquals("an error", program.get("/missing", "X-Degraded", "1").body());
    }
  }

  @Test
  void responds_to_a_denial_in_a_handler_without_a_route() {
    // None is a list of proxies, too.
    try (Program program = start("--throttle.prefix=handlers", "--throttle.trusted-proxies=none")) {
      assertEquals("once", program.get("/once").body());
      for (String path : List.of("/once", "/later")) {
        HttpResponse<String> denied = program.get(path);
        assertEquals(429, denied.statusCode(), path);
        assertEquals("3600", Program.field(denied, "Retry-After"));
        assertTrue(denied.body().contains("\"violated-policies\":[\"once\"]"), denied.body());
      }
    }
  }

  @Test
  void holds_a_lease_until_the_asynchronous_response_ends() throws Exception {
    try (Program program =
        start(
            "--throttle.rules.exports.algorithm=lease",
            "--throttle.rules.exports.limit=1",
            "--throttle.rules.exports.ttl=30s",
            "--throttle.rules.day.algorithm=fixed",
            "--throttle.rules.day.limit=2",
            "--throttle.rules.day.window=1h",
            "--throttle.routes[0].path=/export",
            "--throttle.routes[0].rules=exports,day")) {
      CompletableFuture<HttpResponse<String>> first =
          CompletableFuture.supplyAsync(() -> program.get("/export"));
      assertEquals("export", Application.STARTED.poll(60, TimeUnit.SECONDS));
      HttpResponse<String> second = program.get("/export");
      assertEquals(429, second.statusCode());
      Application.ROWS.add("row");
      HttpResponse<String> done = first.get(60, TimeUnit.SECONDS);
      assertEquals("row", done.body());
      assertEquals("\"exports\";q=1, \"day\";q=2;w=3600", Program.field(done, "RateLimit-Policy"));
      Application.ROWS.add("row");
      Server.await("the permit is free", () -> program.get("/export").statusCode() == 200);
      // The denied calls took nothing of the day.
      assertEquals(429, program.get("/export").statusCode());
    }
  }

  @Test
  void frees_a_lease_when_the_client_leaves_a_stream() throws Exception {
    // If the container ends the request in the instant in which the stream ends, Spring neither
    // completes nor dispatches it. The lease is then no longer renewed, and expires, for which the
    // clock of this server runs.
    Item exports = Rule.lease("exports", 1, Duration.ofSeconds(3)).of("127.0.0.1");
    try (Server running = Server.withModule();
        Program program =
            Program.start(
                WebApplicationType.SERVLET,
                Application.class,
                running,
                "--throttle.rules.exports.algorithm=lease",
                "--throttle.rules.exports.limit=1",
                "--throttle.rules.exports.ttl=3s",
                "--throttle.routes[0].path=/stream",
                "--throttle.routes[0].rules=exports")) {
      Limiter limiter = program.context.getBean(Limiter.class);
      try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), program.port())) {
        String head = "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n";
        socket.getOutputStream().write(head.getBytes(StandardCharsets.US_ASCII));
        assertEquals('H', socket.getInputStream().read());
        assertFalse(limiter.peek(exports).allowed());
      }
      Server.await("the permit is free", () -> limiter.peek(exports).allowed());
    }
  }
}
