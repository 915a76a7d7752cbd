package redisthrottle.spring;

import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The address of the server.
 *
 * @param uris the server, or some nodes of a cluster
 * @param ssl the keys and certificates of TLS; null for those of the JVM
 */
record ServerAddress(List<RedisURI> uris, boolean isCluster, @Nullable SslOptions ssl) {
  private static final String FORMS =
      "expected redis://user:password@host:port, rediss:// with TLS, or redis-sentinel://";

  /** Returns the address of the properties; null without one. */
  static @Nullable ServerAddress of(ThrottleProperties properties) {
    String url = properties.url();
    List<String> urls = properties.urls();
    if (url != null && !urls.isEmpty()) {
      throw new PropertyException("throttle.urls", "expected either throttle.url or throttle.urls");
    }
    if (url != null) {
      return new ServerAddress(List.of(read("throttle.url", url)), false, null);
    }
    if (urls.isEmpty()) {
      return null;
    }
    List<RedisURI> nodes = urls.stream().map(one -> read("throttle.urls", one)).toList();
    return new ServerAddress(nodes, true, null);
  }

  /** Reads an address. The error does not have it, because there may be a password in it. */
  private static RedisURI read(String property, String text) {
    RedisURI uri = null;
    try {
      uri = RedisURI.create(text);
    } catch (IllegalArgumentException e) {
      // No address of the driver.
    }
    boolean hasServer =
        uri != null
            && (uri.getHost() != null || uri.getSocket() != null || !uri.getSentinels().isEmpty());
    if (!hasServer || !text.contains("://")) {
      throw new PropertyException(property, FORMS);
    }
    return uri;
  }
}
