package redisthrottle;

import org.jspecify.annotations.Nullable;

/** A caller that waits for a command, and may have given up. */
interface Waiting {
  /** Returns true if the caller no longer waits. Its command is then not sent. */
  boolean isEnded();

  /** Returns the deadline. */
  long endsAt();

  /** Called if the command must wait for a connection: it is not sent yet. */
  void waits(@Nullable String node);

  /** Called when a command that waited or was redirected is sent. */
  void sends(@Nullable String node);
}
