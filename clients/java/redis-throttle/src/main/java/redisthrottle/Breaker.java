package redisthrottle;

/** Pauses the calls to a node that does not answer. */
final class Breaker {
  /** The end of a call, as the breaker sees it. */
  enum Outcome {
    /** Says nothing about the server, such as if the caller gave up. */
    NEITHER,
    ANSWERED,
    FAILED
  }

  private final Loop loop;
  private final int failuresMax;
  private final long pauseNs;
  private int failures;
  private long closedAt;
  private boolean isProbing;

  Breaker(Loop loop, int failuresMax, long pauseNs) {
    this.loop = loop;
    this.failuresMax = failuresMax;
    this.pauseNs = pauseNs;
  }

  /** Returns true if the breaker would refuse the next call. */
  boolean isOpen() {
    return failures >= failuresMax && (isProbing || loop.nanos() - closedAt < 0);
  }

  /** Lets a call pass, or throws. Returns true if the call is the probe. */
  boolean enter() {
    if (isOpen()) {
      throw UnavailableException.quiet(Reason.CIRCUIT, "the circuit breaker is open");
    }
    boolean isProbe = failures >= failuresMax;
    isProbing |= isProbe;
    return isProbe;
  }

  void ended(Outcome outcome, boolean isProbe) {
    if (isProbe) {
      isProbing = false;
    }
    if (outcome == Outcome.ANSWERED) {
      failures = 0;
    } else if (outcome == Outcome.FAILED) {
      failures++;
      closedAt = loop.nanos() + pauseNs;
    }
  }
}
