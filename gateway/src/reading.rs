//! Reads files of the operator, which may be replaced by anything.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The most bytes of a file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The mark that some editors put at the head of a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a regular file of at most 4 MiB, without a byte order mark at its head.
///
/// # Errors
/// The reason, without the file's name.
pub(crate) fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    // A FIFO would block until a program writes to it.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err("expected a file".to_owned());
    }
    let mut bytes = Vec::new();
    // One byte more than allowed, so that a file that is too large differs from one that fits.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("the file is too large: expected at most {FILE_BYTES_MAX} bytes"));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// Returns a number that is the same for equal contents, and differs for others.
pub(crate) fn digest(contents: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    hasher.finish()
}
