package redisthrottle.lettuce;

import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.channels.ClosedChannelException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;
import redisthrottle.Connection;
import redisthrottle.NotSentException;
import redisthrottle.ServerErrorException;

/** A connection of Lettuce that sends each command once. */
final class LettuceConnection implements Connection {
  private static final Map<String, Keyword> KEYWORDS = new ConcurrentHashMap<>();

  /** The driver's errors of commands that it rejects before it writes them. */
  private static final Set<String> REJECTED =
      Set.of("Currently not connected. Commands are rejected.", "Connection is closed");

  private final StatefulRedisConnection<String, String> connection;

  /** Writes the commands that the connection's own thread sends. */
  private final Executor aside;

  /** The number of commands that wait for {@code aside}. */
  private final AtomicInteger waiting = new AtomicInteger();

  /** The thread that reads the connection. It completes the dial, too. */
  private volatile Thread reader = Thread.currentThread();

  private final AtomicBoolean isClosing = new AtomicBoolean();

  /** Completed when the connection has closed. */
  final CompletableFuture<Void> closed = new CompletableFuture<>();

  LettuceConnection(StatefulRedisConnection<String, String> connection, Executor aside) {
    this.connection = connection;
    this.aside = aside;
  }

  @Override
  public CompletionStage<@Nullable Object> send(List<String> words) {
    CommandArgs<String, String> args = new CommandArgs<>(StringCodec.UTF8);
    // As values, because the driver writes other texts as ASCII.
    args.addValues(words.subList(1, words.size()));
    // The words of the module and the library are few.
    Keyword keyword = KEYWORDS.computeIfAbsent(words.get(0), Keyword::new);
    AsyncCommand<String, String, @Nullable Object> command =
        new AsyncCommand<>(new Command<>(keyword, new ReplyOutput(), args));
    CompletableFuture<@Nullable Object> answer = new CompletableFuture<>();
    command.whenComplete(
        (reply, error) -> {
          if (error == null) {
            reader = Thread.currentThread();
            answer.complete(reply);
          } else {
            answer.completeExceptionally(known(error));
          }
        });
    dispatch(command);
    return answer;
  }

  private static Throwable known(Throwable error) {
    String text = String.valueOf(error.getMessage());
    if (error instanceof RedisCommandExecutionException) {
      return new ServerErrorException(text, error);
    }
    // Netty's error of a write on a channel that closed before it.
    boolean isUnwritten = error instanceof ClosedChannelException || REJECTED.contains(text);
    return isUnwritten ? new NotSentException(error) : error;
  }

  /**
   * Writes a command after the earlier ones. Netty writes those of the reader at once, before those
   * that other threads have queued, so that a release would overtake its lease.
   */
  private void dispatch(AsyncCommand<String, String, @Nullable Object> command) {
    if (Thread.currentThread() != reader && waiting.get() == 0) {
      connection.dispatch(command);
      return;
    }
    waiting.incrementAndGet();
    aside.execute(
        () -> {
          try {
            connection.dispatch(command);
          } catch (RuntimeException e) {
            command.completeExceptionally(e);
          } finally {
            waiting.decrementAndGet();
          }
        });
  }

  @Override
  public boolean isOpen() {
    return connection.isOpen();
  }

  @Override
  public void close() {
    // The driver logs a warning for a connection that is closed.
    if (!isClosing.compareAndSet(false, true)) {
      return;
    }
    if (!connection.isOpen()) {
      closed.complete(null);
      return;
    }
    connection.closeAsync().whenComplete((done, error) -> closed.complete(null));
  }

  /** The name of a command. */
  static final class Keyword implements ProtocolKeyword {
    private final String name;
    private final byte[] bytes;

    Keyword(String name) {
      this.name = name;
      this.bytes = name.getBytes(StandardCharsets.US_ASCII);
    }

    @Override
    public byte[] getBytes() {
      return bytes;
    }

    @Override
    @SuppressWarnings("deprecation")
    public String name() {
      return name;
    }

    @Override
    public String toString() {
      return name;
    }
  }
}
