package redisthrottle.pages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;
import redisthrottle.Decision;
import redisthrottle.DeniedException;
import redisthrottle.Limiter;
import redisthrottle.OnError;
import redisthrottle.Rule;
import redisthrottle.lettuce.LettuceConnector;
import redisthrottle.lettuce.Server;
import redisthrottle.servlet.ThrottleFilter;

/**
 * Runs the programs in Java of the repository's pages. A program is a block that names the client;
 * the blocks of a driver alone belong to tests/snippets.rs.
 */
class PagesTest {
  private static final Path ROOT = Path.of("../../..").toAbsolutePath().normalize();
  private static final Pattern BLOCK = Pattern.compile("(?ms)^```java\n(.*?)^```$");
  private static final Pattern YAML = Pattern.compile("(?ms)^```yaml\n(throttle:\n.*?)^```$");
  private static final Pattern CLASS = Pattern.compile("(?m)^(?:public )?(?:final )?class (\\w+)");
  private static final Set<String> SKIPPED = Set.of("dist", "node_modules", "target");

  /** The words that a quick start prints. */
  private static final String PRINTED = "allowed, 9 left\n";

  @TempDir Path folder;

  /** A program of a page, and the name of its class. */
  private record Program(String place, String name, String text) {
    boolean isMain() {
      return text.contains("static void main(");
    }
  }

  private static List<Program> programs() throws IOException {
    List<Program> found = new ArrayList<>();
    for (Path page : pages()) {
      String text = Files.readString(page);
      Matcher blocks = BLOCK.matcher(text);
      while (blocks.find()) {
        String block = blocks.group(1);
        Matcher name = CLASS.matcher(block);
        if (block.contains("redisthrottle.")) {
          long line = text.substring(0, blocks.start()).lines().count() + 1;
          String place = ROOT.relativize(page) + ":" + line;
          assertTrue(name.find(), place + " has no class");
          found.add(new Program(place, name.group(1), block));
        }
      }
    }
    return found;
  }

  private static List<Path> pages() throws IOException {
    List<Path> found = new ArrayList<>();
    Files.walkFileTree(
        ROOT,
        new SimpleFileVisitor<>() {
          @Override
          public FileVisitResult preVisitDirectory(Path path, BasicFileAttributes attributes) {
            String name = path.getFileName().toString();
            boolean isSkipped = SKIPPED.contains(name) || name.startsWith(".");
            return isSkipped && !path.equals(ROOT)
                ? FileVisitResult.SKIP_SUBTREE
                : FileVisitResult.CONTINUE;
          }

          @Override
          public FileVisitResult visitFile(Path path, BasicFileAttributes attributes) {
            if (path.toString().endsWith(".md")) {
              found.add(path);
            }
            return FileVisitResult.CONTINUE;
          }
        });
    return found;
  }

  @Test
  void the_pages_have_programs() throws IOException {
    List<String> places = programs().stream().map(Program::place).toList();
    for (String page : List.of("clients/java/README.md", "docs/clients/java.md")) {
      assertTrue(places.stream().anyMatch(place -> place.startsWith(page + ":")), page);
    }
  }

  @TestFactory
  Stream<DynamicTest> programs_run() throws IOException {
    return programs().stream()
        .map(program -> DynamicTest.dynamicTest(program.place(), () -> run(program)));
  }

  private void run(Program program) throws Exception {
    Path classes = Files.createTempDirectory(folder, program.name());
    try (Server server = server()) {
      compile(program, onServer(program.text(), server.uri().getPort()), classes);
      if (program.isMain()) {
        assertEquals(PRINTED, printed(program, classes));
        return;
      }
      URL[] path = {classes.toUri().toURL()};
      try (URLClassLoader loader = new URLClassLoader(path, PagesTest.class.getClassLoader())) {
        call(loader.loadClass(program.name()), server);
      }
    }
  }

  /** Returns a program with the server's port, and with time for a busy machine. */
  private static String onServer(String text, int port) {
    return text.replace("127.0.0.1:7777", "127.0.0.1:" + port)
        .replace("uri)).build()", "uri)).timeout(Duration.ofSeconds(60)).build()");
  }

  private static void compile(Program program, String text, Path classes) throws IOException {
    Path source = classes.resolve(program.name() + ".java");
    Files.writeString(source, text);
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    StringWriter diagnostics = new StringWriter();
    List<String> options =
        List.of("-d", classes.toString(), "-Xlint:all,-processing", "-Werror", "--release", "17");
    List<String> path = List.of("-cp", System.getProperty("java.class.path"));
    try (var files = compiler.getStandardFileManager(null, null, null)) {
      List<String> all = Stream.concat(options.stream(), path.stream()).toList();
      var sources = files.getJavaFileObjects(source);
      boolean isCompiled = compiler.getTask(diagnostics, files, null, all, null, sources).call();
      assertTrue(isCompiled, program.place() + "\n" + diagnostics);
    }
  }

  /** Runs a program in a process of its own, as a reader does, and returns what it prints. */
  private static String printed(Program program, Path classes) throws Exception {
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    String path = classes + File.pathSeparator + System.getProperty("java.class.path");
    ProcessBuilder builder = new ProcessBuilder(java, "-cp", path, program.name());
    Process process = builder.redirectError(ProcessBuilder.Redirect.DISCARD).start();
    byte[] out = process.getInputStream().readAllBytes();
    assertEquals(0, process.waitFor(), program.place());
    return new String(out, StandardCharsets.UTF_8);
  }

  /**
   * Calls the class of a page that does not run by itself. A peek shows what a call of one unit
   * would leave.
   */
  private static void call(Class<?> type, Server server) throws Exception {
    switch (type.getSimpleName()) {
      case "Limits" -> {
        Object limiter = invoke(type, "open", Server.CLIENT, server.uri());
        assertInstanceOf(Limiter.class, limiter).close();
      }
      case "Api" -> {
        try (Limiter limiter = limiter(server)) {
          Decision first = (Decision) invoke(type, "check", limiter, "user:42");
          assertEquals(99, first.remaining());
          limiter.assertDecides((Rule) field(type, "API"));
        }
      }
      case "Rules" -> {
        Rule login = (Rule) field(type, "LOGIN");
        Rule search = (Rule) field(type, "SEARCH");
        try (Limiter limiter = limiter(server)) {
          limiter.assertDecides(login);
          limiter.assertDecides(search.onError(OnError.LOCAL));
          server.close();
          assertFalse(limiter.check(login.of("a")).allowed());
          assertTrue(limiter.check(search.of("a")).degraded());
        }
      }
      case "Gateway" -> {
        try (Limiter limiter = limiter(server)) {
          assertEquals("answer", invoke(type, "ask", limiter, "acme"));
          Rule month = (Rule) field(type, "MONTH");
          assertEquals(5_000_000 - 1240 - 1, limiter.peek(month.of("acme")).remaining());
          Rule runs = (Rule) field(type, "RUNS");
          assertEquals(4 - 1, limiter.peek(runs.of("acme")).remaining());
        }
      }
      case "Work" -> {
        try (Limiter limiter = limiter(server)) {
          Rule jobs = (Rule) field(type, "JOBS");
          invoke(type, "run", limiter, "acme");
          assertEquals(5 - 1, limiter.peek(jobs.of("acme")).remaining());
          for (int held = 0; held < 5; held++) {
            assertNotNull(limiter.lease(jobs.of("acme")));
          }
          assertInstanceOf(DeniedException.class, thrown(type, "run", limiter, "acme"));
        }
      }
      case "Web" -> {
        try (Limiter limiter = limiter(server)) {
          ThrottleFilter filter = (ThrottleFilter) invoke(type, "filter", limiter);
          try (SpringProgram program = SpringProgram.filtered(filter)) {
            program.assertLimited("X-Api-Key", "a");
            program.assertServed("X-Api-Key", "b");
          }
        }
      }
      case "LoginTest" -> {
        Method test = method(type, "secondCallWaits");
        assertNotNull(test.getAnnotation(Test.class));
        var constructor = type.getDeclaredConstructor();
        constructor.setAccessible(true);
        test.invoke(constructor.newInstance());
      }
      default -> throw new AssertionError("no test calls " + type.getSimpleName());
    }
  }

  /** The page has an application.yaml, which is all that an application needs. */
  @Test
  void application_yaml_limits_an_application() throws IOException {
    Matcher blocks = YAML.matcher(Files.readString(ROOT.resolve("docs/clients/java.md")));
    assertTrue(blocks.find(), "no application.yaml");
    try (Server server = server()) {
      String yaml = onServer(blocks.group(1), server.uri().getPort());
      Path file = Files.writeString(folder.resolve("application.yaml"), yaml);
      try (SpringProgram program = SpringProgram.configured(file)) {
        program.assertLimited();
      }
    }
  }

  /** Starts a server whose clock stands still, for calls that take longer than a unit's return. */
  private static Server server() {
    Server server = Server.withModule("--rl.debug-commands", "yes");
    server.send("RL.DEBUG", "CLOCK", "FREEZE");
    return server;
  }

  private static Limiter limiter(Server server) {
    return Limiter.builder(LettuceConnector.of(Server.CLIENT, server.uri()))
        .timeout(Duration.ofMinutes(1))
        .build();
  }

  private static Method method(Class<?> type, String name) {
    var all = Arrays.stream(type.getDeclaredMethods());
    Method method = all.filter(one -> one.getName().equals(name)).findFirst().orElseThrow();
    method.setAccessible(true);
    return method;
  }

  private static Object invoke(Class<?> type, String name, Object... arguments) throws Exception {
    return method(type, name).invoke(null, arguments);
  }

  private static Throwable thrown(Class<?> type, String name, Object... arguments) {
    try {
      invoke(type, name, arguments);
      throw new AssertionError(name + " threw nothing");
    } catch (InvocationTargetException e) {
      return e.getCause();
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  private static Object field(Class<?> type, String name) throws ReflectiveOperationException {
    var field = type.getDeclaredField(name);
    field.setAccessible(true);
    return field.get(null);
  }
}
