package redisthrottle;

/**
 * The counts of a limiter since it was created.
 *
 * @param allowed decisions that allowed; peeks, refunds and charges are not counted
 * @param denied decisions that denied
 * @param degraded of these, those of {@link OnError}
 * @param local of these, those of the denial cache and of prefetched permits
 * @param rejected commands that the server rejected
 * @param unsettled ends of admissions that failed
 */
public record Counters(
    long allowed, long denied, long degraded, long local, long rejected, long unsettled) {}
