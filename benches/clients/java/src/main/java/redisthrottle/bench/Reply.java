package redisthrottle.bench;

import com.fasterxml.jackson.annotation.JsonProperty;

/**
 * A line of the output.
 *
 * @param warmCalls the calls before those that are measured
 * @param allocatedBytes the bytes that the process allocated for each call
 */
record Reply(
    long calls,
    @JsonProperty("warm_calls") long warmCalls,
    double seconds,
    @JsonProperty("cpu_seconds") double cpuSeconds,
    @JsonProperty("p50_us") double p50Us,
    @JsonProperty("p99_us") double p99Us,
    long allowed,
    long denied,
    long errors,
    @JsonProperty("allocated_bytes") double allocatedBytes) {
  static Reply ofMedian(double p50Us, long errors) {
    return new Reply(0, 0, 0, 0, p50Us, p50Us, 0, 0, errors, 0);
  }
}
