package redisthrottle.servlet;

import jakarta.servlet.http.HttpServletRequest;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.function.Function;
import redisthrottle.Limiter;
import redisthrottle.ResponseCases;

/** Runs the shared responses through the filter in a container. */
class ResponsesTest extends ResponseCases<HttpServletRequest, ThrottleFilterBuilder> {
  @Override
  protected ThrottleFilterBuilder builder(Limiter limiter, Integer onDenied) {
    ThrottleFilterBuilder builder = ThrottleFilter.builder(limiter);
    return onDenied == null
        ? builder
        : builder.onDenied((request, response, decision) -> response.setStatus(onDenied));
  }

  @Override
  protected Function<HttpServletRequest, String> keyOf(String... headers) {
    return ThrottleFilter.keyOf(headers);
  }

  @Override
  protected HttpResponse<String> request(
      ThrottleFilterBuilder options, String degradedHeader, int status, String... fields)
      throws Exception {
    Container.Application application =
        (request, response) -> {
          served(ThrottleFilter.decisionOf(request), request.getHeader(degradedHeader));
          response.setStatus(status);
        };
    Container container = Container.start(application, List.of(options.build()), true);
    try {
      URI uri = URI.create("http://127.0.0.1:" + container.port());
      HttpRequest.Builder request = HttpRequest.newBuilder(uri);
      request = fields.length == 0 ? request : request.headers(fields);
      return WebTest.HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
    } finally {
      container.stop();
    }
  }
}
