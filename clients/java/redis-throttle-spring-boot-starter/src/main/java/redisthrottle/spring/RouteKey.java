package redisthrottle.spring;

import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.core.ResolvableType;

/**
 * What a route limits.
 *
 * @param <R> the request
 */
final class RouteKey<R> {
  /** The order of Spring Security's filter, after which the principal is known. */
  static final int SECURITY_ORDER = -100;

  private final Class<R> request;
  private final ConfigurableListableBeanFactory beans;
  private final int filterOrder;

  RouteKey(Class<R> request, ConfigurableListableBeanFactory beans, int filterOrder) {
    this.request = request;
    this.beans = beans;
    this.filterOrder = filterOrder;
  }

  /**
   * Returns the function of a route's key; null for the client's address.
   *
   * @param header makes the function of a header's name
   * @param principal the function of {@code principal}
   */
  @Nullable Function<R, @Nullable String> of(
      RouteTable.Route route,
      Function<String, Function<R, @Nullable String>> header,
      Function<R, @Nullable String> principal) {
    String key = route.given().key();
    String property = route.property() + ".key";
    if (key.equals("address")) {
      return null;
    }
    if (key.startsWith("header:")) {
      String name = key.substring("header:".length());
      if (!name.matches("[A-Za-z0-9!#$%&'*+.^_`|~-]+")) {
        throw new PropertyException(property, "expected header: and the name of a header");
      }
      return header.apply(name);
    }
    if (key.equals("principal")) {
      if (filterOrder <= SECURITY_ORDER) {
        throw new PropertyException(
            property,
            "the principal is not known before Spring Security's filter; set"
                + " throttle.filter-order to "
                + (SECURITY_ORDER + 1)
                + " or more");
      }
      return principal;
    }
    return bean(property, key);
  }

  private Function<R, @Nullable String> bean(String property, String name) {
    if (!beans.containsBean(name)) {
      throw new PropertyException(
          property,
          "expected address, principal, header:NAME or the name of a bean; there is no bean "
              + name);
    }
    if (!beans.isTypeMatch(name, Function.class) || !takesRequest(name)) {
      throw new PropertyException(
          property,
          "the bean " + name + " is no Function<" + request.getSimpleName() + ", String>");
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
