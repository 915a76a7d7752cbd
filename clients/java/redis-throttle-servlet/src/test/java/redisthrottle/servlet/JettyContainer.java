package redisthrottle.servlet;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.MultipartConfigElement;
import jakarta.servlet.http.HttpServlet;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.util.EnumSet;
import java.util.List;
import org.eclipse.jetty.ee10.servlet.ErrorPageErrorHandler;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/** Jetty 12. */
final class JettyContainer implements Container {
  private final Server server = new Server(new InetSocketAddress("127.0.0.1", 0));

  JettyContainer(HttpServlet servlet, List<Filter> filters, boolean hasAsync) throws Exception {
    ServletContextHandler context = new ServletContextHandler("/");
    ServletHolder holder = new ServletHolder(servlet);
    holder.setAsyncSupported(true);
    String folder = Files.createTempDirectory("redis-throttle-jetty").toString();
    holder.getRegistration().setMultipartConfig(new MultipartConfigElement(folder));
    context.addServlet(holder, "/*");
    for (Filter filter : filters) {
      FilterHolder around = new FilterHolder(filter);
      around.setAsyncSupported(hasAsync);
      context.addFilter(around, "/*", EnumSet.allOf(DispatcherType.class));
    }
    ErrorPageErrorHandler pages = new ErrorPageErrorHandler();
    pages.addErrorPage(418, "/page");
    context.setErrorHandler(pages);
    server.setHandler(context);
    server.start();
  }

  @Override
  public int port() {
    return ((ServerConnector) server.getConnectors()[0]).getLocalPort();
  }

  @Override
  public void stop() throws Exception {
    server.stop();
  }
}
