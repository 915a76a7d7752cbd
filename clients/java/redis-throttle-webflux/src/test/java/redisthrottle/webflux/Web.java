package redisthrottle.webflux;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import org.springframework.core.io.buffer.DataBuffer;
import org.springframework.http.HttpStatus;
import org.springframework.http.server.reactive.ReactorHttpHandlerAdapter;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.adapter.WebHttpHandlerBuilder;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.netty.DisposableServer;
import reactor.netty.http.server.HttpServer;
import reactor.netty.resources.LoopResources;

/** An application of WebFlux with filters, in a server that has one event loop. */
final class Web implements AutoCloseable {
  private static final HttpClient HTTP = HttpClient.newHttpClient();

  /** The exchanges that the application served, in order. */
  final LinkedBlockingQueue<ServerWebExchange> served = new LinkedBlockingQueue<>();

  /** Ends the responses of {@code /wait}. */
  final CompletableFuture<Void> ending = new CompletableFuture<>();

  private final LoopResources loop = LoopResources.create("web", 1, true);
  private final DisposableServer server;

  private Web(WebFilter... filters) {
    var handler = WebHttpHandlerBuilder.webHandler(this::respond).filters(all -> add(all, filters));
    server =
        HttpServer.create()
            .runOn(loop)
            .host("127.0.0.1")
            .port(0)
            .handle(new ReactorHttpHandlerAdapter(handler.build()))
            .bindNow();
  }

  private static void add(List<WebFilter> all, WebFilter... filters) {
    all.addAll(List.of(filters));
  }

  static Web serve(WebFilter... filters) {
    return new Web(filters);
  }

  private Mono<Void> respond(ServerWebExchange exchange) {
    served.add(exchange);
    ServerHttpResponse response = exchange.getResponse();
    return switch (exchange.getRequest().getPath().value()) {
      case "/wait" -> Mono.fromFuture(ending, true);
      case "/body" -> refusing(response, exchange.getRequest().getBody());
      case "/form" -> refusing(response, exchange.getFormData().flux());
      case "/parts" -> refusing(response, exchange.getMultipartData().flux());
      case "/failure" -> Mono.error(new IllegalStateException("of the application"));
      case "/timeout" -> Mono.<Void>never().timeout(Duration.ofMillis(50));
      case "/stream" -> response.writeAndFlushWith(parts(response, Flux.never()));
      case "/cut" ->
          response.writeAndFlushWith(parts(response, Flux.error(new IOException("cut"))));
      case "/status" -> {
        response.setStatusCode(HttpStatus.UNAUTHORIZED);
        yield Mono.empty();
      }
      default -> response.writeWith(Mono.just(part(response)));
    };
  }

  /** Responds with 400 if a body cannot be read. */
  private static Mono<Void> refusing(ServerHttpResponse response, Flux<?> body) {
    return body.then()
        .onErrorResume(
            error -> {
              response.setStatusCode(HttpStatus.BAD_REQUEST);
              return response.setComplete();
            });
  }

  private static Flux<Mono<DataBuffer>> parts(ServerHttpResponse response, Flux<DataBuffer> rest) {
    return Flux.concat(Mono.just(part(response)), rest).map(Mono::just);
  }

  private static DataBuffer part(ServerHttpResponse response) {
    return response.bufferFactory().wrap("part".getBytes(StandardCharsets.US_ASCII));
  }

  private HttpRequest request(String method, String path, String... fields) {
    URI uri = URI.create("http://127.0.0.1:" + server.port() + path);
    HttpRequest.Builder request =
        HttpRequest.newBuilder(uri).method(method, HttpRequest.BodyPublishers.noBody());
    return (fields.length == 0 ? request : request.headers(fields)).build();
  }

  /** Requests a path with header fields: names and values in turn. */
  HttpResponse<String> get(String path, String... fields) {
    return send("GET", path, fields);
  }

  HttpResponse<String> send(String method, String path, String... fields) {
    try {
      return HTTP.send(request(method, path, fields), HttpResponse.BodyHandlers.ofString());
    } catch (IOException | InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  CompletableFuture<HttpResponse<String>> begin(String path) {
    return HTTP.sendAsync(request("GET", path), HttpResponse.BodyHandlers.ofString());
  }

  /** Sends a request through a socket, which the caller closes. */
  Socket open(String path) throws IOException {
    return openWith("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
  }

  /** Sends the bytes of Latin-1 text through a socket, which the caller closes. */
  Socket openWith(String text) throws IOException {
    Socket socket = new Socket(InetAddress.getLoopbackAddress(), server.port());
    socket.getOutputStream().write(text.getBytes(StandardCharsets.ISO_8859_1));
    return socket;
  }

  /** Reads from a socket until a text has arrived. */
  static void readUntil(Socket socket, String text) throws IOException {
    StringBuilder all = new StringBuilder();
    InputStream in = socket.getInputStream();
    while (all.indexOf(text) < 0) {
      int next = in.read();
      if (next < 0) {
        throw new AssertionError("the end after: " + all);
      }
      all.append((char) next);
    }
  }

  @Override
  public void close() {
    ending.complete(null);
    server.disposeNow(Duration.ofMinutes(1));
    loop.dispose();
  }
}
