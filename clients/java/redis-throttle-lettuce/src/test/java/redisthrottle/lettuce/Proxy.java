package redisthrottle.lettuce;

import io.lettuce.core.RedisURI;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/** Forwards connections to a server, and can fall silent, or delay or lose replies. */
public final class Proxy implements AutoCloseable {
  private final ServerSocket listener;
  private final Set<Socket> open = ConcurrentHashMap.newKeySet();
  final AtomicInteger dials = new AtomicInteger();

  /** True if the next reply is lost with its connection. */
  final AtomicBoolean loses = new AtomicBoolean();

  /** True if the next reply is cut in its middle, and its connection closed. */
  final AtomicBoolean cuts = new AtomicBoolean();

  volatile int target;

  /** The time for which replies are held. */
  public volatile long delayMs;

  /** Stops all that arrives; connections that are open then stay silent for ever. */
  volatile boolean isSilent;

  public Proxy(Server server) {
    this(server.port);
  }

  Proxy(int target) {
    this.target = target;
    try {
      listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
    run(this::accept);
  }

  public RedisURI uri() {
    return RedisURI.create("127.0.0.1", listener.getLocalPort());
  }

  int port() {
    return listener.getLocalPort();
  }

  private static void run(Runnable task) {
    Thread thread = new Thread(task, "proxy");
    thread.setDaemon(true);
    thread.start();
  }

  private void accept() {
    try {
      while (true) {
        Socket client = listener.accept();
        dials.incrementAndGet();
        Socket server = new Socket(InetAddress.getLoopbackAddress(), target);
        open.add(client);
        open.add(server);
        AtomicBoolean isDead = new AtomicBoolean();
        run(() -> forward(client, server, isDead, false));
        run(() -> forward(server, client, isDead, true));
      }
    } catch (IOException e) {
      closeAll();
    }
  }

  private void forward(Socket from, Socket to, AtomicBoolean isDead, boolean isReply) {
    byte[] buffer = new byte[1 << 16];
    try (from;
        to) {
      InputStream in = from.getInputStream();
      for (int n = in.read(buffer); n > 0; n = in.read(buffer)) {
        if (isSilent) {
          isDead.set(true);
        }
        if (isReply && loses.compareAndSet(true, false)) {
          return;
        }
        if (isReply && cuts.compareAndSet(true, false)) {
          to.getOutputStream().write(buffer, 0, n / 2);
          return;
        }
        if (isReply && delayMs > 0) {
          Thread.sleep(delayMs);
        }
        if (!isDead.get()) {
          to.getOutputStream().write(buffer, 0, n);
        }
      }
    } catch (IOException | InterruptedException e) {
      // The other direction has closed.
    }
  }

  void closeAll() {
    for (Socket one : open) {
      try {
        one.close();
      } catch (IOException e) {
        // It is closed.
      }
    }
    open.clear();
  }

  @Override
  public void close() {
    try {
      listener.close();
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
    closeAll();
  }
}
