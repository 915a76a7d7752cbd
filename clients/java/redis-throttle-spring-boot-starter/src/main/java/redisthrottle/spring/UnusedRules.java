package redisthrottle.spring;

import java.lang.System.Logger.Level;
import java.util.Set;
import java.util.TreeSet;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;

/** Warns at the start of rules of the properties that limit nothing. */
final class UnusedRules implements SmartInitializingSingleton {
  private static final System.Logger LOG = System.getLogger("redisthrottle.spring");

  private final ThrottleProperties properties;
  private final ConfigurableListableBeanFactory beans;

  UnusedRules(ThrottleProperties properties, ConfigurableListableBeanFactory beans) {
    this.properties = properties;
    this.beans = beans;
  }

  @Override
  public void afterSingletonsInstantiated() {
    // The routes of a gateway, which come later, may name any rule.
    if (beans.containsBean("throttleRateLimiter")) {
      return;
    }
    Set<String> unused = new TreeSet<>(properties.rules().keySet());
    properties.routes().forEach(route -> route.rules().forEach(unused::remove));
    properties.rules().values().forEach(rule -> unused.remove(String.valueOf(rule.fallback())));
    unused.removeIf(name -> beans.getDependentBeans(ThrottleRules.beanOf(name)).length > 0);
    if (!unused.isEmpty()) {
      LOG.log(
          Level.WARNING,
          "redis-throttle: no route of throttle.routes has the rules "
              + unused
              + ", and no bean depends on them: they limit nothing.");
    }
  }
}
