package redisthrottle;

import static redisthrottle.Checks.UNITS_MAX;
import static redisthrottle.Checks.invalid;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * An item with its key: a rule, and what a call takes.
 *
 * @param leave the number of units or the percentage that is left to others
 * @param id the name of a lease or a reservation; empty if there is none
 * @param ttl the ttl of a reservation, otherwise null
 */
record Keyed(
    Rule rule,
    Definition definition,
    String key,
    String subject,
    long cost,
    boolean isPartial,
    @Nullable String leave,
    String id,
    @Nullable Duration ttl) {
  private static final int LEASE_ID_MAX = 128;
  private static final int ID_MAX = 64;

  /** Returns the item with a cost and no options. */
  Keyed plain(long units) {
    return new Keyed(rule, definition, key, subject, units, false, null, "", null);
  }

  /** Returns true if the server keeps the call under its id. */
  boolean isHeld() {
    return isReservation() || isLease();
  }

  boolean isReservation() {
    return ttl != null;
  }

  boolean isLease() {
    return definition.kind == Kind.LEASE;
  }

  /** Returns the ttl of a lease or of a reservation. */
  Duration holdTtl() {
    Duration given = ttl == null ? definition.period : ttl;
    return given == null ? Duration.ZERO : given;
  }

  /** Returns true if the other item has the same rule. */
  boolean isSame(Keyed other) {
    return definition.isSame(other.definition);
  }

  /** Returns true for a call of one unit without options. */
  boolean isPlain() {
    return cost == 1 && !isPartial && leave == null;
  }

  Keyed withCost(long units, boolean partial) {
    return new Keyed(rule, definition, key, subject, units, partial, leave, id, ttl);
  }

  Keyed withId(String name) {
    return new Keyed(rule, definition, key, subject, cost, isPartial, leave, name, ttl);
  }

  /** Returns the item without what is left to others. */
  Keyed withoutLeave() {
    return new Keyed(rule, definition, key, subject, cost, isPartial, null, id, ttl);
  }

  /** Returns the item for a server without the module, where a policy is its default. */
  Keyed withDefault() {
    Definition decider = definition.decider();
    return new Keyed(rule, decider, key, subject, cost, isPartial, leave, id, ttl);
  }

  /** Returns the units that a call leaves to others. */
  long unitsLeft(long limit) {
    if (leave == null) {
      return 0;
    }
    if (!leave.endsWith("%")) {
      return Long.parseLong(leave);
    }
    long share = Long.parseLong(leave.substring(0, leave.length() - 1));
    return limit / 100 * share + limit % 100 * share / 100;
  }

  /** Validates the options of a call, which depend on the rule. */
  Keyed checked() {
    Checks.integer("cost", cost, isPartial ? 1 : 0, UNITS_MAX);
    Kind kind = definition.kind;
    if (kind == Kind.LEASE || kind == Kind.BACKOFF) {
      if (cost != 1) {
        throw invalid("cost", "1 for " + definition.name);
      }
      if (isPartial) {
        throw invalid("partial", "a rule that takes a cost; " + definition.name + " does not");
      }
      if (kind == Kind.BACKOFF && leave != null) {
        throw invalid("leave", "nothing for the backoff " + definition.name);
      }
    }
    if (isHeld()) {
      checkId(id, isReservation() ? ID_MAX : LEASE_ID_MAX);
    }
    return this;
  }

  private static void checkId(String id, int most) {
    int size = id.getBytes(StandardCharsets.UTF_8).length;
    if (size < 1 || size > most) {
      throw invalid("id", "1 to " + most + " bytes for a lease or a reservation");
    }
  }

  /** Validates the id of an admission. */
  static void checkAdmissionId(String id) {
    checkId(id, ID_MAX);
    checkSpaces(id);
  }

  static void checkSpaces(String id) {
    if (id.codePoints().anyMatch(c -> Character.isWhitespace(c) || Character.isSpaceChar(c))) {
      throw invalid("id", "no white space");
    }
  }

  /** Returns the words after the key. */
  List<String> words() {
    if (isPlain() && !isHeld()) {
      return definition.words;
    }
    List<String> options = new ArrayList<>();
    if (cost != 1 || isPartial) {
      options.add("COST");
      options.add(Long.toString(cost));
    }
    if (isPartial) {
      options.add("PARTIAL");
    }
    if (leave != null) {
      options.add("LEAVE");
      options.add(leave);
    }
    List<String> words = definition.withOptions(options);
    if (!isHeld()) {
      return words;
    }
    List<String> all = new ArrayList<>(words);
    if (ttl != null) {
      all.addAll(0, List.of("RESERVE", id, Checks.word(ttl)));
    } else {
      all.add(1, id);
    }
    return all;
  }
}
