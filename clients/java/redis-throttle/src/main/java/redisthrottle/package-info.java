/**
 * Rate limits that a Redis or Valkey server decides. {@link redisthrottle.Limiter} is the entry; a
 * {@link redisthrottle.Rule} is a limit, and a {@link redisthrottle.Decision} the result of a call.
 */
@NullMarked
package redisthrottle;

import org.jspecify.annotations.NullMarked;
