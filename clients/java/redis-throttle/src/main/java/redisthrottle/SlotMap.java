package redisthrottle;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** The primaries of a cluster by slot. */
final class SlotMap {
  private static final int SLOTS = 16_384;

  private final @Nullable String[] nodes = new String[SLOTS];

  /** Reads a reply of {@code CLUSTER SLOTS}. */
  static SlotMap of(@Nullable Object reply, String from, Connector connector) {
    SlotMap map = new SlotMap();
    if (!(reply instanceof List<?> ranges)) {
      throw CommandRejectedException.notADecision();
    }
    for (Object one : ranges) {
      if (!(one instanceof List<?> range
          && range.size() >= 3
          && range.get(0) instanceof Long first
          && range.get(1) instanceof Long last
          && range.get(2) instanceof List<?> primary
          && primary.size() >= 2
          && first >= 0
          && last < SLOTS
          && first <= last)) {
        throw CommandRejectedException.notADecision();
      }
      String host = primary.get(0) instanceof String text ? text : "";
      String node = connector.translated(named(host + ":" + primary.get(1), from));
      Arrays.fill(map.nodes, first.intValue(), last.intValue() + 1, node);
    }
    return map;
  }

  /** Returns an address; an empty host is that of the node which named it. */
  static String named(String address, String from) {
    // An IPv6 address has colons of its own.
    int colon = address.lastIndexOf(':');
    boolean hasHost = colon > 0 && !address.startsWith("?:");
    if (colon < 0 || hasHost) {
      return address;
    }
    return from.substring(0, Math.max(0, from.lastIndexOf(':'))) + address.substring(colon);
  }

  @Nullable String nodeOf(String key) {
    return nodes[slotOf(key)];
  }

  Set<String> primaries() {
    Set<String> all = new LinkedHashSet<>();
    Arrays.stream(nodes).filter(Objects::nonNull).forEach(all::add);
    return all;
  }

  /** Returns the slot of a key: of the text in its first braces, if there is any. */
  static int slotOf(String key) {
    int open = key.indexOf('{');
    int close = open < 0 ? -1 : key.indexOf('}', open + 1);
    String hashed = close > open + 1 ? key.substring(open + 1, close) : key;
    int crc = 0;
    for (byte one : hashed.getBytes(StandardCharsets.UTF_8)) {
      crc ^= (one & 0xff) << 8;
      for (int bit = 0; bit < 8; bit++) {
        crc = (crc & 0x8000) == 0 ? crc << 1 : crc << 1 ^ 0x1021;
      }
    }
    return (crc & 0xffff) % SLOTS;
  }
}
