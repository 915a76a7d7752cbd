//! The policy file: it is read as a whole and replaced as a whole.
//!
//! To save, the module writes a new file next to the old one and renames it. So a reader finds all
//! of the old file or all of the new one, even if the server or the machine stops at any time.

use crate::config;
use crate::fault::{self, Point};
use crate::policies::table as policies;
use redis_throttle_engine::grammar;
use redis_throttle_engine::grammar::policy_file::{FILE_LEN_MAX, LineError};
use redis_throttle_engine::policy::file_set::FileSet;
use redis_throttle_engine::policy::pattern::Pattern;
use redis_throttle_engine::policy::table::Change;
use redis_throttle_engine::time::Instant;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The suffix of the new file's name, until it replaces the old file.
const NEW: &str = ".rl-save";

/// The largest number of symbolic links that are followed, the same as the system's.
const LINKS_MAX: usize = 40;

/// The reason why the file could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileError {
    /// No policy file is configured.
    NotSet,
    /// The file does not exist.
    Missing,
    /// The path leads to a folder, a pipe or a device.
    NotAFile,
    /// The file is longer than [`FILE_LEN_MAX`].
    TooLong,
    /// The system refused to read the file.
    NotRead,
    /// The system refused to write the new file, or to give it the owner and mode of the old file.
    NotWritten,
    /// The new file replaced the old one, but the system did not confirm that this is on disk.
    NotLasting,
    /// Another server is writing the file.
    Busy,
    /// The file has no policies, and loading it would remove all current ones.
    Empty,
    /// A line of the file is invalid.
    Line(LineError),
}

/// Replaces all policies by those of the file, and returns the changes. A file without policies is
/// refused, because it is more often truncated than intended. It is accepted only if the table is
/// empty, as when the module loads.
///
/// # Errors
///
/// [`FileError`] if the file cannot be read or is refused. The policies are then unchanged.
pub fn load(now: Instant) -> Result<Vec<Change>, FileError> {
    let bases = read(&path()?)?;
    fault::point(Point::PolicyLoad);
    let mut table = policies::table();
    if bases.is_empty() && !table.is_empty(now) {
        return Err(FileError::Empty);
    }
    Ok(table.load(bases, now))
}

/// Writes the policies to the file, without the overrides.
///
/// # Errors
///
/// [`FileError`] if the file cannot be written. The file is unchanged, except after
/// [`FileError::NotLasting`].
pub fn save() -> Result<(), FileError> {
    let path = path()?;
    let mut text = policies::table().list(Pattern::ANY).join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    // Do not write a file that `load` would refuse.
    if text.len() > FILE_LEN_MAX {
        return Err(FileError::TooLong);
    }
    write(&path, text.as_bytes())
}

fn path() -> Result<PathBuf, FileError> {
    config::policy_file().ok_or(FileError::NotSet)
}

fn read(path: &Path) -> Result<FileSet, FileError> {
    let not_read = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => FileError::Missing,
        _ => FileError::NotRead,
    };
    // Without `O_NONBLOCK`, opening a pipe would wait for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(not_read)?;
    let metadata = file.metadata().map_err(not_read)?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile);
    }
    let len_max = FILE_LEN_MAX as u64;
    if metadata.len() > len_max {
        return Err(FileError::TooLong);
    }
    let mut text = Vec::new();
    // The file may have grown since its length was checked.
    file.take(len_max + 1).read_to_end(&mut text).map_err(not_read)?;
    if text.len() > FILE_LEN_MAX {
        return Err(FileError::TooLong);
    }
    grammar::policy_file::policy_file(&text).map_err(FileError::Line)
}

fn write(path: &Path, text: &[u8]) -> Result<(), FileError> {
    let (path, old) = target(path)?;
    let mut new_path = path.clone().into_os_string();
    new_path.push(NEW);
    let new_path = PathBuf::from(new_path);
    let folder = path.parent().unwrap_or(Path::new("/"));
    // The folder must be synced after the rename. If it cannot be opened, nothing is written.
    let folder = File::open(folder).map_err(|_| FileError::NotWritten)?;
    fault::point(Point::SaveCreate);
    let file = claim(&new_path)?;
    let written = fill(&file, old.as_ref(), text).and_then(|()| {
        fault::point(Point::SaveRename);
        fs::rename(&new_path, &path)
    });
    if written.is_err() {
        // Remove the unfinished file. This server holds the lock on it, so no other server uses it.
        let _ = fs::remove_file(&new_path);
        return Err(FileError::NotWritten);
    }
    fault::point(Point::SaveFolder);
    folder.sync_all().map_err(|_| FileError::NotLasting)
}

/// Opens the new file for this server alone: several servers may use the same policy file and save
/// at the same time.
fn claim(new_path: &Path) -> Result<File, FileError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    // The flags refuse a symbolic link, and do not let the open wait at a pipe. A file that a
    // killed server left behind is reused.
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(new_path);
    let file = file.map_err(|_| FileError::NotWritten)?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => FileError::Busy,
        TryLockError::Error(_) => FileError::NotWritten,
    })?;
    let ours = file.metadata().map_err(|_| FileError::NotWritten)?;
    if !ours.is_file() || ours.nlink() > 1 {
        return Err(FileError::NotWritten);
    }
    // Another server may have renamed the file between the open and the lock.
    let named = fs::symlink_metadata(new_path).map_err(|_| FileError::Busy)?;
    if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) {
        Ok(file)
    } else {
        Err(FileError::Busy)
    }
}

/// Returns the path of the file with all links resolved, and its metadata if it exists.
///
/// This function follows the links itself, without C's `realpath`: in a server with its own
/// allocator, the memory from `realpath` would be freed by the wrong allocator.
fn target(path: &Path) -> Result<(PathBuf, Option<Metadata>), FileError> {
    let mut target = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_symlink() => {
                let next = fs::read_link(&target).map_err(|_| FileError::NotWritten)?;
                // An absolute target replaces the whole path.
                target = target.parent().unwrap_or(Path::new("/")).join(next);
            }
            Ok(found) if found.is_file() => return Ok((target, Some(found))),
            Ok(_) => return Err(FileError::NotAFile),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((target, None)),
            Err(_) => break,
        }
    }
    Err(FileError::NotWritten)
}

/// Writes the text, with the owner and the mode of the old file, and syncs it to disk.
fn fill(mut file: &File, old: Option<&Metadata>, text: &[u8]) -> std::io::Result<()> {
    file.set_len(0)?;
    let new = file.metadata()?;
    fault::point(Point::SaveWrite);
    file.write_all(text)?;
    match old {
        None => file.set_permissions(PermissionsExt::from_mode(0o640))?,
        Some(old) => {
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                fchown(file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(old.permissions())?;
        }
    }
    fault::point(Point::SaveSync);
    file.sync_all()
}
