package redisthrottle.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationPropertiesBindHandlerAdvisor;
import org.springframework.boot.context.properties.bind.AbstractBindHandler;
import org.springframework.boot.context.properties.bind.BindContext;
import org.springframework.boot.context.properties.bind.BindHandler;
import org.springframework.boot.context.properties.bind.Bindable;
import org.springframework.boot.context.properties.bind.UnboundConfigurationPropertiesException;
import org.springframework.boot.context.properties.source.ConfigurationPropertyName;

/**
 * Checks the properties while they are bound. Stops the start for a duration without a unit: Spring
 * Boot reads it as milliseconds, so that a period of 60, meant as a minute, would limit practically
 * nothing. Names the property that an unknown one may mean.
 */
final class PropertyChecks implements ConfigurationPropertiesBindHandlerAdvisor {
  private static final ConfigurationPropertyName PREFIX = ConfigurationPropertyName.of("throttle");

  @Override
  public BindHandler apply(BindHandler parent) {
    return new AbstractBindHandler(parent) {
      @Override
      public Object onSuccess(
          ConfigurationPropertyName name, Bindable<?> target, BindContext context, Object result) {
        if (result instanceof Duration && PREFIX.isAncestorOf(name)) {
          // The text after the placeholders, which the property itself still has.
          context
              .getBinder()
              .bind(name, Bindable.of(String.class))
              .ifBound(text -> check(name, text));
        }
        return super.onSuccess(name, target, context, result);
      }

      @Override
      public void onFinish(
          ConfigurationPropertyName name, Bindable<?> target, BindContext context, Object result)
          throws Exception {
        try {
          super.onFinish(name, target, context, result);
        } catch (UnboundConfigurationPropertiesException e) {
          throw PREFIX.equals(name) ? new UnknownPropertyException(e) : e;
        }
      }
    };
  }

  private static void check(ConfigurationPropertyName name, String text) {
    String number = text.trim();
    if (number.matches("[+-]?[0-9]+")) {
      throw new PropertyException(
          name.toString(), "expected a duration with its unit, such as " + number + "s");
    }
  }
}
