package redisthrottle.gateway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static redisthrottle.gateway.GatewayTest.field;

import java.net.http.HttpResponse;
import org.junit.jupiter.api.Test;
import redisthrottle.lettuce.Server;

/** A class of its own: the end of a gateway ends the event loops of all in the process. */
class OutageTest {
  @Test
  void responds_with_503_and_retry_after_without_a_server_if_the_rule_denies() {
    Server gone = Server.withModule();
    String[] closed = {"throttle.rate", "10", "throttle.on-error", "deny"};
    try (Gateway failing =
        new Gateway(gone.uri())
            .route("closed", closed)
            .route("open", "throttle.rate", "10", "throttle.spring-headers", "true")) {
      failing.start();
      assertEquals(204, failing.get("closed", "ada").statusCode());
      gone.close();
      HttpResponse<String> response = failing.get("closed", "ada");
      assertEquals(503, response.statusCode());
      assertEquals("1", field(response, "Retry-After"));
      assertEquals("no-store", field(response, "Cache-Control"));
      assertEquals("", field(response, "RateLimit"));
      assertFalse(response.body().contains("ada"));
      assertEquals("application/problem+json", field(response, "Content-Type"));
      assertTrue(response.body().contains("\"status\":503"), response.body());
      HttpResponse<String> open = failing.get("open", "ada");
      assertEquals(204, open.statusCode());
      assertEquals("-1", field(open, "X-RateLimit-Remaining"));
      assertEquals("10", field(open, "X-RateLimit-Burst-Capacity"));
      assertEquals(2, failing.served.get());
    } finally {
      gone.close();
    }
  }
}
