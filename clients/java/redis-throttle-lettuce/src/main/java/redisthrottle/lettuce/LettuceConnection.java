package redisthrottle.lettuce;

import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;
import redisthrottle.Connection;
import redisthrottle.ServerErrorException;

/** A connection of Lettuce that sends each command once. */
final class LettuceConnection implements Connection {
  private static final Map<String, Keyword> KEYWORDS = new ConcurrentHashMap<>();
  private final StatefulRedisConnection<String, String> connection;
  private final AtomicBoolean isClosing = new AtomicBoolean();

  /** Completed when the connection has closed. */
  final CompletableFuture<Void> closed = new CompletableFuture<>();

  LettuceConnection(StatefulRedisConnection<String, String> connection) {
    this.connection = connection;
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
            answer.complete(reply);
          } else if (error instanceof RedisCommandExecutionException) {
            String text = String.valueOf(error.getMessage());
            answer.completeExceptionally(new ServerErrorException(text, error));
          } else {
            answer.completeExceptionally(error);
          }
        });
    connection.dispatch(command);
    return answer;
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
