package redisthrottle.lettuce;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Assumptions;

/** A server that a test started. RL_SERVER is its program, and RL_MODULE the module. */
public final class Server implements AutoCloseable {
  public static final RedisClient CLIENT = RedisClient.create();
  final int port;
  private final Process process;
  private final Path folder;
  private StatefulRedisConnection<String, String> connection;

  private Server(int port, Process process, Path folder) {
    this.port = port;
    this.process = process;
    this.folder = folder;
  }

  /** Starts a server with the module. */
  public static Server withModule(String... arguments) {
    String path = System.getenv("RL_MODULE");
    File module = new File(path == null ? "../../../target/release/libredis_throttle.so" : path);
    lacks(module.exists(), "no module: see RL_MODULE");
    List<String> all = new ArrayList<>(List.of("--loadmodule", module.getAbsolutePath()));
    all.addAll(Arrays.asList(arguments));
    return start(all.toArray(String[]::new));
  }

  /** Skips a test without what it needs. With CI set it fails. */
  private static void lacks(boolean isThere, String what) {
    if (!isThere && System.getenv("CI") != null) {
      throw new AssertionError(what);
    }
    Assumptions.assumeTrue(isThere, what);
  }

  /** Starts a server. A configuration is the first argument. */
  static Server start(String... arguments) {
    String program = System.getenv("RL_SERVER");
    try {
      int port = freePort();
      Path folder = Files.createTempDirectory("redis-throttle");
      List<String> words = new ArrayList<>();
      words.add(program == null ? "redis-server" : program);
      boolean hasFile = arguments.length > 0 && !arguments[0].startsWith("--");
      List<String> rest = Arrays.asList(arguments).subList(hasFile ? 1 : 0, arguments.length);
      if (hasFile) {
        words.add(arguments[0]);
      }
      words.addAll(List.of("--port", Integer.toString(port), "--bind", "127.0.0.1"));
      words.addAll(List.of("--save", "", "--dir", folder.toString()));
      words.addAll(rest);
      return run(port, folder, words);
    } catch (IOException e) {
      lacks(false, "no server: see RL_SERVER");
      throw new IllegalStateException(e);
    }
  }

  /** Starts {@code redis-throttle-lab serve}, which RL_LAB names. */
  static Server lab() throws IOException {
    String path = System.getenv("RL_LAB");
    File lab = new File(path == null ? "../../../target/release/redis-throttle-lab" : path);
    lacks(lab.exists(), "no lab: see RL_LAB");
    int port = freePort();
    List<String> words = List.of(lab.getAbsolutePath(), "serve", "--listen", "127.0.0.1:" + port);
    return run(port, Files.createTempDirectory("redis-throttle"), words);
  }

  private static Server run(int port, Path folder, List<String> words) throws IOException {
    Process process =
        new ProcessBuilder(words).redirectOutput(folder.resolve("log").toFile()).start();
    Server server = new Server(port, process, folder);
    try {
      await("the server replies", () -> replies(port));
    } catch (AssertionError e) {
      server.close();
      throw e;
    }
    return server;
  }

  static int freePort() throws IOException {
    // A cluster needs the port that is 10,000 above.
    for (; ; ) {
      try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
        if (socket.getLocalPort() < 55_000) {
          return socket.getLocalPort();
        }
      }
    }
  }

  /** Returns true if a server replies to a PING, even if it requires a login first. */
  private static boolean replies(int port) {
    try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
      socket.setSoTimeout(1000);
      socket.getOutputStream().write("PING\r\n".getBytes(StandardCharsets.US_ASCII));
      String reply = new String(socket.getInputStream().readNBytes(5), StandardCharsets.US_ASCII);
      return reply.equals("+PONG") || reply.equals("-NOAU");
    } catch (IOException e) {
      return false;
    }
  }

  /** Polls until a condition is true. */
  public static void await(String what, BooleanSupplier isTrue) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (!isTrue.getAsBoolean()) {
      if (System.nanoTime() > end) {
        throw new AssertionError("not in 20 s: " + what);
      }
      try {
        Thread.sleep(5);
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
  }

  public RedisURI uri() {
    return RedisURI.create("127.0.0.1", port);
  }

  /** Sends a command, and returns its reply as text. */
  public String send(String... words) {
    if (connection == null) {
      connection = CLIENT.connect(uri());
    }
    CommandArgs<String, String> args = new CommandArgs<>(StringCodec.UTF8);
    args.addValues(Arrays.asList(words).subList(1, words.length));
    CommandOutput<String, String, Object> output = new ReplyOutput();
    LettuceConnection.Keyword keyword = new LettuceConnection.Keyword(words[0]);
    AsyncCommand<String, String, Object> command =
        new AsyncCommand<>(new Command<>(keyword, output, args));
    connection.dispatch(command);
    return String.valueOf(command.join());
  }

  /** Stops the process, or lets it go on. */
  void signal(String name) {
    try {
      new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
    } catch (IOException | InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Override
  public void close() {
    if (connection != null) {
      connection.close();
    }
    process.destroyForcibly();
    try {
      process.waitFor();
      try (var files = Files.list(folder)) {
        files.map(Path::toFile).forEach(File::delete);
      }
      Files.deleteIfExists(folder);
    } catch (IOException | InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
