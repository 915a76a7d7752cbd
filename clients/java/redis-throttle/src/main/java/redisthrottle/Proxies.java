package redisthrottle;

import static redisthrottle.Checks.invalid;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/** The trusted proxies of a service. They find the address of a client. */
public final class Proxies {
  private static final System.Logger LOG = System.getLogger("redisthrottle.middleware");

  private final AtomicBoolean isLogged = new AtomicBoolean();
  private final List<Network> networks = new ArrayList<>();
  private final boolean trustsUnix;

  private Proxies(List<String> given) {
    boolean unix = false;
    for (String one : given) {
      if ("unix".equals(one)) {
        unix = true;
        continue;
      }
      Network network = one == null ? null : Network.read(one);
      if (network == null) {
        throw invalid("trustedProxies", "addresses or networks such as 10.0.0.0/8");
      }
      networks.add(network);
    }
    trustsUnix = unix;
  }

  /**
   * Returns the proxies with these addresses and networks, such as {@code 10.0.0.0/8}; {@code unix}
   * is a peer without an address. Mapped addresses such as {@code ::ffff:10.0.0.1} are IPv4.
   */
  public static Proxies trust(List<String> networks) {
    return new Proxies(Checks.present("trustedProxies", networks));
  }

  /**
   * Returns a client's address as a subject: that of the peer or, behind a trusted proxy, the
   * rightmost address of the {@code X-Forwarded-For} fields that is not trusted. The leftmost can
   * be anything that the client wrote. IPv6 is cut to its /64, which belongs to one client; an
   * address in {@code 64:ff9b::/96} is that of the IPv4 client behind NAT64. Returns null if there
   * is no address, or if a trusted proxy sends an entry that is no address.
   *
   * @param peer the address of the peer; null or empty for a Unix socket
   * @param forwarded the {@code X-Forwarded-For} fields, in order
   */
  public @Nullable String subject(@Nullable String peer, List<String> forwarded) {
    boolean isUnix = peer == null || peer.isEmpty();
    Address from = isUnix ? null : Address.read(peer);
    boolean isTrusted = isUnix ? trustsUnix : from != null && trusts(from);
    String joined = String.join(",", Checks.present("forwarded", forwarded));
    if (isTrusted && !trimmed(joined).isEmpty()) {
      String[] entries = joined.split(",", -1);
      for (int at = entries.length - 1; at >= 0; at--) {
        from = Address.read(trimmed(entries[at]));
        if (from == null || !trusts(from)) {
          break;
        }
      }
    }
    return from == null ? null : from.subject();
  }

  /**
   * Returns the subject of a client: its address as {@link #subject} does, or {@code peer:} for all
   * peers that have no address, such as a Unix socket that is no trusted proxy: its name would be
   * the client's choice. The first such peer is logged. Returns null if a trusted proxy sends an
   * entry that is no address.
   *
   * @param peer the address of the peer, or its name; null or empty for a Unix socket
   * @param forwarded the {@code X-Forwarded-For} fields, in order
   */
  public @Nullable String client(@Nullable String peer, List<String> forwarded) {
    String name = peer == null ? "" : peer;
    String joined = String.join(",", Checks.present("forwarded", forwarded));
    boolean isForwarded = name.isEmpty() && trustsUnix && !trimmed(joined).isEmpty();
    if (isForwarded || Address.read(name) != null) {
      return subject(peer, forwarded);
    }
    if (isLogged.compareAndSet(false, true)) {
      LOG.log(
          System.Logger.Level.WARNING,
          "redis-throttle: a peer has no address, so its requests share one limit. Trust the proxy"
              + " unix if it is one on a Unix socket, or set a key.");
    }
    return "peer:";
  }

  private boolean trusts(Address address) {
    return networks.stream().anyMatch(network -> network.contains(address));
  }

  private static String trimmed(String text) {
    int begin = 0;
    int end = text.length();
    while (begin < end && isSpace(text.charAt(begin))) {
      begin++;
    }
    while (end > begin && isSpace(text.charAt(end - 1))) {
      end--;
    }
    return text.substring(begin, end);
  }

  private static boolean isSpace(char c) {
    return c == ' ' || c == '\t';
  }

  /** A network: the leading bits of an address. */
  private record Network(byte[] bytes, int bits) {
    /**
     * Reads an address or a network. A mapped one is IPv4. Returns null for another text, a network
     * that has a zone, and one of mapped addresses that reaches beyond them.
     */
    static @Nullable Network read(String text) {
      int slash = text.indexOf('/');
      if (slash < 0) {
        Address address = Address.readHost(text);
        return address == null ? null : new Network(address.bytes(), address.bytes().length * 8);
      }
      byte[] bytes = Address.bytes(text.substring(0, slash));
      String length = text.substring(slash + 1);
      if (bytes == null || !length.matches("0|[1-9]\\d{0,2}")) {
        return null;
      }
      int bits = Integer.parseInt(length);
      if (bits > bytes.length * 8) {
        return null;
      }
      if (!Address.isMapped(bytes)) {
        return new Network(bytes, bits);
      }
      return bits < 96 ? null : new Network(Address.lastFour(bytes), bits - 96);
    }

    boolean contains(Address address) {
      byte[] other = address.bytes();
      if (other.length != bytes.length) {
        return false;
      }
      for (int bit = 0; bit < bits; bit++) {
        int mask = 0x80 >> bit % 8;
        if ((bytes[bit / 8] & mask) != (other[bit / 8] & mask)) {
          return false;
        }
      }
      return true;
    }
  }
}
