package redisthrottle.spring;

import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;

/** Reports a wrong property at the start without a stack trace. */
final class PropertyFailureAnalyzer extends AbstractFailureAnalyzer<PropertyException> {
  @Override
  protected FailureAnalysis analyze(Throwable failure, PropertyException cause) {
    String action = "Correct the property " + cause.property() + ".";
    return new FailureAnalysis(cause.getMessage(), action, cause);
  }
}
