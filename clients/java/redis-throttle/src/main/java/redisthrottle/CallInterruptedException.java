package redisthrottle;

/**
 * Thrown by a blocking method if its thread is interrupted. The thread's interrupt flag stays set.
 * The command may have run; a lease, a reservation or an admission that it took is given back.
 */
public final class CallInterruptedException extends RuntimeException {
  CallInterruptedException() {
    super("the thread was interrupted");
  }
}
