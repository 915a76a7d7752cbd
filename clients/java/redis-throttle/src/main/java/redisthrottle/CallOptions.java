package redisthrottle;

import org.jspecify.annotations.Nullable;

/**
 * The options of a call.
 *
 * @param tag the hash tag of the keys, so that they are in one slot of a cluster
 * @param id the name of leases and reservations; random by default
 */
public record CallOptions(@Nullable String tag, @Nullable String id) {
  /** The options of a call without any. */
  public static final CallOptions NONE = new CallOptions(null, null);

  /** Returns the options with a hash tag. */
  public CallOptions withTag(String tag) {
    return new CallOptions(Checks.present("tag", tag), id);
  }

  /**
   * Returns the options with the name of a lease (1 to 128 bytes), or of the leases and
   * reservations of a call (1 to 64 bytes, no spaces). Each piece of work needs its own name.
   */
  public CallOptions withId(String id) {
    return new CallOptions(tag, Checks.present("id", id));
  }
}
