/**
 * What the middlewares of all frameworks share. An application uses the module of its framework.
 */
@NullMarked
package redisthrottle.middleware;

import org.jspecify.annotations.NullMarked;
