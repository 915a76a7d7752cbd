package redisthrottle;

import java.util.concurrent.CompletionStage;

/** An admission of one reservation. It renews itself until its end. */
public final class Reservation implements AutoCloseable {
  private final Admission admission;
  private final Rule rule;

  Reservation(Admission admission, Rule rule) {
    this.admission = admission;
    this.rule = rule;
  }

  /** Returns the decision that allowed the reservation. */
  public Decision decision() {
    return admission.decision();
  }

  /** Returns the id of the reservation. */
  public String id() {
    return admission.id();
  }

  /** Returns true if the reservation lasts and is not lost, by the clock of this process. */
  public boolean isHeld() {
    return admission.isHeld();
  }

  /**
   * Charges the units that the work took, and ends the reservation; see {@link Admission#close}.
   *
   * <pre>{@code
   * Rule tokens = Rule.quota("tokens", 100_000, CalendarUnit.MONTH);
   * try (Reservation reserved = limiter.reserve(tokens.of("acme").reserve(500))) {
   *   reserved.commit(420);
   * }
   * System.out.println(limiter.peek(tokens.of("acme").cost(0)).remaining()); // 99580
   * }</pre>
   *
   * @throws InvalidArgumentException after the end
   */
  public void commit(long actual) {
    admission.settle(rule, actual);
    admission.close();
  }

  /** Commits as {@link #commit} does. */
  public CompletionStage<Void> commitAsync(long actual) {
    admission.settle(rule, actual);
    return admission.finishAsync();
  }

  /** Frees the reserved units. After the end it does nothing. */
  public void cancel() {
    admission.close();
  }

  /** Frees the reserved units as {@link #cancel} does. */
  public CompletionStage<Void> cancelAsync() {
    return admission.finishAsync();
  }

  /** Frees the reserved units, unless they were committed. */
  @Override
  public void close() {
    cancel();
  }
}
