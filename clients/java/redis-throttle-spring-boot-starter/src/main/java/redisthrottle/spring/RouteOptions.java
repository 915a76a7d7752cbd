package redisthrottle.spring;

import java.util.List;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.core.ResolvableType;
import redisthrottle.middleware.MiddlewareBuilder;

/**
 * Sets the options of the routes' filters.
 *
 * @param <R> the request
 */
final class RouteOptions<R> {
  /** The order of Spring Security's filter, after which the principal is known. */
  private static final int SECURITY_ORDER = -100;

  private static final String HEADER = "header:";
  static final String PRINCIPAL = "principal";

  private final ThrottleProperties properties;
  private final ConfigurableListableBeanFactory beans;
  private final Class<R> request;
  private final Function<String[], Function<R, @Nullable String>> keyOf;
  private final Function<R, @Nullable String> principal;

  /**
   * Makes the options.
   *
   * @param keyOf the filter's function of that name, which joins headers
   * @param principal returns the name of a request's principal
   */
  RouteOptions(
      ThrottleProperties properties,
      ConfigurableListableBeanFactory beans,
      Class<R> request,
      Function<String[], Function<R, @Nullable String>> keyOf,
      Function<R, @Nullable String> principal) {
    this.properties = properties;
    this.beans = beans;
    this.request = request;
    this.keyOf = keyOf;
    this.principal = principal;
  }

  /** Returns the builder with the options, the rules and the key of a route. */
  <B extends MiddlewareBuilder<R, B>> B route(RouteTable.Route route, B builder) {
    common(builder);
    PropertyException.in(
        route.property() + ".rules",
        () -> {
          route.rules().forEach(builder::rule);
          return builder;
        });
    Function<R, @Nullable String> key = key(route);
    return key == null ? builder : builder.key(key);
  }

  /** Returns the builder with the options that all routes have. */
  <B extends MiddlewareBuilder<R, B>> B common(B builder) {
    return PropertyException.below(
        "throttle",
        () -> {
          List<String> proxies = properties.trustedProxies();
          if (proxies != null) {
            builder.trustedProxies(proxies.equals(List.of("none")) ? List.of() : proxies);
          }
          if (properties.degradedHeader() != null) {
            builder.degradedHeader(properties.degradedHeader());
          }
          return builder.headers(properties.headers());
        });
  }

  private @Nullable Function<R, @Nullable String> key(RouteTable.Route route) {
    String key = route.given().key();
    String property = route.property() + ".key";
    if (key.equals("address")) {
      return null;
    }
    if (key.startsWith(HEADER)) {
      String[] names = key.substring(HEADER.length()).split(" *, *", -1);
      return PropertyException.in(property, () -> keyOf.apply(names));
    }
    if (!key.equals(PRINCIPAL)) {
      return bean(property, key);
    }
    if (properties.filterOrder() <= SECURITY_ORDER) {
      throw new PropertyException(
          property,
          "the principal is not known before Spring Security's filter;"
              + " set throttle.filter-order to -99 or more");
    }
    return principal;
  }

  private Function<R, @Nullable String> bean(String property, String name) {
    if (!beans.containsBean(name)) {
      throw new PropertyException(
          property,
          "expected address, principal, header:NAME,... or the name of a bean; no bean is " + name);
    }
    if (!beans.isTypeMatch(name, Function.class) || !takesRequest(name)) {
      throw new PropertyException(
          property, name + " is no Function<" + request.getSimpleName() + ", String>");
    }
    @SuppressWarnings("unchecked")
    Function<R, @Nullable String> function = beans.getBean(name, Function.class);
    return function;
  }

  private boolean takesRequest(String name) {
    if (!beans.containsBeanDefinition(name)) {
      return true;
    }
    ResolvableType type = beans.getMergedBeanDefinition(name).getResolvableType();
    Class<?> takes = type.as(Function.class).getGeneric(0).resolve();
    return takes == null || takes.isAssignableFrom(request);
  }
}
