package redisthrottle;

/** Pauses the calls to a node that does not reply. */
final class Breaker {
  private final Loop loop;
  private final int failuresMax;
  private final long pauseNs;
  private int failures;
  private long closedAt;
  private boolean isProbing;
  private long probeBeganAt;

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
      throw UnavailableException.unsent(Reason.CIRCUIT, "the circuit breaker is open", null);
    }
    boolean isProbe = failures >= failuresMax;
    if (isProbe) {
      isProbing = true;
      probeBeganAt = loop.nanos();
    }
    return isProbe;
  }

  /** Called when the probe's call has ended. */
  void probeEnded() {
    isProbing = false;
  }

  /** Closes the breaker: the node has sent a final reply. */
  void succeeded() {
    failures = 0;
  }

  /**
   * Counts a failure. The last one that is needed opens the breaker; later ones do not prolong its
   * pause. The pause of a failed probe begins with the probe.
   *
   * @param notBefore the earliest instant of the next probe
   */
  void failed(long notBefore) {
    failures++;
    if (isProbing || failures == failuresMax) {
      long end = (isProbing ? probeBeganAt : loop.nanos()) + pauseNs;
      closedAt = end - notBefore < 0 ? notBefore : end;
    }
  }
}
