package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class LoopTest {
  private final Loop loop = new Loop(Clock.system());

  @Test
  void runs_a_deferred_action_after_all_queued_tasks() {
    List<String> ran = new ArrayList<>();
    loop.execute(
        () -> {
          loop.afterwards(() -> ran.add(loop.isMine() ? "act in the loop" : "act"));
          loop.execute(() -> ran.add("task"));
        });
    assertEquals(List.of("task", "act"), ran);
    loop.close();
  }

  @Test
  void runs_a_deferred_action_of_a_loop_that_is_never_idle() {
    AtomicBoolean hasLeft = new AtomicBoolean();
    AtomicInteger tasks = new AtomicInteger();
    Runnable task =
        new Runnable() {
          @Override
          public void run() {
            if (!hasLeft.get() && tasks.incrementAndGet() < 1000) {
              loop.execute(this);
            }
          }
        };
    loop.execute(
        () -> {
          loop.afterwards(() -> hasLeft.set(true));
          task.run();
        });
    assertTrue(tasks.get() < 1000, "the act waited for " + tasks + " tasks");
    loop.close();
  }

  @Test
  void goes_on_after_a_thread_without_stack() throws InterruptedException {
    for (int thread = 0; thread < 10; thread++) {
      assertThrows(StackOverflowError.class, () -> descend(0));
      CountDownLatch ran = new CountDownLatch(1);
      loop.execute(ran::countDown);
      assertTrue(ran.await(10, TimeUnit.SECONDS), "the loop has stopped");
    }
    loop.close();
  }

  private int descend(int depth) {
    loop.execute(() -> {});
    return 1 + descend(depth + 1);
  }
}
