/** The adapter for Lettuce. {@link redisthrottle.lettuce.LettuceConnector} is the entry. */
@NullMarked
package redisthrottle.lettuce;

import org.jspecify.annotations.NullMarked;
