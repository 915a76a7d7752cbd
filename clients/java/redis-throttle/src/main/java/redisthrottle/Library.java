package redisthrottle;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The library, for servers without the module. It is read when the first server needs it. */
final class Library {
  static final String FUNCTIONS = read("redis_throttle.lua");
  static final String SCRIPT = read("redis_throttle_script.lua");

  /** The version. A newer library also serves older clients. */
  static final String VERSION = version();

  /** The hash by which the server knows the script. */
  static final String SCRIPT_SHA1 = sha1();

  private Library() {}

  private static String read(String name) {
    try (InputStream in = Library.class.getResourceAsStream(name)) {
      if (in == null) {
        throw new IllegalStateException("the resource " + name + " is missing");
      }
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static String version() {
    Matcher found = Pattern.compile("VERSION = '([\\d.]+)'").matcher(FUNCTIONS);
    return found.find() ? found.group(1) : "";
  }

  private static String sha1() {
    try {
      byte[] text = SCRIPT.getBytes(StandardCharsets.UTF_8);
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(text));
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException(e);
    }
  }

  /**
   * Returns true if one version is older than another: 0.9.1 is older than 0.10.0. An unreadable
   * one counts as older.
   */
  static boolean isOlder(String one, String other) {
    String[] ours = one.split("\\.");
    String[] theirs = other.split("\\.");
    for (int at = 0; at < theirs.length; at++) {
      int found = at < ours.length ? number(ours[at]) : -1;
      if (found != number(theirs[at])) {
        return found < number(theirs[at]);
      }
    }
    return false;
  }

  private static int number(String text) {
    return text.matches("\\d{1,9}") ? Integer.parseInt(text) : -1;
  }
}
