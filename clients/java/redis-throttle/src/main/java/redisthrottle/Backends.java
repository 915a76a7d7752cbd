package redisthrottle;

import static redisthrottle.Errors.recovered;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * Chooses the back end: the module if the server has it, otherwise the library, as functions or as
 * a script. The choice is remembered. A search starts only when an error proves that a call did not
 * run.
 */
final class Backends {
  /** Matches the server's error for an unknown command. The library's own has no quotes. */
  private static final Pattern UNKNOWN_COMMAND =
      Pattern.compile("^ERR unknown command ['`]([^'`]*)", Pattern.CASE_INSENSITIVE);

  private static final Pattern LIBRARY_EXISTS =
      Pattern.compile("^ERR Library '.*' already exists", Pattern.CASE_INSENSITIVE);

  /**
   * The maximum number of attempts to load the library. An attempt fails if another client loads a
   * library after the version check.
   */
  private static final int LOADS_MAX = 3;

  private final Routes routes;
  private final Loop loop;
  private final Backend wanted;
  private final long timeoutNs;

  /** Null until a search has found one. */
  private @Nullable Backend choice;

  private @Nullable Shared<Backend> search;

  Backends(Routes routes, Loop loop, Options options) {
    this.routes = routes;
    this.loop = loop;
    this.wanted = options.backend;
    this.timeoutNs = options.timeout.toNanos();
    boolean isModule = wanted == Backend.AUTO || wanted == Backend.MODULE;
    choice = isModule ? Backend.MODULE : null;
  }

  /** Returns the back end in use. */
  Backend current() {
    return choice == null ? Backend.MODULE : choice;
  }

  CompletableFuture<@Nullable Object> send(Words call, Pending pending) {
    Backend chosen = choice;
    // Every server knows the commands other than the module's, so they need no back end.
    if (chosen == null && call.list().get(0).startsWith("RL.")) {
      return sendAgain(null, call, pending, 1);
    }
    Words sent = written(call, chosen);
    return recovered(
        routes.send(sent, pending),
        error -> {
          if (error instanceof NotSentException && pending.returns()) {
            // The server closed the connection while it was idle.
            return send(call, pending);
          }
          boolean isFinal = wanted == Backend.MODULE || pending.isEnded();
          if (isFinal || !didNotRun(error, sent)) {
            return failed(error);
          }
          return sendAgain(chosen, call, pending, 1);
        });
  }

  /**
   * Returns the error. After a lost connection, also makes the next call try the module first,
   * because the server may have been restarted with the module.
   */
  private CompletableFuture<@Nullable Object> failed(Throwable error) {
    Throwable known = routes.explained(error);
    if (wanted == Backend.AUTO) {
      boolean isLost =
          Errors.classified(known) instanceof UnavailableException unavailable
              && unavailable.reason() == Reason.CONNECTION;
      if (isLost || Errors.beginsWith(known, "LOADING")) {
        choice = Backend.MODULE;
      }
    }
    return CompletableFuture.failedFuture(known);
  }

  private CompletableFuture<@Nullable Object> sendAgain(
      @Nullable Backend failed, Words call, Pending pending, int left) {
    pending.searches();
    return found(failed, call)
        .thenCompose(
            found -> {
              // A caller that gave up has its result already, so its call must not count now.
              if (pending.isEnded()) {
                throw Signal.cancelled();
              }
              Words sent = written(call, found);
              return recovered(
                  routes.send(sent, pending),
                  error -> {
                    // A back end that another call found may be gone again. The error of a second
                    // repetition is final.
                    if (left == 0 || pending.isEnded() || !didNotRun(error, sent)) {
                      return failed(error);
                    }
                    return sendAgain(found, call, pending, left - 1);
                  });
            });
  }

  private static Words written(Words call, @Nullable Backend backend) {
    if (backend == null || backend == Backend.MODULE) {
      return call;
    }
    Words other = call.withoutModule() == null ? call : call.withoutModule().get();
    return other.inLibrary(backend == Backend.SCRIPT ? Library.SCRIPT_SHA1 : null);
  }

  /** Returns true if the call did not run: the server lacks its command, function or script. */
  private static boolean didNotRun(Throwable error, Words call) {
    String command = call.list().get(0);
    String text = Errors.text(error);
    if (command.equals("EVALSHA")) {
      return text.startsWith("NOSCRIPT");
    }
    if (command.startsWith("FCALL") && isNoFunction(text)) {
      return true;
    }
    if (!command.startsWith("RL.") && !command.startsWith("FCALL")) {
      return false;
    }
    Matcher unknown = UNKNOWN_COMMAND.matcher(text);
    return unknown.find() && unknown.group(1).toUpperCase(Locale.ROOT).equals(command);
  }

  private static boolean isNoFunction(String text) {
    return text.toLowerCase(Locale.ROOT).startsWith("err function not found");
  }

  /** Runs one search for all calls that need one. It may outlast the call that started it. */
  private CompletableFuture<Backend> found(@Nullable Backend failed, Words call) {
    // Another call may have found a back end since this call was sent.
    if (choice != null && choice != failed) {
      return CompletableFuture.completedFuture(choice);
    }
    if (search != null) {
      return search.join();
    }
    Shared<Backend> begun = new Shared<>();
    search = begun;
    CompletableFuture<Backend> mine = begun.join();
    Errors.begun(() -> find(failed, call))
        .whenComplete(
            (backend, error) -> {
              search = null;
              if (error != null) {
                begun.fail(Errors.cause(error));
                return;
              }
              choice = backend;
              begun.complete(backend);
            });
    return mine;
  }

  private CompletableFuture<Backend> find(@Nullable Backend failed, Words call) {
    if (wanted == Backend.AUTO && failed != Backend.MODULE) {
      return hasModule(call)
          .thenCompose(
              hasModule ->
                  hasModule ? CompletableFuture.completedFuture(Backend.MODULE) : findLibrary());
    }
    return findLibrary();
  }

  private CompletableFuture<Backend> findLibrary() {
    if (wanted == Backend.SCRIPT) {
      return loadScript();
    }
    CompletableFuture<Backend> functions =
        onPrimaries(node -> load(node, LOADS_MAX - 1)).thenApply(done -> Backend.FUNCTIONS);
    return recovered(
        functions,
        error -> {
          boolean isRefused =
              error instanceof CommandRejectedException || Errors.beginsWith(error, "READONLY");
          // The server would refuse the script to an unauthenticated client as well.
          boolean isFinal = wanted == Backend.FUNCTIONS || Errors.beginsWith(error, "NOAUTH");
          return isFinal || !isRefused ? CompletableFuture.failedFuture(error) : loadScript();
        });
  }

  private CompletableFuture<Backend> loadScript() {
    // Send EVALSHA first, because a server refuses it to an unauthenticated client. For a text as
    // long as the script, the server would close that client's connection.
    return onPrimaries(
            node ->
                recovered(
                    sent(node, "EVALSHA", Library.SCRIPT_SHA1, "0", "VERSION"),
                    error ->
                        Errors.beginsWith(error, "NOSCRIPT")
                            ? sent(node, "EVAL", Library.SCRIPT, "0", "VERSION")
                            : CompletableFuture.failedFuture(error)))
        .thenApply(done -> Backend.SCRIPT);
  }

  /**
   * Loads the function library, unless the server has the same or a newer version. A newer one
   * serves older clients too.
   */
  private CompletableFuture<@Nullable Object> load(Node node, int left) {
    CompletableFuture<@Nullable Object> version =
        recovered(
            sent(node, "FCALL", "rl_version", "0"),
            error ->
                isNoFunction(Errors.text(error))
                    ? CompletableFuture.completedFuture(null)
                    : CompletableFuture.failedFuture(error));
    return version.thenCompose(
        there -> {
          if (there != null && !Library.isOlder(there.toString(), Library.VERSION)) {
            return CompletableFuture.completedFuture(there);
          }
          // REPLACE only over an older version, so that no newer or foreign library is overwritten.
          CompletableFuture<@Nullable Object> loaded =
              there == null
                  ? sent(node, "FUNCTION", "LOAD", Library.FUNCTIONS)
                  : sent(node, "FUNCTION", "LOAD", "REPLACE", Library.FUNCTIONS);
          return recovered(
              loaded,
              error ->
                  left > 0 && LIBRARY_EXISTS.matcher(Errors.text(error)).find()
                      ? load(node, left - 1)
                      : CompletableFuture.failedFuture(error));
        });
  }

  /** Sends a command of a search to a node. */
  private static CompletableFuture<@Nullable Object> sent(Node node, String... words) {
    return classified(Routes.sendFree(node, List.of(words)));
  }

  private static CompletableFuture<@Nullable Object> classified(
      CompletableFuture<@Nullable Object> reply) {
    return recovered(reply, error -> CompletableFuture.failedFuture(Errors.classified(error)));
  }

  /** Returns true if the server has the module, even if it refuses the call. */
  private CompletableFuture<Boolean> hasModule(Words call) {
    Words probe = Words.probe(call.keys().get(0));
    return classified(routes.send(probe, null))
        .handle(
            (reply, error) -> {
              if (error == null) {
                return true;
              }
              Throwable known = Errors.cause(error);
              boolean isRejection =
                  known instanceof CommandRejectedException && !Errors.beginsWith(known, "NOAUTH");
              if (!isRejection) {
                throw (RuntimeException) known;
              }
              return !didNotRun(known, probe);
            });
  }

  /**
   * Runs an act on every primary of a cluster, because a slot may move to any of them. Fails with
   * the error of a primary that refuses. Waits at most half of the deadline for a primary that does
   * not reply.
   */
  private CompletableFuture<@Nullable Object> onPrimaries(
      Function<Node, CompletableFuture<@Nullable Object>> act) {
    return routes.primaries().thenCompose(nodes -> onAll(nodes, act));
  }

  private CompletableFuture<@Nullable Object> onAll(
      List<Node> nodes, Function<Node, CompletableFuture<@Nullable Object>> act) {
    CompletableFuture<@Nullable Object> all = new CompletableFuture<>();
    List<Throwable> errors = new ArrayList<>();
    int[] left = {nodes.size()};
    Runnable stop =
        nodes.size() == 1 ? () -> {} : loop.after(timeoutNs / 2, () -> all.complete(null));
    for (Node node : nodes) {
      act.apply(node)
          .whenComplete(
              (reply, error) -> {
                if (error != null) {
                  errors.add(Errors.cause(error));
                }
                left[0]--;
                if (left[0] == 0) {
                  stop.run();
                  end(all, errors, nodes.size());
                }
              });
    }
    return all;
  }

  private static void end(
      CompletableFuture<@Nullable Object> all, List<Throwable> errors, int nodes) {
    Throwable refusal =
        errors.stream().filter(CommandRejectedException.class::isInstance).findFirst().orElse(null);
    if (refusal != null) {
      all.completeExceptionally(refusal);
    } else if (!errors.isEmpty() && errors.size() == nodes) {
      all.completeExceptionally(errors.get(0));
    } else {
      all.complete(null);
    }
  }
}
