package redisthrottle.spring;

import io.lettuce.core.RedisCredentials;
import io.lettuce.core.RedisCredentialsProvider;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.data.redis.autoconfigure.DataRedisConnectionDetails;
import org.springframework.boot.data.redis.autoconfigure.DataRedisConnectionDetails.Node;
import org.springframework.boot.data.redis.autoconfigure.DataRedisConnectionDetails.Standalone;
import org.springframework.boot.ssl.SslBundle;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** Reads the server's address from the connection details of Spring Boot. */
@Configuration(proxyBeanMethods = false)
@ConditionalOnClass(DataRedisConnectionDetails.class)
class DataRedisAddress {
  @Bean
  @ConditionalOnBean(DataRedisConnectionDetails.class)
  ServerAddress throttleDataRedisAddress(DataRedisConnectionDetails details) {
    SslBundle bundle = details.getSslBundle();
    List<RedisURI> uris = uris(details);
    for (RedisURI uri : uris) {
      uri.setSsl(bundle != null);
      uri.getSentinels().forEach(sentinel -> sentinel.setSsl(bundle != null));
      authenticate(uri, details.getUsername(), details.getPassword());
    }
    SslOptions ssl = bundle == null ? null : options(bundle);
    return new ServerAddress(uris, isCluster(details), ssl);
  }

  private static boolean isCluster(DataRedisConnectionDetails details) {
    return details.getSentinel() == null && details.getCluster() != null;
  }

  private static List<RedisURI> uris(DataRedisConnectionDetails details) {
    if (details.getSentinel() != null) {
      return List.of(sentinel(details.getSentinel()));
    }
    if (details.getCluster() != null) {
      return details.getCluster().getNodes().stream().map(DataRedisAddress::uri).toList();
    }
    Standalone server = details.getStandalone();
    if (details.getMasterReplica() != null || server == null) {
      throw new PropertyException(
          "throttle.url", "missing: spring.data.redis.* names no primary, no Sentinel, no cluster");
    }
    RedisURI uri = RedisURI.create(server.getHost(), server.getPort());
    uri.setDatabase(server.getDatabase());
    return List.of(uri);
  }

  private static RedisURI uri(Node node) {
    return RedisURI.create(node.host(), node.port());
  }

  private static RedisURI sentinel(DataRedisConnectionDetails.Sentinel given) {
    RedisURI uri = new RedisURI();
    uri.setSentinelMasterId(given.getMaster());
    uri.setDatabase(given.getDatabase());
    for (Node node : given.getNodes()) {
      RedisURI sentinel = uri(node);
      authenticate(sentinel, given.getUsername(), given.getPassword());
      uri.getSentinels().add(sentinel);
    }
    return uri;
  }

  private static void authenticate(RedisURI uri, @Nullable String user, @Nullable String password) {
    if (password != null) {
      RedisCredentials credentials = RedisCredentials.just(user, password);
      uri.setCredentialsProvider(RedisCredentialsProvider.from(() -> credentials));
    }
  }

  private static SslOptions options(SslBundle bundle) {
    SslOptions.Builder builder =
        SslOptions.builder()
            .keyManager(bundle.getManagers().getKeyManagerFactory())
            .trustManager(bundle.getManagers().getTrustManagerFactory());
    String[] ciphers = bundle.getOptions().getCiphers();
    if (ciphers != null) {
      builder.cipherSuites(ciphers);
    }
    String[] protocols = bundle.getOptions().getEnabledProtocols();
    if (protocols != null) {
      builder.protocols(protocols);
    }
    return builder.build();
  }
}
