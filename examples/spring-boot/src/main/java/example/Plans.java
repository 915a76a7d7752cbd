package example;

import java.util.Set;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import redisthrottle.Limiter;
import redisthrottle.Rule;
import redisthrottle.servlet.ThrottleFilter;

/** The limit of {@code /me}, whose rule is found in code. */
@Configuration
class Plans {
  private static final Set<String> METHODS = Set.of("GET", "HEAD");

  /** Limits by the API key in a header. A request without the header gets a 400. */
  @Bean
  FilterRegistrationBean<ThrottleFilter> planFilter(
      Limiter limiter, @Qualifier("api") Rule api, @Qualifier("gold") Rule gold) {
    FilterRegistrationBean<ThrottleFilter> filter =
        new FilterRegistrationBean<>(
            ThrottleFilter.builder(limiter)
                .key(request -> request.getHeader("X-Api-Key"))
                .ruleOf(request -> isGold(request.getHeader("X-Api-Key")) ? gold : api)
                .skip(request -> !METHODS.contains(request.getMethod()))
                .degradedHeader("X-Limiter-Degraded")
                .build());
    filter.addUrlPatterns("/me");
    return filter;
  }

  /** Returns true for the key of a better plan, which a real service looks up. */
  private static boolean isGold(String key) {
    return key != null && key.startsWith("gold-");
  }
}
