package redisthrottle;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** An address of 4 or 16 bytes. It is read without a look-up of names. */
record Address(byte[] bytes) {
  /**
   * Reads an address without its port, brackets and zone; {@code ::ffff:a.b.c.d} is IPv4. Returns
   * null for another text.
   */
  static @Nullable Address read(String text) {
    String host = text;
    String port = null;
    int end = text.indexOf(']');
    if (text.startsWith("[") && end > 0) {
      host = text.substring(1, end);
      String rest = text.substring(end + 1);
      if (!rest.isEmpty() && !rest.startsWith(":")) {
        return null;
      }
      port = rest.isEmpty() ? null : rest.substring(1);
    } else if (text.indexOf(':') >= 0 && text.indexOf(':') == text.lastIndexOf(':')) {
      host = text.substring(0, text.indexOf(':'));
      port = text.substring(text.indexOf(':') + 1);
    }
    if (port != null && !isPort(port)) {
      return null;
    }
    byte[] bytes = bytes(withoutZone(host));
    return bytes == null ? null : new Address(unmapped(bytes));
  }

  /** Returns the address as a subject: IPv4 whole, of IPv6 the network of 64 bits. */
  String subject() {
    if (bytes.length == 4) {
      return dotted(bytes, 0);
    }
    byte[] network = Arrays.copyOf(bytes, 16);
    Arrays.fill(network, 8, 16, (byte) 0);
    return shortest(network) + "/64";
  }

  private static boolean isPort(String text) {
    return text.matches("\\d{1,5}") && Integer.parseInt(text) <= 65_535;
  }

  private static String withoutZone(String host) {
    int at = host.indexOf('%');
    return at > 0 && at < host.length() - 1 && host.indexOf(':') >= 0
        ? host.substring(0, at)
        : host;
  }

  private static byte[] unmapped(byte[] bytes) {
    if (bytes.length == 4) {
      return bytes;
    }
    for (int at = 0; at < 12; at++) {
      if (bytes[at] != (byte) (at < 10 ? 0 : 0xff)) {
        return bytes;
      }
    }
    return Arrays.copyOfRange(bytes, 12, 16);
  }

  /** Reads the bytes of an address without a port, brackets and a zone. */
  static byte @Nullable [] bytes(String text) {
    return text.indexOf(':') < 0 ? four(text) : sixteen(text);
  }

  private static byte @Nullable [] four(String text) {
    String[] parts = text.split("\\.", -1);
    byte[] bytes = new byte[4];
    if (parts.length != 4) {
      return null;
    }
    for (int at = 0; at < 4; at++) {
      if (!parts[at].matches("0|[1-9]\\d{0,2}") || Integer.parseInt(parts[at]) > 255) {
        return null;
      }
      bytes[at] = (byte) Integer.parseInt(parts[at]);
    }
    return bytes;
  }

  private static byte @Nullable [] sixteen(String text) {
    int gap = text.indexOf("::");
    if (gap >= 0 && text.indexOf("::", gap + 1) >= 0) {
      return null;
    }
    List<Byte> front = halves(gap < 0 ? text : text.substring(0, gap), gap < 0);
    List<Byte> back = gap < 0 ? List.of() : halves(text.substring(gap + 2), true);
    if (front == null || back == null) {
      return null;
    }
    int size = front.size() + back.size();
    if (gap < 0 ? size != 16 : size > 14) {
      return null;
    }
    byte[] bytes = new byte[16];
    for (int at = 0; at < front.size(); at++) {
      bytes[at] = front.get(at);
    }
    for (int at = 0; at < back.size(); at++) {
      bytes[16 - back.size() + at] = back.get(at);
    }
    return bytes;
  }

  /** Reads groups of 16 bits; the last one may be IPv4. */
  private static @Nullable List<Byte> halves(String text, boolean isEnd) {
    List<Byte> bytes = new ArrayList<>();
    if (text.isEmpty()) {
      return bytes;
    }
    String[] groups = text.split(":", -1);
    for (int at = 0; at < groups.length; at++) {
      byte[] last = isEnd && at == groups.length - 1 ? four(groups[at]) : null;
      if (last != null) {
        for (byte one : last) {
          bytes.add(one);
        }
      } else if (groups[at].matches("[0-9A-Fa-f]{1,4}")) {
        int value = Integer.parseInt(groups[at], 16);
        bytes.add((byte) (value >> 8));
        bytes.add((byte) value);
      } else {
        return null;
      }
    }
    return bytes;
  }

  private static String dotted(byte[] bytes, int from) {
    StringBuilder text = new StringBuilder();
    for (int at = from; at < from + 4; at++) {
      text.append(at == from ? "" : ".").append(bytes[at] & 0xff);
    }
    return text.toString();
  }

  /** Writes an address of IPv6 as in RFC 5952: the longest run of zeros is left out. */
  private static String shortest(byte[] bytes) {
    int[] groups = new int[8];
    for (int at = 0; at < 8; at++) {
      groups[at] = (bytes[2 * at] & 0xff) << 8 | bytes[2 * at + 1] & 0xff;
    }
    int start = -1;
    int length = 1;
    for (int at = 0; at < 8; at++) {
      int end = at;
      while (end < 8 && groups[end] == 0) {
        end++;
      }
      if (end - at > length) {
        start = at;
        length = end - at;
      }
    }
    StringBuilder text = new StringBuilder();
    for (int at = 0; at < 8; at++) {
      if (at == start) {
        text.append("::");
        at += length - 1;
        continue;
      }
      boolean isAfterGap = text.length() == 0 || text.charAt(text.length() - 1) == ':';
      text.append(isAfterGap ? "" : ":").append(Integer.toHexString(groups[at]));
    }
    return text.toString();
  }

  @Override
  public boolean equals(@Nullable Object other) {
    return other instanceof Address address && Arrays.equals(bytes, address.bytes);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(bytes);
  }
}
