package redisthrottle;

import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Classifies the errors of servers and drivers. */
final class Errors {
  /** The first words of the errors of a server that cannot decide for some time. */
  private static final Set<String> PASSING =
      Set.of(
          "LOADING",
          "READONLY",
          "OOM",
          "MISCONF",
          "NOREPLICAS",
          "CLUSTERDOWN",
          "MASTERDOWN",
          "BUSY",
          "TRYAGAIN",
          "MOVED",
          "ASK");

  /**
   * Matches the errors of a user who lacks a right inside of the library. Servers begin them with
   * ERR instead of NOPERM.
   */
  private static final Pattern RIGHTS_IN_LIBRARY =
      Pattern.compile("^ERR (ACL failure in script|The user executing the script can't)");

  private Errors() {}

  /** Returns the error of a call after the end of its limiter. */
  static IllegalStateException closed() {
    return new IllegalStateException("the limiter is closed");
  }

  /** Returns the error inside of those that futures add. */
  static Throwable cause(Throwable error) {
    Throwable inner = error;
    while ((inner instanceof CompletionException || inner instanceof ExecutionException)
        && inner.getCause() != null) {
      inner = inner.getCause();
    }
    return inner;
  }

  /**
   * Returns an error as a rejection or an {@link UnavailableException}. Exceptions of the limiter
   * itself stay.
   */
  static RuntimeException classified(Throwable error) {
    Throwable inner = cause(error);
    if (inner instanceof ServerErrorException reply) {
      return ofReply(reply);
    }
    if (inner instanceof UnavailableException
        || inner instanceof CommandRejectedException
        || inner instanceof CancellationException
        || inner instanceof DeniedException
        || inner instanceof IllegalStateException
        || inner instanceof InvalidArgumentException) {
      return (RuntimeException) inner;
    }
    if (inner instanceof NotSentException) {
      return UnavailableException.unsent(Reason.CONNECTION, "the connection closed", inner);
    }
    String text = inner.getMessage() == null ? inner.getClass().getName() : inner.getMessage();
    return UnavailableException.sent(Reason.CONNECTION, text, inner);
  }

  private static RuntimeException ofReply(ServerErrorException reply) {
    String text = String.valueOf(reply.getMessage());
    text = text.startsWith("-") ? text.substring(1) : text;
    String kind = firstWord(text);
    if (PASSING.contains(kind) || text.startsWith("ERR max number of clients")) {
      return UnavailableException.sent(Reason.SERVER, text, reply);
    }
    if (RIGHTS_IN_LIBRARY.matcher(text).find()) {
      kind = "NOPERM";
    }
    return new CommandRejectedException(kind, text, reply);
  }

  /**
   * Returns the error of a driver: that of a reply, or of a command that was not sent, as it is,
   * others as a lost connection.
   */
  static RuntimeException ofDriver(Throwable error) {
    Throwable inner = cause(error);
    if (inner instanceof ServerErrorException || inner instanceof NotSentException) {
      return (RuntimeException) inner;
    }
    String text = inner.getMessage() == null ? inner.getClass().getName() : inner.getMessage();
    return UnavailableException.sent(Reason.CONNECTION, text, inner);
  }

  /** Returns the error of a dial as one of a call that was not sent. */
  static RuntimeException ofDial(Throwable error) {
    RuntimeException known = classified(error);
    return known instanceof UnavailableException unavailable ? unavailable.unsent() : known;
  }

  /**
   * Returns an error with the stack trace of this thread, so that it names the line of the program
   * that called: the limiter's thread created the original, which other callers may have too.
   */
  static RuntimeException traced(RuntimeException error) {
    if (error instanceof UnavailableException unavailable) {
      return unavailable.traced();
    }
    if (error instanceof CommandRejectedException rejected) {
      return rejected.traced();
    }
    if (error instanceof DeniedException denied) {
      return new DeniedException(denied.decision());
    }
    boolean isClosed = error.getClass() == IllegalStateException.class;
    return isClosed ? new IllegalStateException(error.getMessage(), error.getCause()) : error;
  }

  private static String firstWord(String text) {
    int space = text.indexOf(' ');
    return space < 0 ? text : text.substring(0, space);
  }

  /** Returns true if a server's error begins with one of the words. */
  static boolean beginsWith(Throwable error, String... words) {
    String kind = firstWord(text(error));
    for (String word : words) {
      if (kind.equals(word)) {
        return true;
      }
    }
    return false;
  }

  /** Returns the server's text of an error; empty for another error. */
  static String text(Throwable error) {
    Throwable inner = cause(error);
    boolean isReply =
        inner instanceof ServerErrorException
            || inner instanceof CommandRejectedException
            || inner instanceof UnavailableException unavailable
                && unavailable.reason() == Reason.SERVER;
    return isReply ? String.valueOf(inner.getMessage()) : "";
  }

  static boolean mayHaveRun(@Nullable Throwable error) {
    return error instanceof UnavailableException unavailable && unavailable.mayHaveRun();
  }

  /** Begins an act. What it throws, and null in place of a future, is the error of the result. */
  static <T> CompletionStage<? extends T> begun(
      Supplier<? extends CompletionStage<? extends T>> act) {
    try {
      return Objects.requireNonNull(act.get(), "no future");
    } catch (RuntimeException | Error e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  /** Returns a future that continues with another one after an error. */
  static <T> CompletableFuture<T> recovered(
      CompletableFuture<T> first, Function<Throwable, CompletableFuture<T>> other) {
    return first.exceptionallyCompose(error -> other.apply(cause(error)));
  }
}
