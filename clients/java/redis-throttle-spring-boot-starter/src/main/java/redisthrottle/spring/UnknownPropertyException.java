package redisthrottle.spring;

import java.lang.reflect.RecordComponent;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.context.properties.bind.UnboundConfigurationPropertiesException;
import org.springframework.boot.context.properties.source.ConfigurationProperty;
import org.springframework.boot.context.properties.source.ConfigurationPropertyName;
import org.springframework.boot.context.properties.source.ConfigurationPropertyName.Form;

/** Thrown at the start for unknown properties. Its message names those with a similar name. */
final class UnknownPropertyException extends UnboundConfigurationPropertiesException {
  private final String message;

  UnknownPropertyException(UnboundConfigurationPropertiesException error) {
    super(error.getUnboundProperties());
    StringBuilder all = new StringBuilder(String.valueOf(error.getMessage()));
    for (ConfigurationProperty property : error.getUnboundProperties()) {
      String meant = nearest(property.getName());
      all.append(meant == null ? "" : " Perhaps " + meant + " is meant.");
    }
    message = all.toString();
  }

  @Override
  public String getMessage() {
    return message;
  }

  /** Returns the property at the same place with the most similar name; null without one. */
  private static @Nullable String nearest(ConfigurationPropertyName unknown) {
    Class<?> form = form(unknown);
    if (form == null) {
      return null;
    }
    String given = unknown.getLastElement(Form.DASHED);
    String nearest = null;
    int least = given.length() <= 3 ? 2 : 3;
    for (RecordComponent known : form.getRecordComponents()) {
      String name = PropertyException.kebab(known.getName());
      int changes = changes(given, name);
      if (changes < least) {
        least = changes;
        nearest = name;
      }
    }
    return nearest == null ? null : unknown.getParent() + "." + nearest;
  }

  private static @Nullable Class<?> form(ConfigurationPropertyName name) {
    if (name.getNumberOfElements() == 2) {
      return ThrottleProperties.class;
    }
    if (name.getNumberOfElements() != 4) {
      return null;
    }
    boolean isRoute = name.getElement(1, Form.UNIFORM).equals("routes");
    return isRoute ? ThrottleProperties.RouteProperties.class : RuleProperties.class;
  }

  /** Returns the letters to insert, remove or replace to make one text the other. */
  private static int changes(String from, String to) {
    int[] row = new int[to.length() + 1];
    for (int at = 0; at < row.length; at++) {
      row[at] = at;
    }
    for (int one = 1; one <= from.length(); one++) {
      int diagonal = row[0];
      row[0] = one;
      for (int two = 1; two < row.length; two++) {
        int replaced = diagonal + (from.charAt(one - 1) == to.charAt(two - 1) ? 0 : 1);
        diagonal = row[two];
        row[two] = Math.min(replaced, 1 + Math.min(diagonal, row[two - 1]));
      }
    }
    return row[to.length()];
  }
}
