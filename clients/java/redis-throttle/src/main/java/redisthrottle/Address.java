package redisthrottle;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** An address of 4 or 16 bytes. It is read without a look-up of names. */
record Address(byte[] bytes) {
  /** The first 96 bits of the addresses that NAT64 gives to IPv4, of RFC 6052. */
  private static final byte[] NAT64 = {0, 0x64, (byte) 0xff, (byte) 0x9b, 0, 0, 0, 0, 0, 0, 0, 0};

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
    return readHost(host);
  }

  /** Reads an address without a port and brackets; otherwise as {@link #read} does. */
  static @Nullable Address readHost(String host) {
    byte[] bytes = bytes(withoutZone(host));
    return bytes == null ? null : new Address(isMapped(bytes) ? lastFour(bytes) : bytes);
  }

  /**
   * Returns the address as a subject: IPv4 whole, of IPv6 the network of 64 bits. An address in
   * {@code 64:ff9b::/96} is that of an IPv4 client behind NAT64.
   */
  String subject() {
    if (bytes.length == 4) {
      return dotted(bytes);
    }
    if (Arrays.equals(bytes, 0, 12, NAT64, 0, 12)) {
      return dotted(lastFour(bytes));
    }
    byte[] network = Arrays.copyOf(bytes, 16);
    Arrays.fill(network, 8, 16, (byte) 0);
    return shortest(network) + "/64";
  }

  private static boolean isPort(String text) {
    return text.matches("\\d{1,5}") && Integer.parseInt(text) <= 65_535;
  }

  /** Cuts the zone of IPv6. In another text the percent sign stays, which no address has. */
  private static String withoutZone(String host) {
    int at = host.indexOf('%');
    boolean hasZone = at > 0 && at < host.length() - 1 && host.indexOf('%', at + 1) < 0;
    return hasZone && host.lastIndexOf(':', at) >= 0 ? host.substring(0, at) : host;
  }

  /** Returns true for IPv4 as IPv6 writes it: {@code ::ffff:a.b.c.d}. */
  static boolean isMapped(byte[] bytes) {
    return bytes.length == 16 && Arrays.equals(bytes, mapped(lastFour(bytes)));
  }

  /** Returns the IPv4 address at the end of an address of IPv6. */
  static byte[] lastFour(byte[] bytes) {
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
    String last = text.substring(text.lastIndexOf(':') + 1);
    boolean isEnd = last.matches("[0-9A-Fa-f]{0,4}") || four(last) != null;
    if (!isEnd || !text.matches("([0-9A-Fa-f]{0,4}:)+[^:]*")) {
      return null;
    }
    byte[] bytes;
    try {
      // A text with a colon is never looked up.
      bytes = InetAddress.getByName(text).getAddress();
    } catch (UnknownHostException e) {
      return null;
    }
    return bytes.length == 16 ? bytes : mapped(bytes);
  }

  /** Returns an address of IPv4 as IPv6 writes it. */
  private static byte[] mapped(byte[] four) {
    byte[] bytes = new byte[16];
    Arrays.fill(bytes, 10, 12, (byte) 0xff);
    System.arraycopy(four, 0, bytes, 12, 4);
    return bytes;
  }

  private static String dotted(byte[] four) {
    return (four[0] & 0xff)
        + "."
        + (four[1] & 0xff)
        + "."
        + (four[2] & 0xff)
        + "."
        + (four[3] & 0xff);
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
}
