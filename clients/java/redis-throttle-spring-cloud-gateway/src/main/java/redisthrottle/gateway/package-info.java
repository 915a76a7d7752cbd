/** Limits the routes of Spring Cloud Gateway. */
@org.jspecify.annotations.NullMarked
package redisthrottle.gateway;
