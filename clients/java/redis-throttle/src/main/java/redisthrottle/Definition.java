package redisthrottle;

import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The content of a rule. */
record Definition(
    Kind kind,
    String name,
    long limit,
    @Nullable Duration window,
    List<String> words,
    long rate,
    @Nullable Duration period,
    @Nullable Duration ttl,
    @Nullable BaseRule fallback,
    @Nullable OnError onError,
    double localShare,
    int prefetch,
    Count count) {

  static Definition of(
      Kind kind, String name, long limit, @Nullable Duration window, List<String> words) {
    return new Definition(
        kind, name, limit, window, words, 0, null, null, null, null, 1, 0, Count.ALL);
  }

  Definition withRate(long rate, Duration period) {
    return new Definition(
        kind,
        name,
        limit,
        window,
        words,
        rate,
        period,
        ttl,
        fallback,
        onError,
        localShare,
        prefetch,
        count);
  }

  Definition withTtl(Duration ttl) {
    return new Definition(
        kind,
        name,
        limit,
        window,
        words,
        rate,
        period,
        ttl,
        fallback,
        onError,
        localShare,
        prefetch,
        count);
  }

  Definition withWords(List<String> words) {
    return new Definition(
        kind,
        name,
        limit,
        window,
        words,
        rate,
        period,
        ttl,
        fallback,
        onError,
        localShare,
        prefetch,
        count);
  }

  Definition withFallback(BaseRule fallback) {
    return new Definition(
        kind,
        name,
        fallback.limit(),
        window,
        words,
        rate,
        period,
        ttl,
        fallback,
        onError,
        localShare,
        prefetch,
        count);
  }

  Definition withOnError(OnError onError) {
    return new Definition(
        kind,
        name,
        limit,
        window,
        words,
        rate,
        period,
        ttl,
        fallback,
        onError,
        localShare,
        prefetch,
        count);
  }

  Definition withLocalShare(double localShare) {
    return new Definition(
        kind,
        name,
        limit,
        window,
        words,
        rate,
        period,
        ttl,
        fallback,
        onError,
        localShare,
        prefetch,
        count);
  }

  Definition withPrefetch(int prefetch) {
    return new Definition(
        kind,
        name,
        limit,
        window,
        words,
        rate,
        period,
        ttl,
        fallback,
        onError,
        localShare,
        prefetch,
        count);
  }

  Definition withCount(Count count) {
    return new Definition(
        kind,
        name,
        limit,
        window,
        words,
        rate,
        period,
        ttl,
        fallback,
        onError,
        localShare,
        prefetch,
        count);
  }
}
