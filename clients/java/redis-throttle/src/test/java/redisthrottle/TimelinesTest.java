package redisthrottle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Runs the timelines and the events of cases.json, which say what happens when. */
class TimelinesTest {
  @TestFactory
  Stream<DynamicTest> timelines() {
    List<DynamicTest> tests = new ArrayList<>();
    for (JsonNode one : SharedCases.ALL.get("timelines")) {
      boolean isForJava = !one.has("languages");
      for (JsonNode language : one.path("languages")) {
        isForJava |= language.asText().equals("java");
      }
      if (isForJava) {
        String name = one.get("name").asText();
        tests.add(DynamicTest.dynamicTest(name, () -> new TimelineRunner(one).run()));
      }
    }
    return tests.stream();
  }

  @TestFactory
  Stream<DynamicTest> events() {
    return EventCases.tests(EventCases::events);
  }
}
