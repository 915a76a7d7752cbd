package redisthrottle.servlet;

import jakarta.servlet.ReadListener;
import jakarta.servlet.ServletInputStream;
import java.io.IOException;

/** The body of a request, which notes that its client has cut it. */
final class WatchedStream extends ServletInputStream {
  /** A call that reads. */
  interface Read {
    int run() throws IOException;
  }

  private final ServletInputStream stream;
  private final Taken taken;
  private boolean isClosed;

  WatchedStream(ServletInputStream stream, Taken taken) {
    this.stream = stream;
    this.taken = taken;
  }

  /** Reads, and notes an error. */
  static int read(Read read, Taken taken) throws IOException {
    taken.reading();
    try {
      return read.run();
    } catch (IOException e) {
      taken.cut();
      throw e;
    }
  }

  private int read(Read read) throws IOException {
    // Reading after the end is an error of the application.
    return isClosed ? read.run() : read(read, taken);
  }

  @Override
  public int read() throws IOException {
    return read(stream::read);
  }

  @Override
  public int read(byte[] buffer, int offset, int length) throws IOException {
    return read(() -> stream.read(buffer, offset, length));
  }

  @Override
  public int available() throws IOException {
    return stream.available();
  }

  @Override
  public void close() throws IOException {
    isClosed = true;
    stream.close();
  }

  @Override
  public boolean isFinished() {
    return stream.isFinished();
  }

  @Override
  public boolean isReady() {
    return stream.isReady();
  }

  @Override
  public void setReadListener(ReadListener listener) {
    stream.setReadListener(
        new ReadListener() {
          @Override
          public void onDataAvailable() throws IOException {
            listener.onDataAvailable();
          }

          @Override
          public void onAllDataRead() throws IOException {
            listener.onAllDataRead();
          }

          @Override
          public void onError(Throwable error) {
            taken.cut();
            listener.onError(error);
          }
        });
  }
}
