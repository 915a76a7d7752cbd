/** A WebFlux filter that limits requests: {@link redisthrottle.webflux.ThrottleWebFilter}. */
@NullMarked
package redisthrottle.webflux;

import org.jspecify.annotations.NullMarked;
