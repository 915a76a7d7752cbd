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

const HTML: &str = "text/html; charset=utf-8";

/// All files. A path that is not here is not found.
pub const FILES: &[File] = &[File::new("/", HTML, include_bytes!("../../page/index.html"))];

impl File {
    const fn new(path: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        Self { path, kind, bytes }
    }

    /// Returns the file at a path.
    pub fn at(path: &str) -> Option<&'static Self> {
        FILES.iter().find(|file| file.path == path)
    }
}
