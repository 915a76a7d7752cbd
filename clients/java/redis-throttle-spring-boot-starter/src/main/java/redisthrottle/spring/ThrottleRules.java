package redisthrottle.spring;

import java.util.Map;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.beans.factory.config.ConstructorArgumentValues;
import org.springframework.beans.factory.support.AutowireCandidateQualifier;
import org.springframework.beans.factory.support.BeanDefinitionRegistry;
import org.springframework.beans.factory.support.RootBeanDefinition;
import org.springframework.boot.context.properties.bind.Bindable;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.context.annotation.ImportBeanDefinitionRegistrar;
import org.springframework.core.env.Environment;
import org.springframework.core.type.AnnotationMetadata;
import redisthrottle.Kind;
import redisthrottle.Rule;

/** The rules of the properties. */
final class ThrottleRules {
  /** The name of the bean. */
  static final String BEAN = "throttleRules";

  /** Returns the name of a rule's bean. */
  static String beanOf(String rule) {
    return "throttleRule." + rule;
  }

  private final Map<String, RuleProperties> all;

  ThrottleRules(ThrottleProperties properties) {
    all = properties.rules();
  }

  /** Returns a rule of the properties. It is the factory method of the beans. */
  Rule rule(String name) {
    RuleProperties given = all.get(name);
    if (given == null) {
      throw new PropertyException("throttle.rules." + name, "no such rule");
    }
    return new RuleForm(name, given, other -> fallback(name, other)).rule();
  }

  private Rule fallback(String policy, String name) {
    RuleProperties other = all.get(name);
    if (other == null || other.algorithm() == Kind.POLICY) {
      throw new PropertyException(
          "throttle.rules." + policy + ".fallback", "expected a rule that is no policy");
    }
    return rule(name);
  }

  /**
   * Registers a bean of each rule. Its name has a prefix, because an application may have another
   * bean of the rule's name; the qualifier is the rule's name.
   */
  static final class Registrar implements ImportBeanDefinitionRegistrar {
    private final Environment environment;

    Registrar(Environment environment) {
      this.environment = environment;
    }

    @Override
    public void registerBeanDefinitions(
        AnnotationMetadata importing, BeanDefinitionRegistry registry) {
      Bindable<Map<String, Object>> names = Bindable.mapOf(String.class, Object.class);
      Binder.get(environment)
          .bind("throttle.rules", names)
          .ifBound(rules -> rules.keySet().forEach(name -> register(name, registry)));
    }

    private static void register(String name, BeanDefinitionRegistry registry) {
      RootBeanDefinition definition = new RootBeanDefinition();
      definition.setTargetType(Rule.class);
      definition.setFactoryBeanName(BEAN);
      definition.setFactoryMethodName("rule");
      ConstructorArgumentValues arguments = new ConstructorArgumentValues();
      arguments.addIndexedArgumentValue(0, name);
      definition.setConstructorArgumentValues(arguments);
      definition.addQualifier(new AutowireCandidateQualifier(Qualifier.class, name));
      registry.registerBeanDefinition(beanOf(name), definition);
    }
  }
}
