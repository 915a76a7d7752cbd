package redisthrottle.servlet;

import jakarta.servlet.Filter;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.List;

/**
 * A container with one application at all paths and filters around it, for all dispatcher types.
 * The status 418 has the error page {@code /page}. The system property {@code container} is {@code
 * jetty} or {@code tomcat}, the default.
 */
interface Container {
  int port();

  void stop() throws Exception;

  /** The application of a test. */
  interface Application {
    void respond(HttpServletRequest request, HttpServletResponse response)
        throws IOException, ServletException;
  }

  static boolean isJetty() {
    return System.getProperty("container", "tomcat").equals("jetty");
  }

  static Container start(Application application, List<Filter> filters, boolean hasAsync)
      throws Exception {
    HttpServlet servlet = new Adapter(application);
    return isJetty()
        ? new JettyContainer(servlet, filters, hasAsync)
        : new TomcatContainer(servlet, filters, hasAsync);
  }

  /** Runs the application. The response to HEAD is that of HttpServlet. */
  final class Adapter extends HttpServlet {
    private final transient Application application;

    Adapter(Application application) {
      this.application = application;
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
        throws IOException, ServletException {
      application.respond(request, response);
    }

    @Override
    protected void doPost(HttpServletRequest request, HttpServletResponse response)
        throws IOException, ServletException {
      application.respond(request, response);
    }
  }
}
