package redisthrottle.servlet;

import jakarta.servlet.AsyncContext;
import jakarta.servlet.RequestDispatcher;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletInputStream;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.Part;
import java.io.BufferedReader;
import java.io.FilterReader;
import java.io.IOException;
import java.io.Reader;
import java.util.Collection;
import java.util.Enumeration;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import redisthrottle.middleware.ClientGone;

/** A request that notes when its client cuts the body, and when the application ends. */
final class WatchedRequest extends HttpServletRequestWrapper {
  private final Taken taken;
  private @Nullable ServletInputStream stream;
  private @Nullable BufferedReader reader;

  WatchedRequest(HttpServletRequest request, Taken taken) {
    super(request);
    this.taken = taken;
    // An outer filter may have read a form.
    noteCut(null);
  }

  @Override
  public ServletInputStream getInputStream() throws IOException {
    if (stream == null) {
      stream = new WatchedStream(super.getInputStream(), taken);
    }
    return stream;
  }

  @Override
  public BufferedReader getReader() throws IOException {
    if (reader == null) {
      reader = new BufferedReader(new WatchedReader(super.getReader(), taken));
    }
    return reader;
  }

  private static final class WatchedReader extends FilterReader {
    private final Taken taken;

    WatchedReader(Reader reader, Taken taken) {
      super(reader);
      this.taken = taken;
    }

    @Override
    public int read() throws IOException {
      return WatchedStream.read(super::read, taken);
    }

    @Override
    public int read(char[] buffer, int offset, int length) throws IOException {
      return WatchedStream.read(() -> super.read(buffer, offset, length), taken);
    }
  }

  @Override
  public @Nullable String getParameter(String name) {
    return parsed(() -> super.getParameter(name));
  }

  @Override
  public String @Nullable [] getParameterValues(String name) {
    return parsed(() -> super.getParameterValues(name));
  }

  @Override
  public Enumeration<String> getParameterNames() {
    return parsed(super::getParameterNames);
  }

  @Override
  public Map<String, String[]> getParameterMap() {
    return parsed(super::getParameterMap);
  }

  @Override
  public Collection<Part> getParts() throws IOException, ServletException {
    return this.<Collection<Part>, IOException, ServletException>parsed(super::getParts);
  }

  @Override
  public @Nullable Part getPart(String name) throws IOException, ServletException {
    return this.<@Nullable Part, IOException, ServletException>parsed(() -> super.getPart(name));
  }

  /** A call that reads a form. */
  private interface Form<T, E extends Exception, F extends Exception> {
    T read() throws E, F;
  }

  /** Returns a part of a form, which may have to be read. */
  private <T, E extends Exception, F extends Exception> T parsed(Form<T, E, F> form) throws E, F {
    taken.reading();
    try {
      T found = form.read();
      noteCut(null);
      return found;
    } catch (Exception e) {
      noteCut(e);
      throw e;
    }
  }

  private void noteCut(@Nullable Exception thrown) {
    // Tomcat keeps the cause there. It throws another exception, or for a form none.
    boolean isHidden =
        getAttribute(RequestDispatcher.ERROR_EXCEPTION) instanceof Throwable hidden
            && ClientGone.isReportedBy(hidden);
    if (isHidden || thrown != null && ClientGone.isReportedBy(thrown)) {
      taken.cut();
    }
  }

  @Override
  public AsyncContext startAsync() {
    return new WatchedContext(super.startAsync(), taken);
  }

  @Override
  public AsyncContext startAsync(ServletRequest request, ServletResponse response) {
    return new WatchedContext(super.startAsync(request, response), taken);
  }

  @Override
  public AsyncContext getAsyncContext() {
    return new WatchedContext(super.getAsyncContext(), taken);
  }
}
