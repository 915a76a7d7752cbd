package redisthrottle;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/** Keeps the records of a logger until it is closed. */
public final class LogLines extends Handler implements AutoCloseable {
  private final List<LogRecord> records = new CopyOnWriteArrayList<>();
  private final Logger logger;

  private LogLines(Logger logger) {
    this.logger = logger;
  }

  /** Begins to keep the records of a logger. */
  public static LogLines of(String name) {
    LogLines lines = new LogLines(Logger.getLogger(name));
    lines.logger.addHandler(lines);
    return lines;
  }

  /** Returns the records, in order. */
  public List<LogRecord> records() {
    return records;
  }

  /** Returns the messages of the records. */
  public List<String> texts() {
    return records.stream().map(LogRecord::getMessage).toList();
  }

  @Override
  public void publish(LogRecord one) {
    records.add(one);
  }

  @Override
  public void flush() {}

  @Override
  public void close() {
    logger.removeHandler(this);
  }
}
