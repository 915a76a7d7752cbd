package redisthrottle;

/** The algorithm of a rule. */
public enum Kind {
  GCRA("gcra"),
  TOKEN_BUCKET("token_bucket"),
  LEAKY_BUCKET("leaky_bucket"),
  FIXED("fixed"),
  SLIDING("sliding"),
  SLIDING_LOG("sliding_log"),
  BACKOFF("backoff"),
  QUOTA("quota"),
  LEASE("lease"),
  POLICY("policy");

  private final String word;

  Kind(String word) {
    this.word = word;
  }

  /** Returns the name that all clients use, such as {@code token_bucket}. */
  public String word() {
    return word;
  }
}
