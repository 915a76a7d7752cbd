package redisthrottle.pages;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.context.support.GenericApplicationContext;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import redisthrottle.servlet.ThrottleFilter;
import redisthrottle.spring.ThrottleAutoConfiguration;
import redisthrottle.spring.ThrottleServletAutoConfiguration;

/** A new application of Spring Boot with one page, in Tomcat at a free port. */
final class SpringProgram implements AutoCloseable {
  private final ConfigurableApplicationContext context;
  private final HttpClient http = HttpClient.newHttpClient();

  private SpringProgram(SpringApplicationBuilder builder, String... arguments) {
    List<String> all = new ArrayList<>(List.of(arguments));
    all.addAll(
        List.of("--server.port=0", "--logging.level.root=warn", "--spring.main.banner-mode=off"));
    context = builder.run(all.toArray(String[]::new));
  }

  /** Starts an application with a configuration and no code. */
  static SpringProgram configured(Path yaml) {
    return new SpringProgram(
        new SpringApplicationBuilder(Application.class),
        "--spring.config.location=" + yaml.toUri(),
        "--throttle.timeout=1m");
  }

  /** Starts an application without the starter, whose requests pass a filter. */
  static SpringProgram filtered(ThrottleFilter filter) {
    List<String> without =
        List.of(
            ThrottleAutoConfiguration.class.getName(),
            ThrottleServletAutoConfiguration.class.getName());
    return new SpringProgram(
        new SpringApplicationBuilder(Application.class)
            .initializers(
                context ->
                    ((GenericApplicationContext) context)
                        .registerBean(
                            FilterRegistrationBean.class,
                            () -> new FilterRegistrationBean<>(filter))),
        "--spring.autoconfigure.exclude=" + String.join(",", without));
  }

  @RestController
  static class Page {
    @GetMapping({"/", "/api/a"})
    String index() {
      return "here";
    }
  }

  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  @Import(Page.class)
  static class Application {}

  void assertServed(String... headers) {
    HttpResponse<String> response = get(headers);
    assertEquals(200, response.statusCode());
    assertEquals("here", response.body());
  }

  /** Asserts that ten requests are served and the next is denied. */
  void assertLimited(String... headers) {
    for (int request = 1; request <= 10; request++) {
      assertServed(headers);
    }
    HttpResponse<String> denied = get(headers);
    assertEquals(429, denied.statusCode());
    assertEquals("\"api\";q=10;w=60", denied.headers().firstValue("RateLimit-Policy").orElse(""));
  }

  private HttpResponse<String> get(String... headers) {
    String port = context.getEnvironment().getProperty("local.server.port");
    HttpRequest.Builder request =
        HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/api/a"));
    if (headers.length > 0) {
      request.headers(headers);
    }
    try {
      return http.send(request.build(), HttpResponse.BodyHandlers.ofString());
    } catch (IOException | InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Override
  public void close() {
    context.close();
  }
}
