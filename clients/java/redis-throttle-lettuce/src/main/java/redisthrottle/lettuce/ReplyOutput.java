package redisthrottle.lettuce;

import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Reads a reply of any form: an integer, a text, nothing, or a list of these. */
final class ReplyOutput extends CommandOutput<String, String, @Nullable Object> {
  /** A list that is not complete. */
  private static final class Open {
    final List<@Nullable Object> list;
    int left;

    Open(List<@Nullable Object> list, int left) {
      this.list = list;
      this.left = left;
    }
  }

  private final Deque<Open> open = new ArrayDeque<>();

  ReplyOutput() {
    super(StringCodec.UTF8, null);
  }

  private void add(@Nullable Object value) {
    Open last = open.peek();
    if (last == null) {
      output = value;
    } else {
      last.list.add(value);
      last.left--;
    }
    closeFull();
  }

  private void closeFull() {
    for (Open last = open.peek(); last != null && last.left == 0; last = open.peek()) {
      open.pop();
    }
  }

  @Override
  public void multi(int count) {
    if (count < 0) {
      add(null);
      return;
    }
    List<@Nullable Object> list = new ArrayList<>(Math.min(count, 64));
    Open last = open.peek();
    if (last == null) {
      output = list;
    } else {
      last.list.add(list);
      last.left--;
    }
    open.push(new Open(list, count));
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
