package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.List;
import org.junit.jupiter.api.Test;

/** Finds peers without an address. */
class ProxiesTest {
  @Test
  void peers_without_an_address_share_a_subject_which_is_logged_once() {
    try (LogLines lines = LogLines.of("redisthrottle.middleware")) {
      Proxies none = Proxies.trust(List.of());
      assertEquals("peer:", none.client(null, List.of("192.0.2.1")));
      assertEquals("peer:", none.client("testclient", List.of()));
      assertEquals("192.0.2.7", none.client("192.0.2.7", List.of()));
      assertEquals(1, lines.records().size());
      Proxies unix = Proxies.trust(List.of("unix"));
      assertEquals("192.0.2.1", unix.client("", List.of("192.0.2.1")));
      assertNull(unix.client(null, List.of("rubbish")));
      assertEquals(1, lines.records().size());
      assertEquals("peer:", unix.client(null, List.of(" ")));
    }
  }
}
