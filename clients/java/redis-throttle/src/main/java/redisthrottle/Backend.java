package redisthrottle;

import java.util.Locale;

/** The code that decides on the server. */
public enum Backend {
  /** The first that the server has, in the order of the others. It is the default. */
  AUTO,
  /** The module. */
  MODULE,
  /** The library as Redis Functions. */
  FUNCTIONS,
  /** The library as a script. */
  SCRIPT;

  /** Returns the name that all clients use, such as {@code module}. */
  public String word() {
    return name().toLowerCase(Locale.ROOT);
  }
}
