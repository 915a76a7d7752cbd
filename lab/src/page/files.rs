//! The static files of the page, in the program.

/// A file under a fixed name.
pub struct File {
    /// The path of its address.
    pub path: &'static str,
    /// The content type.
    pub kind: &'static str,
    /// The content.
    pub bytes: &'static [u8],
}

const CSS: &str = "text/css; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Creates the [`File`] of a name, at a path below `lab/page`.
macro_rules! file {
    ($path:literal, $kind:expr, $name:literal) => {
        File::new($path, $kind, include_bytes!(concat!("../../page/", $name)))
    };
}

/// All files. A path that is not here is not found.
pub const FILES: &[File] = &[
    file!("/", HTML, "index.html"),
    file!("/style.css", CSS, "style.css"),
    file!("/app.js", SCRIPT, "app.js"),
    file!("/axis.js", SCRIPT, "axis.js"),
    file!("/charts.js", SCRIPT, "charts.js"),
    file!("/commands.js", SCRIPT, "commands.js"),
    file!("/dom.js", SCRIPT, "dom.js"),
    file!("/reply.js", SCRIPT, "reply.js"),
    file!("/results.js", SCRIPT, "results.js"),
    file!("/rules.js", SCRIPT, "rules.js"),
    file!("/state.js", SCRIPT, "state.js"),
    file!("/timeline.js", SCRIPT, "timeline.js"),
    file!("/traffic.js", SCRIPT, "traffic.js"),
    file!("/words.js", SCRIPT, "words.js"),
    file!("/uPlot.iife.min.js", SCRIPT, "vendor/uplot/uPlot.iife.min.js"),
    file!("/uPlot.min.css", CSS, "vendor/uplot/uPlot.min.css"),
];

impl File {
    const fn new(path: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        Self { path, kind, bytes }
    }

    /// Returns the file at a path.
    pub fn at(path: &str) -> Option<&'static Self> {
        FILES.iter().find(|file| file.path == path)
    }
}
