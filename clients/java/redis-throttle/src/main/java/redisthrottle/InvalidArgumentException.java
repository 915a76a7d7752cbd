package redisthrottle;

/** Thrown for a wrong argument. No call was sent. */
public final class InvalidArgumentException extends IllegalArgumentException {
  private final String argument;

  /** Makes the error of an argument's name and its valid values. For adapters of drivers. */
  public InvalidArgumentException(String argument, String expected) {
    super("invalid " + argument + ": expected " + expected);
    this.argument = argument;
  }

  /** Returns the name of the argument, such as {@code burst}. */
  public String argument() {
    return argument;
  }
}
