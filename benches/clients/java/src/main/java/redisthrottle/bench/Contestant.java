package redisthrottle.bench;

/** A limiter with its connection. Callers of all threads use it at the same time. */
interface Contestant extends AutoCloseable {
  /** Decides a call of the key at an index, and returns true if it is allowed. */
  boolean decide(int key);

  @Override
  void close();
}
