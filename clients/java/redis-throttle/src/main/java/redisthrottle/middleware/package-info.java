/** The parts that all middlewares share. An application uses the module of its framework. */
@NullMarked
package redisthrottle.middleware;

import org.jspecify.annotations.NullMarked;
