package redisthrottle.lettuce;

import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Reads a reply of any form: an integer, a text, nothing, or a list of these. */
final class ReplyOutput extends CommandOutput<String, String, @Nullable Object> {
  /** A list that is not complete. */
  private static final class Open {
    final List<@Nullable Object> list;

    /** The list that this one is in. */
    final @Nullable Open outer;

    int left;

    Open(List<@Nullable Object> list, @Nullable Open outer, int left) {
      this.list = list;
      this.outer = outer;
      this.left = left;
    }
  }

  /** The innermost list that is not complete. */
  private @Nullable Open open;

  ReplyOutput() {
    super(StringCodec.UTF8, null);
  }

  private void add(@Nullable Object value) {
    Open last = open;
    if (last == null) {
      output = value;
    } else {
      last.list.add(value);
      last.left--;
    }
    closeFull();
  }

  private void closeFull() {
    while (open != null && open.left == 0) {
      open = open.outer;
    }
  }

  @Override
  public void multi(int count) {
    if (count < 0) {
      add(null);
      return;
    }
    List<@Nullable Object> list = new ArrayList<>(Math.min(count, 64));
    Open last = open;
    if (last == null) {
      output = list;
    } else {
      last.list.add(list);
      last.left--;
    }
    open = new Open(list, last, count);
    closeFull();
  }

  @Override
  public void set(@Nullable ByteBuffer bytes) {
    add(bytes == null ? null : codec.decodeValue(bytes));
  }

  @Override
  public void set(long integer) {
    add(integer);
  }

  @Override
  public void set(double number) {
    add(Double.toString(number));
  }

  @Override
  public void set(boolean value) {
    add(Boolean.toString(value));
  }
}
