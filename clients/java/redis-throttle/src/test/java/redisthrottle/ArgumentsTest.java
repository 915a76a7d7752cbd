package redisthrottle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Executable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import java.util.function.IntPredicate;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Passes null to each argument of the public methods that takes none. */
@Timeout(30)
class ArgumentsTest {
  private static final Rule API = Rule.gcra("api", 10, 10, Duration.ofMinutes(1));

  /** Valid arguments by their type. */
  private static final Map<Class<?>, Object> VALID =
      Map.ofEntries(
          Map.entry(String.class, "mon"),
          Map.entry(String[].class, new String[] {"gold"}),
          Map.entry(Duration.class, Duration.ofMinutes(1)),
          Map.entry(Instant.class, Instant.EPOCH),
          Map.entry(Rate.class, Rate.of("10/minute")),
          Map.entry(Rule.class, API),
          Map.entry(Item.class, API.of("ada")),
          Map.entry(CallOptions.class, CallOptions.NONE),
          Map.entry(OnError.class, OnError.ALLOW),
          Map.entry(Count.class, Count.ALL),
          Map.entry(CalendarUnit.class, CalendarUnit.WEEK),
          Map.entry(Backend.class, Backend.MODULE),
          Map.entry(Consumer.class, (Consumer<Event>) event -> {}),
          Map.entry(Executor.class, (Executor) Runnable::run),
          Map.entry(IntPredicate.class, (IntPredicate) status -> true),
          Map.entry(List.class, List.of()),
          Map.entry(long.class, 1L),
          Map.entry(int.class, 16),
          Map.entry(double.class, 0.5),
          Map.entry(boolean.class, true));

  /** Calls a method with null for one argument, and returns what it threw. */
  private static @Nullable Throwable thrown(@Nullable Object on, Method method, int at)
      throws IllegalAccessException {
    Object[] arguments = new Object[method.getParameterCount()];
    for (int index = 0; index < arguments.length; index++) {
      Class<?> type = method.getParameterTypes()[index];
      Object valid = VALID.getOrDefault(type, type == Decision.class ? decision() : null);
      arguments[index] = index == at ? null : valid;
    }
    try {
      method.invoke(on, arguments);
      return null;
    } catch (InvocationTargetException e) {
      return e.getCause();
    }
  }

  private static Decision decision() {
    return Draft.decision(API, true, 10, 9, 1, 0, 0, Source.SERVER, null);
  }

  private static boolean takesNull(Executable method, int at) {
    return method.getParameterTypes()[at].isPrimitive()
        || method.getAnnotatedParameterTypes()[at].isAnnotationPresent(Nullable.class);
  }

  @Test
  void null_is_an_invalid_argument_of_every_public_method() throws Exception {
    Map<String, Throwable> others = new LinkedHashMap<>();
    int count = 0;
    FakeServer server = new FakeServer();
    server.script(List.of(1, 3, 2, 0, 60_000), 1);
    try (Limiter limiter = server.limiter().build();
        Lease lease = limiter.lease(Rule.lease("jobs", 3, Duration.ofMinutes(1)).of("ada"));
        Admission admission = limiter.admit(List.of(API.of("ada")))) {
      List<Object> all = new ArrayList<>();
      all.addAll(List.of(limiter, lease, admission, server, server.limiter(), API.of("ada")));
      all.addAll(List.of(API, Rule.policy("p"), Rule.quota("q", 1, CalendarUnit.WEEK)));
      all.addAll(List.of(decision(), CallOptions.NONE, Proxies.trust(List.of())));
      all.addAll(List.of(Rate.of("1/s"), Count.ALL, Rule.class));
      for (Object on : all) {
        Class<?> type = on instanceof Class<?> given ? given : on.getClass();
        for (Method method : type.getMethods()) {
          Class<?> declaring = method.getDeclaringClass();
          boolean isOurs =
              declaring.getPackageName().equals("redisthrottle")
                  && Modifier.isPublic(declaring.getModifiers());
          boolean isStatic = Modifier.isStatic(method.getModifiers());
          boolean hasNone = on instanceof Class<?> && !isStatic;
          // A driver's adapter, which only the limiter calls.
          boolean isAdapter = on == server && !method.getName().equals("advance");
          if (!isOurs || isAdapter || hasNone || method.getName().equals("equals")) {
            continue;
          }
          for (int at = 0; at < method.getParameterCount(); at++) {
            if (takesNull(method, at)) {
              continue;
            }
            count++;
            Throwable error = thrown(isStatic ? null : on, method, at);
            if (!(error instanceof InvalidArgumentException)) {
              others.put(method + " argument " + at, error);
            }
          }
        }
      }
    }
    assertEquals(Map.of(), others);
    assertTrue(count > 90, count + " arguments");
  }
}
