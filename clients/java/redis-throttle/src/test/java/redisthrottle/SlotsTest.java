package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static redisthrottle.MemoryServer.ALLOWED;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class SlotsTest {
  private static final int ENDS = 20_000;
  private static final int LEASES = 100;
  private static final Rule JOBS = Rule.lease("jobs", LEASES, Duration.ofSeconds(30));
  private static final Rule DAY = Rule.fixed("day", 9, Duration.ofDays(1));

  private final ManualClock clock = new ManualClock();

  /** Returns a server that replies to all commands but those of one name. */
  private MemoryServer silentTo(String command) {
    return new MemoryServer(
        List.of(),
        (node, words) -> {
          if (words.get(0).equals("RL." + command)) {
            return new CompletableFuture<>();
          }
          return MemoryServer.reply(
              switch (words.get(0)) {
                case "RL.ALL" -> List.of(1L, 10L, 9L, 0L, 6000L, 1L, ALLOWED);
                case "RL.RENEW", "RL.RELEASE" -> 1L;
                default -> ALLOWED;
              });
        });
  }

  private Limiter limiter(MemoryServer server) {
    // A command without a reply is no silence yet.
    LimiterBuilder options = new LimiterBuilder(server, clock::view, Runnable::run);
    return options.timeout(Duration.ofHours(1)).build();
  }

  private static Lease lease(Limiter limiter, String subject) {
    return limiter.leaseAsync(JOBS.of(subject), CallOptions.NONE).toCompletableFuture().join();
  }

  private static List<Lease> leases(Limiter limiter) {
    return IntStream.range(0, LEASES).mapToObj(one -> lease(limiter, "a" + one)).toList();
  }

  private static long sent(MemoryServer server, String command) {
    return server.sent.stream().filter(one -> one.startsWith("server RL." + command + " ")).count();
  }

  @Test
  void renews_holds_while_releases_wait_for_their_slots() {
    MemoryServer server = silentTo("RELEASE");
    Limiter limiter = limiter(server);
    Item units = DAY.of("kept").reserve(1);
    List<Object> kept = new ArrayList<>();
    kept.add(lease(limiter, "kept"));
    kept.add(limiter.reserveAsync(units, CallOptions.NONE).toCompletableFuture().join());
    server.sent.clear();
    leases(limiter).forEach(Lease::releaseAsync);
    assertEquals(32, sent(server, "RELEASE"));
    clock.runUntil(clock.nanos() + TimeUnit.SECONDS.toNanos(10));
    assertEquals(1, sent(server, "RENEW"));
    assertEquals(1, sent(server, "RESERVE"));
    assertEquals(2, kept.size());
  }

  @Test
  void releases_a_lease_while_renewals_wait_for_their_slots() {
    MemoryServer server = silentTo("RENEW");
    List<Lease> held = leases(limiter(server));
    clock.runUntil(clock.nanos() + TimeUnit.SECONDS.toNanos(10));
    assertEquals(8, sent(server, "RENEW"));
    held.get(0).releaseAsync();
    assertEquals(1, sent(server, "RELEASE"));
  }

  @Test
  void a_slot_passes_through_any_number_of_ends_that_end_at_once() throws Exception {
    Loop loop = new Loop(Clock.system());
    Slots slots = new Slots(loop, 8);
    CompletableFuture<Void> last = new CompletableFuture<>();
    int[] ended = {0};
    loop.execute(
        () -> {
          for (int end = 0; end < ENDS; end++) {
            slots
                .take(Long.MAX_VALUE / 2)
                .thenAccept(
                    isTaken -> {
                      // The first eight hold all slots.
                      if (++ended[0] == ENDS) {
                        last.complete(null);
                      } else if (ended[0] > 8) {
                        slots.put();
                      }
                    });
          }
          slots.put();
        });
    try {
      last.get(20, TimeUnit.SECONDS);
    } finally {
      loop.close();
    }
  }
}
