package redisthrottle;

/** Thrown for a wrong argument. No call was sent. */
public final class InvalidArgumentException extends IllegalArgumentException {
  private final String argument;

  InvalidArgumentException(String argument, String expected) {
    super("invalid " + argument + ": expected " + expected);
    this.argument = argument;
  }

  /** Returns the name of the argument, such as {@code burst}. */
  public String argument() {
    return argument;
  }
}
