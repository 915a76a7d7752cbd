package redisthrottle.spring;

import redisthrottle.LimiterBuilder;

/** A function that sets options of the limiter after the properties. Beans of it are called. */
@FunctionalInterface
public interface ThrottleLimiterCustomizer {
  /** Sets options. */
  void customize(LimiterBuilder builder);
}
