package redisthrottle;

import static redisthrottle.Checks.invalid;

import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.HexFormat;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.jspecify.annotations.Nullable;

/** Builds the keys of one limiter: {@code prefix:rule:subject}. */
final class Keys {
  /** The maximum length of an encoded part, in bytes. Longer parts are hashed. */
  private static final int PART_MAX = 128;

  private static final byte[] PROCESS_KEY = random(32);

  private final String prefix;
  private final boolean isTagged;
  private final byte @Nullable [] secret;

  Keys(String prefix, boolean isTagged, byte @Nullable [] secret) {
    boolean isBad =
        prefix
            .codePoints()
            .anyMatch(
                c ->
                    c == '{'
                        || c == '}'
                        || Character.isWhitespace(c)
                        || Character.isSpaceChar(c)
                        || Character.isISOControl(c));
    if (isBad || utf8(prefix) == null) {
      throw invalid("prefix", "no braces, spaces or control characters");
    }
    if (secret != null && secret.length < 16) {
      throw invalid("hmacSecret", "at least 16 bytes");
    }
    this.prefix = prefix.isEmpty() ? "" : prefix + ":";
    this.isTagged = isTagged;
    this.secret = secret;
  }

  private static byte[] random(int size) {
    byte[] bytes = new byte[size];
    new SecureRandom().nextBytes(bytes);
    return bytes;
  }

  /** Returns the key of a subject under a rule. */
  String key(String rule, String subject, @Nullable String tag) {
    String encoded = part("subject", subject);
    if (tag != null) {
      return prefix + "{" + part("tag", tag) + "}:" + encode(rule) + ":" + encoded;
    }
    return prefix + encode(rule) + ":" + (isTagged ? "{" + encoded + "}" : encoded);
  }

  /**
   * Returns 16 hexadecimal digits of the subject's HMAC, for logs. The plain hash of an address
   * could be reversed.
   */
  String keyHash(String subject) {
    byte[] key = secret == null ? PROCESS_KEY : secret;
    return hmac(key, subject.getBytes(StandardCharsets.UTF_8)).substring(0, 16);
  }

  /**
   * Returns a part of a key in its encoded form. A hash begins with a colon, which no encoded part
   * does.
   */
  private String part(String argument, String text) {
    byte[] bytes = utf8(text);
    if (bytes == null || bytes.length == 0) {
      throw invalid(argument, "a text in Unicode that is not empty");
    }
    if (secret != null) {
      return ":" + hmac(secret, bytes);
    }
    String encoded = encode(text);
    int size = encoded.length() == text.length() ? bytes.length : utf8Size(encoded);
    return size > PART_MAX ? ":" + sha256(bytes) : encoded;
  }

  private static int utf8Size(String text) {
    return text.getBytes(StandardCharsets.UTF_8).length;
  }

  /** Returns the bytes of a text; null if it has half a surrogate pair. */
  private static byte @Nullable [] utf8(String text) {
    int at = 0;
    while (at < text.length() && !Character.isSurrogate(text.charAt(at))) {
      at++;
    }
    if (at == text.length()) {
      return text.getBytes(StandardCharsets.UTF_8);
    }
    try {
      var buffer = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
      byte[] bytes = new byte[buffer.remaining()];
      buffer.get(bytes);
      return bytes;
    } catch (CharacterCodingException e) {
      return null;
    }
  }

  private static String sha256(byte[] bytes) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException(e);
    }
  }

  private static String hmac(byte[] key, byte[] bytes) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(key, "HmacSHA256"));
      return HexFormat.of().formatHex(mac.doFinal(bytes));
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException(e);
    }
  }

  private static boolean isSpecial(char c) {
    return c <= ' ' || c == 0x7f || c == '%' || c == ':' || c == '{' || c == '}';
  }

  /** Percent-encodes what would end a part or a hash tag, or is unreadable in a log. */
  private static String encode(String text) {
    int at = 0;
    while (at < text.length() && !isSpecial(text.charAt(at))) {
      at++;
    }
    if (at == text.length()) {
      return text;
    }
    StringBuilder encoded = new StringBuilder(text.length() + 8).append(text, 0, at);
    for (; at < text.length(); at++) {
      char c = text.charAt(at);
      if (isSpecial(c)) {
        encoded.append('%').append(HexFormat.of().withUpperCase().toHexDigits((byte) c));
      } else {
        encoded.append(c);
      }
    }
    return encoded.toString();
  }
}
