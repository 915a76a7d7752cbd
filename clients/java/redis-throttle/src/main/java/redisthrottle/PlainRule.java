package redisthrottle;

/** A rule without options of its kind. */
final class PlainRule extends BaseRule {
  PlainRule(Definition definition) {
    super(definition);
  }

  @Override
  BaseRule with(Definition other) {
    return new PlainRule(other);
  }
}
