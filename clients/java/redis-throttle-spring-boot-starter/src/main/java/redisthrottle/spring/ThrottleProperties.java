package redisthrottle.spring;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;
import redisthrottle.Backend;
import redisthrottle.HeaderStyle;
import redisthrottle.OnError;

/**
 * The properties {@code throttle.*}.
 *
 * @param url Address of the server, such as redis://user:password@localhost:6379, rediss:// with
 *     TLS, or redis-sentinel://. Without it and without urls, that of spring.data.redis.* if Spring
 *     Boot's module for it is there.
 * @param urls Addresses of some nodes of a cluster.
 * @param timeout The most that a call takes in all, from 1ms to 1h. The default is 1s.
 * @param silence Time after which a server that sends nothing is unresponsive. The default is
 *     100ms, or the timeout if only that is set.
 * @param onError Decision on calls without a final reply.
 * @param maxInFlight Maximum number of commands sent to a node and without a reply.
 * @param maxWaiting Maximum number of calls in line for a node.
 * @param knownDenials Number of keys whose last denial is remembered.
 * @param logErrors Whether decisions without the server are logged.
 * @param breakerFailures Failures in a row after which the calls to a node pause.
 * @param breakerPause Length of the pause of the calls to a node.
 * @param denialCache Number of denials that this process keeps.
 * @param denialCacheMax Longest time for which a denial is kept.
 * @param prefetch Permits that one call fetches.
 * @param backend Code that decides on the server.
 * @param prefix First part of all keys.
 * @param hashTag Whether keys of one subject are in one slot of a cluster.
 * @param hmacSecret Secret, at least 16 bytes, with which subjects are hashed in keys.
 * @param trustedProxies Addresses and networks of the proxies whose X-Forwarded-For is believed,
 *     such as 10.0.0.0/8; none if there is no proxy.
 * @param degradedHeader Request header that reports to the application that on-error decided.
 * @param headers Forms of the response fields. An empty list leaves only Retry-After.
 * @param filterOrder Order of the filter. The default is before Spring Security's filter.
 * @param rules Rules by name. Each is also a bean, whose qualifier is the name.
 * @param routes Routes that are limited. The first that matches a request applies.
 */
@ConfigurationProperties(prefix = "throttle", ignoreUnknownFields = false)
public record ThrottleProperties(
    @Nullable String url,
    @DefaultValue List<String> urls,
    @Nullable Duration timeout,
    @Nullable Duration silence,
    @DefaultValue("allow") OnError onError,
    @DefaultValue("256") int maxInFlight,
    @DefaultValue("16384") int maxWaiting,
    @DefaultValue("10000") int knownDenials,
    @DefaultValue("true") boolean logErrors,
    @DefaultValue("5") int breakerFailures,
    @DefaultValue("1s") Duration breakerPause,
    @DefaultValue("0") int denialCache,
    @DefaultValue("1s") Duration denialCacheMax,
    @DefaultValue("1") int prefetch,
    @DefaultValue("auto") Backend backend,
    @DefaultValue("rl") String prefix,
    @DefaultValue("false") boolean hashTag,
    @Nullable String hmacSecret,
    @Nullable List<String> trustedProxies,
    @Nullable String degradedHeader,
    @DefaultValue("draft11") List<HeaderStyle> headers,
    @DefaultValue("-101") int filterOrder,
    @DefaultValue Map<String, RuleProperties> rules,
    @DefaultValue List<RouteProperties> routes) {

  /**
   * The properties of a route.
   *
   * @param path Pattern of the path, such as /orders/{id} or /api/**.
   * @param methods Methods. GET is also HEAD. Without it all, but not the preflight of CORS.
   * @param rules Names of one to 16 rules, which are checked in one call.
   * @param key What is limited: address, principal, header:NAME or header:NAME,NAME for several
   *     headers together, or the name of a bean that is a function of the request.
   */
  public record RouteProperties(
      @Nullable String path,
      @DefaultValue List<String> methods,
      @DefaultValue List<String> rules,
      @DefaultValue("address") String key) {}

  /** Returns the number of rules and routes, without addresses and secrets. */
  @Override
  public String toString() {
    return "ThrottleProperties[rules=" + rules.size() + ", routes=" + routes.size() + "]";
  }
}
