package example;

import jakarta.servlet.http.HttpServletResponse;
import java.time.Duration;
import java.util.List;
import java.util.stream.Stream;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatus;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;
import redisthrottle.Admission;
import redisthrottle.CalendarUnit;
import redisthrottle.DeniedException;
import redisthrottle.Item;
import redisthrottle.Limiter;
import redisthrottle.OnError;
import redisthrottle.Problem;
import redisthrottle.Rule;

/**
 * Chats: two at once, 1,000 tokens per minute, 10,000 per month. Tokens cost money: if Redis is
 * down, no chat is served.
 */
@RestController
class Chat {
  private static final Rule CHATS = Rule.lease("chats", 2, Duration.ofSeconds(30));
  private static final Rule TOKENS = Rule.tokenBucket("tokens", 1000, 1000, Duration.ofMinutes(1));
  private static final Rule BUDGET =
      Rule.quota("budget", 10_000, CalendarUnit.MONTH).onError(OnError.DENY);

  private final Limiter limiter;

  Chat(Limiter limiter) {
    this.limiter = limiter;
  }

  /**
   * The end of a chat.
   *
   * @param remaining the units left under the rule that decided
   * @param words the number of words of the reply
   */
  record ChatEnd(long remaining, long words) {}

  /** Takes the estimated tokens of a reply, and settles those that it took. */
  @PostMapping("/chat")
  ChatEnd chat(
      @RequestHeader(name = "X-Api-Key", defaultValue = "") String key,
      @RequestParam(defaultValue = "") String estimate,
      @RequestParam(defaultValue = "") String words,
      HttpServletResponse response) {
    if (key.isEmpty() || !isNumber(estimate) || !isNumber(words)) {
      throw new ResponseStatusException(
          HttpStatus.BAD_REQUEST, "expected X-Api-Key, estimate and words");
    }
    long units = Long.parseLong(estimate);
    List<Item> items =
        List.of(CHATS.of(key), TOKENS.of(key).cost(units), BUDGET.of(key).reserve(units));
    try (Admission admitted = limiter.admit(items)) {
      long written = model(Long.parseLong(words)).count();
      admitted.settle(TOKENS, written);
      admitted.settle(BUDGET, written);
      admitted.decision().headers().forEach(response::setHeader);
      return new ChatEnd(admitted.decision().remaining(), written);
    }
  }

  /** Responds to a denial as the filter does. */
  @ExceptionHandler
  ResponseEntity<String> deny(DeniedException denied) {
    Problem problem = denied.decision().problem();
    HttpHeaders headers = new HttpHeaders();
    headers.setAll(denied.decision().headers());
    headers.setCacheControl("no-store");
    headers.setContentType(MediaType.APPLICATION_PROBLEM_JSON);
    return new ResponseEntity<>(problem.json(), headers, problem.status());
  }

  @ExceptionHandler
  ResponseEntity<String> refuse(ResponseStatusException invalid) {
    return ResponseEntity.status(invalid.getStatusCode())
        .contentType(MediaType.parseMediaType("text/plain; charset=utf-8"))
        .body(invalid.getReason());
  }

  private static boolean isNumber(String text) {
    return text.matches("[0-9]{1,4}");
  }

  /** Stands for a language model. */
  private static Stream<String> model(long words) {
    return Stream.generate(() -> "word").limit(words);
  }
}
