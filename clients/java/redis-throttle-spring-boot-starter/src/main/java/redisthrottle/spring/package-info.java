/** The starter for Spring Boot: {@link redisthrottle.spring.ThrottleProperties}. */
@NullMarked
package redisthrottle.spring;

import org.jspecify.annotations.NullMarked;
