package redisthrottle.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCredentials;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.publisher.Mono;
import redisthrottle.Limiter;
import redisthrottle.Reason;
import redisthrottle.Rule;
import redisthrottle.Source;

/** Connects by TLS, with credentials that change, and to IPv6 addresses. */
class TransportTest {
  private static final Duration PATIENT = Duration.ofMinutes(1);
  private static final Rule API = Rule.gcra("api", 1000, 1, Duration.ofHours(1));

  private static Limiter limiter(RedisClient client, RedisURI uri) {
    return Limiter.builder(LettuceConnector.of(client, uri))
        .timeout(PATIENT)
        .breaker(5, Duration.ofMillis(50))
        .build();
  }

  @Test
  void decides_over_tls_if_the_certificate_is_trusted(@TempDir Path folder) throws Exception {
    Path certificate = folder.resolve("certificate.pem");
    Path key = folder.resolve("key.pem");
    makeCertificate(folder.resolve("store"), certificate, key);
    int port = Server.freePort();
    RedisURI uri = RedisURI.create("127.0.0.1", port);
    uri.setSsl(true);
    String file = certificate.toString();
    try (Server server =
            Server.withModule(
                "--tls-port",
                Integer.toString(port),
                "--tls-auth-clients",
                "no",
                "--tls-cert-file",
                file,
                "--tls-ca-cert-file",
                file,
                "--tls-key-file",
                key + "");
        RedisClient trusting = RedisClient.create(Server.CLIENT.getResources());
        Limiter plain = limiter(Server.CLIENT, uri)) {
      SslOptions trusts =
          SslOptions.builder().trustManager(SslOptions.Resource.from(certificate.toFile())).build();
      trusting.setOptions(ClientOptions.builder().sslOptions(trusts).build());
      try (Limiter limiter = limiter(trusting, uri)) {
        assertEquals(999, limiter.check(API.of("a")).remaining());
        server.send("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
        Server.await("a decision", () -> limiter.check(API.of("a")).source() == Source.SERVER);
      }
      assertEquals(Reason.CONNECTION, plain.check(API.of("a")).reason());
    }
  }

  /** Makes a certificate of 127.0.0.1 with the JDK's keytool. */
  private static void makeCertificate(Path store, Path certificate, Path key) throws Exception {
    String tool = Path.of(System.getProperty("java.home"), "bin", "keytool").toString();
    String words =
        " -genkeypair -alias a -keyalg RSA -dname CN=localhost -ext san=ip:127.0.0.1"
            + " -storetype PKCS12 -storepass secret -keystore ";
    Process process = new ProcessBuilder((tool + words + store).split(" ")).start();
    assertEquals(0, process.waitFor());
    KeyStore keys = KeyStore.getInstance(store.toFile(), "secret".toCharArray());
    write(certificate, "CERTIFICATE", keys.getCertificate("a").getEncoded());
    write(key, "PRIVATE KEY", keys.getKey("a", "secret".toCharArray()).getEncoded());
  }

  private static void write(Path file, String type, byte[] bytes) throws IOException {
    String text = Base64.getMimeEncoder().encodeToString(bytes);
    String pem = "-----BEGIN " + type + "-----\n" + text + "\n-----END " + type + "-----\n";
    Files.writeString(file, pem);
  }

  @Test
  void logs_in_with_the_credentials_of_the_moment() {
    AtomicReference<String> password = new AtomicReference<>("one");
    try (Server server = Server.withModule()) {
      server.send("ACL", "SETUSER", "app", "on", ">one", "~rl:*", "+@all");
      RedisURI uri = server.uri();
      uri.setCredentialsProvider(
          () -> Mono.fromSupplier(() -> RedisCredentials.just("app", password.get())));
      try (Limiter limiter = limiter(Server.CLIENT, uri)) {
        assertEquals(Source.SERVER, limiter.check(API.of("a")).source());
        password.set("two");
        server.send("ACL", "SETUSER", "app", "resetpass", ">two");
        server.send("CLIENT", "KILL", "USER", "app");
        Server.await("a decision", () -> limiter.check(API.of("a")).source() == Source.SERVER);
        assertEquals(0, limiter.counters().rejected());
      }
    }
  }

  @Test
  void reaches_the_ipv6_addresses_of_a_cluster() {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName("::1"))) {
      Assumptions.assumeTrue(socket.isBound());
    } catch (IOException e) {
      Assumptions.abort("no IPv6");
    }
    try (Server server =
            Server.withModule(
                "--bind",
                "127.0.0.1",
                "::1",
                "--cluster-enabled",
                "yes",
                "--cluster-announce-ip",
                "::1");
        RedisClusterClient client = RedisClusterClient.create(server.uri())) {
      server.send("CLUSTER", "ADDSLOTSRANGE", "0", "16383");
      Server.await(
          "the cluster forms", () -> server.send("CLUSTER", "INFO").contains("cluster_state:ok"));
      for (String seed : List.of("127.0.0.1", "::1")) {
        LettuceConnector connector =
            LettuceConnector.ofCluster(client, List.of(RedisURI.create(seed, server.port)));
        try (Limiter limiter = Limiter.builder(connector).timeout(PATIENT).build()) {
          assertEquals(Source.SERVER, limiter.check(API.of("a")).source());
          assertTrue(server.send("CLIENT", "LIST").contains("laddr=[::1]:" + server.port));
        }
      }
    }
  }
}
