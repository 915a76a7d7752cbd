package example;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.web.server.servlet.context.ServletWebServerInitializedEvent;
import org.springframework.context.event.EventListener;
import org.springframework.core.env.Environment;

/**
 * A service with limits: per client address and per API key, for pages, logins and a chat.
 *
 * <pre>REDIS_URL=redis://127.0.0.1:7777 PORT=8080 mvn spring-boot:run</pre>
 */
@SpringBootApplication
public class App {
  private final Environment environment;

  App(Environment environment) {
    this.environment = environment;
  }

  /** Starts the service. */
  public static void main(String[] arguments) {
    SpringApplication.run(App.class, arguments);
  }

  @EventListener
  void listens(ServletWebServerInitializedEvent event) {
    String host = environment.getRequiredProperty("server.address");
    System.out.println("listening on http://" + host + ":" + event.getWebServer().getPort());
  }
}
