package redisthrottle.servlet;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import redisthrottle.Decision;
import redisthrottle.DeniedException;
import redisthrottle.InvalidArgumentException;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.Problem;
import redisthrottle.middleware.KeyParts;
import redisthrottle.middleware.NoSubjectException;
import redisthrottle.middleware.RequestLimits;

/**
 * A filter that limits requests. A request over the limit gets a response of status 429, with
 * {@code Retry-After} and a body of {@code application/problem+json}. The filter responds in the
 * same way to a {@link DeniedException} that the application throws before the response is
 * committed.
 *
 * <p>Leases are released when the response is complete: when the chain returns or throws, or, for
 * an asynchronous request, when it is completed, has timed out or failed. What a response took that
 * does not count, by the rule's {@link redisthrottle.Count}, is given back at the same time. A
 * request whose client is gone, or has cut its body, before the head counts, and the predicate of
 * its rule is not called.
 *
 * <p>That a client has gone is noticed by a read or a write that fails. The work for an
 * asynchronous request may then go on: its leases are no longer renewed, and are released when the
 * application calls {@code complete} or {@code dispatch}, or expire.
 *
 * <p>Register it with asynchronous support; without it the container refuses {@code startAsync}
 * behind the filter. Only the dispatcher type {@code REQUEST} is limited, so that forwards, errors
 * and asynchronous dispatches do not count twice. With {@link
 * ThrottleFilterBuilder#degradedHeader}, register it for all dispatcher types: error pages and
 * asynchronous dispatches get the request of the container, whose header is the client's.
 */
public final class ThrottleFilter implements Filter {
  private static final System.Logger LOG = System.getLogger("redisthrottle.servlet");
  private static final String DECISION = "redisthrottle.decision";
  private static final String DEGRADED = "redisthrottle.degraded.";
  private static final String TAKEN = "redisthrottle.taken.";
  private static final AtomicLong NUMBERS = new AtomicLong();

  private final RequestLimits<HttpServletRequest> limits;
  private final @Nullable OnDenied onDenied;
  private final @Nullable OnFailure onFailure;

  /** The permits of asynchronous requests, as long as the container or the application has them. */
  private final Set<Taken> pending =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

  /** The attribute with the permits of a request, which no other filter has. */
  private final String takenName = TAKEN + NUMBERS.incrementAndGet();

  ThrottleFilter(ThrottleFilterBuilder options, RequestLimits<HttpServletRequest> limits) {
    this.limits = limits;
    onDenied = options.onDenied;
    onFailure = options.onFailure;
  }

  /** Returns the options of a new filter. The subject is the client's address by default. */
  public static ThrottleFilterBuilder builder(Limiter limiter) {
    return new ThrottleFilterBuilder(limiter);
  }

  /**
   * Returns a key function for {@link ThrottleFilterBuilder#key} that joins the values of headers,
   * such as a tenant's and an API key's. Different values never make the same subject. A request
   * has no subject unless it has each of the headers exactly once.
   *
   * @throws InvalidArgumentException if there is no name, or if one is no name of a header
   */
  public static Function<HttpServletRequest, @Nullable String> keyOf(String... headers) {
    return KeyParts.ofHeaders(
        (request, name) -> Collections.list(request.getHeaders(name)), headers);
  }

  /** Returns the decision on a request; null if it was not limited. */
  public static @Nullable Decision decisionOf(ServletRequest request) {
    return (Decision) request.getAttribute(DECISION);
  }

  @Override
  public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    if (!(request instanceof HttpServletRequest httpRequest)
        || !(response instanceof HttpServletResponse httpResponse)) {
      chain.doFilter(request, response);
    } else if (request.getDispatcherType() == DispatcherType.REQUEST) {
      limit(httpRequest, httpResponse, chain);
    } else {
      run(mark(watchedAgain(httpRequest), null), httpResponse, chain);
    }
  }

  /** Runs the application, and responds to a denial that it throws. */
  private void run(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    try {
      chain.doFilter(request, response);
    } catch (IOException | ServletException | RuntimeException e) {
      DeniedException denied = DeniedException.in(e);
      if (denied == null || response.isCommitted() || request.isAsyncStarted()) {
        throw e;
      }
      response.resetBuffer();
      deny(request, response, denied.decision());
    }
  }

  /** Returns the request of a dispatch. An asynchronous one may be that of the container. */
  private HttpServletRequest watchedAgain(HttpServletRequest request) {
    return request.getDispatcherType() == DispatcherType.ASYNC
            && request.getAttribute(takenName) instanceof Taken taken
        ? watched(request, taken)
        : request;
  }

  private static HttpServletRequest watched(HttpServletRequest request, Taken taken) {
    return taken.needsWatch() ? new WatchedRequest(request, taken) : request;
  }

  /** Ends what asynchronous requests hold that the container no longer completes. */
  @Override
  public void destroy() {
    List<Taken> all;
    synchronized (pending) {
      all = List.copyOf(pending);
    }
    all.forEach(Taken::stop);
  }

  private void limit(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    Taken taken;
    try {
      List<Item> items = limits.items(request);
      if (items == null) {
        write(response, Problem.noSubject());
        return;
      }
      taken = items.isEmpty() ? null : new Taken(limits.take(request, items), response, pending);
    } catch (NoSubjectException e) {
      write(response, Problem.noSubject());
      return;
    } catch (RuntimeException e) {
      fail(request, response, e);
      return;
    }
    if (taken == null) {
      run(mark(request, null), response, chain);
    } else if (taken.decision().allowed()) {
      admit(taken, request, response, chain);
    } else {
      deny(request, response, taken.decision());
    }
  }

  private void admit(
      Taken taken, HttpServletRequest request, HttpServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    Throwable thrown = null;
    try {
      addFields(response, taken.decision());
      request.setAttribute(DECISION, taken.decision());
      request.setAttribute(takenName, taken);
      run(mark(watched(request, taken), taken.decision()), response, chain);
    } catch (Throwable e) {
      thrown = e;
      throw e;
    } finally {
      taken.endWith(request, thrown);
    }
  }

  private void fail(HttpServletRequest request, HttpServletResponse response, RuntimeException e)
      throws IOException {
    if (onFailure != null) {
      onFailure.answer(request, response, e);
      return;
    }
    LOG.log(Level.ERROR, "redis-throttle: a request could not be decided: " + e, e);
    write(response, Problem.undecided());
  }

  private void deny(HttpServletRequest request, HttpServletResponse response, Decision decision)
      throws IOException {
    addFields(response, decision);
    if (onDenied == null) {
      write(response, decision.problem());
      return;
    }
    response.setHeader("Cache-Control", "no-store");
    onDenied.answer(request, response, decision);
  }

  private void addFields(HttpServletResponse response, Decision decision) {
    limits.writeFields(decision, response::addHeader, response::setHeader);
  }

  private static void write(HttpServletResponse response, Problem problem) throws IOException {
    byte[] body = problem.json().getBytes(StandardCharsets.UTF_8);
    response.setStatus(problem.status());
    response.setContentType("application/problem+json");
    response.setHeader("Cache-Control", "no-store");
    // The response to HEAD has it, too.
    response.setContentLength(body.length);
    try {
      response.getOutputStream().write(body);
    } catch (IllegalStateException e) {
      // An outer filter has called getWriter. The body is ASCII.
      response.getWriter().write(problem.json());
    }
  }

  /** Returns the request for the application. Marks of other filters and dispatches stay. */
  private HttpServletRequest mark(HttpServletRequest request, @Nullable Decision decision) {
    String name = limits.degradedHeader();
    if (name == null) {
      return request;
    }
    String attribute = DEGRADED + name.toLowerCase(Locale.ROOT);
    boolean isDegraded =
        request.getAttribute(attribute) != null || decision != null && decision.degraded();
    request.setAttribute(attribute, isDegraded ? true : null);
    return new MarkedRequest(request, name, isDegraded ? "1" : null);
  }
}
