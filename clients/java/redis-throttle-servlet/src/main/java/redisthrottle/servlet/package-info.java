/** A servlet filter that limits requests: {@link redisthrottle.servlet.ThrottleFilter}. */
@NullMarked
package redisthrottle.servlet;

import org.jspecify.annotations.NullMarked;
