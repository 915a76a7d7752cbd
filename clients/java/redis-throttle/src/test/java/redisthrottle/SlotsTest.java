package redisthrottle;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class SlotsTest {
  private static final int ENDS = 20_000;

  @Test
  void a_slot_passes_through_any_number_of_ends_that_end_at_once() throws Exception {
    Loop loop = new Loop(Clock.system());
    Slots slots = new Slots(loop);
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
