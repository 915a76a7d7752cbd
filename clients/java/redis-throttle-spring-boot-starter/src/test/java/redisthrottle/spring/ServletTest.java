package redisthrottle.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.http.HttpResponse;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import redisthrottle.lettuce.Server;

/** Runs applications in Tomcat, with a server that has the module. */
class ServletTest {
  private static Server redis;

  @BeforeAll
  static void start() {
    redis = Server.withModule();
  }

  @AfterAll
  static void stop() {
    redis.close();
  }

  @RestController
  static class Controller {
    @GetMapping("/")
    String index() {
      return "hello";
    }
  }

  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  @Import(Controller.class)
  static class Application {}

  @Test
  void answers_429_to_the_eleventh_request_with_six_lines() {
    try (Program program =
        Program.start(
            WebApplicationType.SERVLET,
            Application.class,
            redis,
            "--spring.config.location=classpath:six-lines.yaml")) {
      for (int request = 1; request <= 10; request++) {
        HttpResponse<String> served = program.get("/");
        assertEquals(200, served.statusCode(), "request " + request);
        assertEquals("hello", served.body());
      }
      HttpResponse<String> denied = program.get("/");
      assertEquals(429, denied.statusCode());
      assertEquals("6", denied.headers().firstValue("Retry-After").orElseThrow());
    }
  }
}
