package redisthrottle.bench;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;

/**
 * A line of the input.
 *
 * @param scenario selects the way of measuring
 * @param keys the number of keys that callers choose from; 0 for one key
 * @param isCold true to count from the first call of the process
 * @param calls of the scenario {@code local}
 * @param denials of the scenario {@code forget}
 */
@JsonIgnoreProperties(ignoreUnknown = true)
record Job(
    String scenario,
    String contestant,
    String key,
    double seconds,
    @JsonProperty("in_flight") int inFlight,
    int keys,
    long limit,
    @JsonProperty("period_s") long periodS,
    @JsonProperty("denial_cache") boolean hasDenialCache,
    int prefetch,
    @JsonProperty("cold") boolean isCold,
    int calls,
    int denials) {
  static final ObjectMapper JSON = new ObjectMapper();

  static Job of(String line) {
    try {
      return JSON.readValue(line, Job.class);
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException("invalid job: expected JSON, not " + line, e);
    }
  }

  Duration period() {
    return Duration.ofSeconds(periodS);
  }
}
