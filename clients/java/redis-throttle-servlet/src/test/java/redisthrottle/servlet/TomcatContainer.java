package redisthrottle.servlet;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.MultipartConfigElement;
import jakarta.servlet.http.HttpServlet;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.catalina.Context;
import org.apache.catalina.Wrapper;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.ErrorPage;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;

/** Tomcat 10.1 or 11. */
final class TomcatContainer implements Container {
  private final Tomcat tomcat = new Tomcat();

  TomcatContainer(HttpServlet servlet, List<Filter> filters, boolean hasAsync) throws Exception {
    Path folder = Files.createTempDirectory("redis-throttle-tomcat");
    tomcat.setBaseDir(folder.toString());
    tomcat.setHostname("127.0.0.1");
    tomcat.setPort(0);
    Context context = tomcat.addContext("", folder.toString());
    Wrapper wrapper = Tomcat.addServlet(context, "application", servlet);
    wrapper.setAsyncSupported(true);
    wrapper.setMultipartConfigElement(new MultipartConfigElement(folder.toString()));
    context.addServletMappingDecoded("/*", "application");
    for (Filter filter : filters) {
      add(context, filter, hasAsync);
    }
    ErrorPage page = new ErrorPage();
    page.setErrorCode(418);
    page.setLocation("/page");
    context.addErrorPage(page);
    tomcat.getConnector();
    tomcat.start();
  }

  private static void add(Context context, Filter filter, boolean hasAsync) {
    FilterDef definition = new FilterDef();
    definition.setFilterName("filter" + context.findFilterDefs().length);
    definition.setFilter(filter);
    definition.setAsyncSupported(Boolean.toString(hasAsync));
    context.addFilterDef(definition);
    FilterMap map = new FilterMap();
    map.setFilterName(definition.getFilterName());
    map.addURLPattern("/*");
    for (DispatcherType type : DispatcherType.values()) {
      map.setDispatcher(type.name());
    }
    context.addFilterMap(map);
  }

  @Override
  public int port() {
    return tomcat.getConnector().getLocalPort();
  }

  @Override
  public void stop() throws Exception {
    tomcat.stop();
    tomcat.destroy();
  }
}
