package redisthrottle.spring;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import org.springframework.http.HttpMethod;
import org.springframework.http.server.PathContainer;
import org.springframework.web.util.pattern.PathPattern;
import org.springframework.web.util.pattern.PathPatternParser;
import org.springframework.web.util.pattern.PatternParseException;
import redisthrottle.Rule;
import redisthrottle.spring.ThrottleProperties.RouteProperties;

/**
 * The routes of the properties, each with its filter.
 *
 * @param <F> the filter
 */
final class RouteTable<F> {
  private static final Set<String> METHODS = new TreeSet<>();

  static {
    for (HttpMethod method : HttpMethod.values()) {
      METHODS.add(method.name());
    }
  }

  /** A route of the properties. */
  record Route(String property, RouteProperties given, List<Rule> rules) {}

  /** A route with its filter. Without methods it matches all. */
  private record Row<F>(String property, PathPattern pattern, Set<String> methods, F filter) {
    boolean matches(List<PathContainer> paths, String method, boolean isPreflight) {
      boolean isMine =
          methods.isEmpty() ? !isPreflight : methods.contains(method) || isHeadOfGet(method);
      return isMine && paths.stream().anyMatch(pattern::matches);
    }

    private boolean isHeadOfGet(String method) {
      return method.equals("HEAD") && methods.contains("GET");
    }

    boolean covers(Row<F> later) {
      return pattern.equals(later.pattern)
          && (methods.isEmpty() || !later.methods.isEmpty() && methods.containsAll(later.methods));
    }
  }

  private final List<Row<F>> rows = new ArrayList<>();

  /** Makes the filters of all routes. */
  RouteTable(ThrottleProperties properties, Iterable<Rule> rules, Function<Route, F> make) {
    Map<String, Rule> named = named(rules);
    for (int at = 0; at < properties.routes().size(); at++) {
      String property = "throttle.routes[" + at + "]";
      RouteProperties given = properties.routes().get(at);
      Route route = new Route(property, given, rulesOf(property, given, named));
      PathPattern pattern = pattern(property, given.path());
      Set<String> methods = methods(property, given.methods());
      F filter = PropertyException.in(property + ".rules", () -> make.apply(route));
      Row<F> row = new Row<>(property, pattern, methods, filter);
      for (Row<F> earlier : rows) {
        if (earlier.covers(row)) {
          throw new PropertyException(
              property, "never matches: " + earlier.property + " has the same path and methods");
        }
      }
      rows.add(row);
    }
  }

  private static Map<String, Rule> named(Iterable<Rule> rules) {
    Map<String, Rule> named = new LinkedHashMap<>();
    for (Rule rule : rules) {
      if (named.put(rule.name(), rule) != null) {
        throw new PropertyException(
            "throttle.rules." + rule.name(), "another bean of type Rule has this name");
      }
    }
    return named;
  }

  private static List<Rule> rulesOf(
      String property, RouteProperties given, Map<String, Rule> named) {
    List<Rule> rules = new ArrayList<>();
    for (String name : given.rules()) {
      Rule rule = named.get(name);
      if (rule == null) {
        throw new PropertyException(
            property + ".rules",
            "no rule "
                + name
                + "; there "
                + (named.isEmpty() ? "is none" : "are " + named.keySet()));
      }
      rules.add(rule);
    }
    return rules;
  }

  private static PathPattern pattern(String property, @Nullable String path) {
    if (path == null || !path.startsWith("/")) {
      throw new PropertyException(property + ".path", "expected a pattern such as /api/**");
    }
    try {
      return PathPatternParser.defaultInstance.parse(path);
    } catch (PatternParseException e) {
      throw new PropertyException(property + ".path", "bad pattern: " + e.getMessage());
    }
  }

  private static Set<String> methods(String property, List<String> given) {
    Set<String> methods = new TreeSet<>();
    for (String method : given) {
      String name = method.toUpperCase(Locale.ROOT);
      if (!METHODS.contains(name)) {
        throw new PropertyException(property + ".methods", "expected some of " + METHODS);
      }
      methods.add(name);
    }
    return methods;
  }

  /** Returns the filters of all routes. */
  List<F> filters() {
    return rows.stream().map(Row::filter).toList();
  }

  /** Returns the filter of the first route that matches one of the paths; null if none does. */
  @Nullable F find(List<PathContainer> paths, String method, boolean isPreflight) {
    for (Row<F> row : rows) {
      if (row.matches(paths, method, isPreflight)) {
        return row.filter;
      }
    }
    return null;
  }
}
