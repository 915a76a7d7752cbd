package redisthrottle;

import java.util.List;
import java.util.concurrent.CompletionStage;
import org.jspecify.annotations.Nullable;

/** A connection, which carries many calls at a time. Its methods do not block. */
public interface Connection {
  /**
   * Sends a command once, never again. The result is a {@link Long}, a {@link String}, null, or a
   * {@link List} of these; it fails with a {@link ServerErrorException} for an error reply, with a
   * {@link NotSentException} if the connection closed before the command was written, and with any
   * other exception if the connection is lost. Replies come in the order of the commands.
   */
  CompletionStage<@Nullable Object> send(List<String> words);

  /** Returns true if the connection can carry calls. */
  boolean isOpen();

  /**
   * Runs an act once the replies that have arrived were read. A limiter calls it before it gives up
   * waiting, because a busy process may not have read a reply that is there.
   */
  default void whenRead(Runnable act) {
    act.run();
  }

  /** Closes the connection at once, which fails the calls on it. It may be called again. */
  void close();
}
