package redisthrottle.lettuce;

import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.netty.util.concurrent.EventExecutor;
import java.nio.channels.ClosedChannelException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
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

  /** Writes the commands: the thread of the connection, if it is known. */
  private final EventExecutor writer;

  private final Queue<Sent> queue = new ConcurrentLinkedQueue<>();

  /** The number of commands in the queue, and in the batch that is being written. */
  private final AtomicInteger waiting = new AtomicInteger();

  private final AtomicBoolean isClosing = new AtomicBoolean();

  /** Completed when the connection has closed. */
  final CompletableFuture<Void> closed = new CompletableFuture<>();

  LettuceConnection(StatefulRedisConnection<String, String> connection, EventExecutor writer) {
    this.connection = connection;
    this.writer = writer;
  }

  @Override
  public CompletionStage<@Nullable Object> send(List<String> words) {
    CommandArgs<String, String> args = new CommandArgs<>(StringCodec.UTF8);
    // As values, because the driver writes other texts as ASCII.
    args.addValues(words.subList(1, words.size()));
    // The words of the module and the library are few.
    Keyword keyword = KEYWORDS.computeIfAbsent(words.get(0), Keyword::new);
    Sent command = new Sent(keyword, args);
    queue.add(command);
    if (waiting.getAndIncrement() == 0) {
      schedule();
    }
    return command.reply;
  }

  private void schedule() {
    try {
      writer.execute(this::write);
    } catch (RejectedExecutionException e) {
      // The application has shut the driver's threads down. The driver rejects the commands.
      write();
    }
  }

  /**
   * Writes the commands of the queue in one go. All commands take this way, in the order of the
   * calls: Netty itself writes those of the connection's thread before those that other threads
   * have sent, so that a release would overtake its lease.
   */
  private void write() {
    int size = waiting.get();
    List<Sent> batch = new ArrayList<>(size);
    while (batch.size() < size) {
      batch.add(queue.remove());
    }
    try {
      connection.dispatch(batch);
    } catch (RuntimeException | Error e) {
      batch.forEach(command -> command.completeExceptionally(e));
    }
    if (waiting.addAndGet(-size) > 0) {
      schedule();
    }
  }

  private static Throwable known(Throwable error) {
    // Netty's error of a write on a channel that closed before it.
    boolean isUnwritten =
        error instanceof ClosedChannelException
            || REJECTED.contains(String.valueOf(error.getMessage()));
    return isUnwritten ? new NotSentException(error) : error;
  }

  @Override
  public void whenRead(Runnable act) {
    // The writer reads between its tasks and the timers that are due. A timer that another thread
    // sets is a task first, and runs as one if it is due by then.
    writer.execute(() -> writer.schedule(act, 0, TimeUnit.MILLISECONDS));
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

  /** A command that the driver ends once it has the reply. */
  private static final class Sent extends Command<String, String, @Nullable Object> {
    final CompletableFuture<@Nullable Object> reply = new CompletableFuture<>();

    Sent(Keyword keyword, CommandArgs<String, String> args) {
      super(keyword, new ReplyOutput(), args);
    }

    @Override
    public void complete() {
      super.complete();
      if (output.hasError()) {
        reply.completeExceptionally(new ServerErrorException(output.getError(), null));
      } else {
        reply.complete(output.get());
      }
    }

    @Override
    public boolean completeExceptionally(Throwable error) {
      super.completeExceptionally(error);
      return reply.completeExceptionally(known(error));
    }

    @Override
    public void cancel() {
      super.cancel();
      reply.completeExceptionally(new CancellationException("the driver gave the command up"));
    }
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
