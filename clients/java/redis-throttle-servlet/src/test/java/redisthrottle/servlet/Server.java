package redisthrottle.servlet;

import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Assumptions;

/** A server with the module. RL_SERVER is its program, and RL_MODULE the module. */
record Server(int port, Process process, Path folder) implements AutoCloseable {
  static Server start() throws IOException {
    String path = System.getenv("RL_MODULE");
    File module = new File(path == null ? "../../../target/release/libredis_throttle.so" : path);
    if (!module.exists() && System.getenv("CI") != null) {
      throw new AssertionError("no module: see RL_MODULE");
    }
    Assumptions.assumeTrue(module.exists(), "no module: see RL_MODULE");
    String program = System.getenv("RL_SERVER");
    int port;
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = socket.getLocalPort();
    }
    Path folder = Files.createTempDirectory("redis-throttle");
    ProcessBuilder builder =
        new ProcessBuilder(
            program == null ? "redis-server" : program,
            "--port",
            Integer.toString(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            folder.toString(),
            "--loadmodule",
            module.getAbsolutePath());
    Process process = builder.redirectOutput(folder.resolve("log").toFile()).start();
    Server server = new Server(port, process, folder);
    try {
      await("the server answers", () -> answers(port));
    } catch (AssertionError e) {
      server.close();
      throw e;
    }
    return server;
  }

  private static boolean answers(int port) {
    try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
      socket.setSoTimeout(1000);
      socket.getOutputStream().write("PING\r\n".getBytes(StandardCharsets.US_ASCII));
      return new String(socket.getInputStream().readNBytes(5), StandardCharsets.US_ASCII)
          .equals("+PONG");
    } catch (IOException e) {
      return false;
    }
  }

  /** Polls until a condition is true. */
  static void await(String what, BooleanSupplier isTrue) {
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

  @Override
  public void close() throws IOException {
    process.destroyForcibly().onExit().join();
    Files.deleteIfExists(folder.resolve("log"));
    Files.deleteIfExists(folder);
  }
}
