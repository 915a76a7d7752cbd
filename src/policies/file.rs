//! The file of policies: read as a whole, and replaced as a whole.
//!
//! It is written beside itself and renamed, so that whoever reads it, at whatever time the server
//! or the machine stops, finds all of the old one or all of the new one.

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

/// What comes after the file's name in that of the new one, until it takes the place of the old.
const NEW: &str = ".rl-save";

/// How many links are followed, as a system does.
const LINKS_MAX: usize = 40;

/// Why the file was not read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileError {
    /// None is set.
    NotSet,
    /// There is none.
    Missing,
    /// A folder, a pipe, a device.
    NotAFile,
    /// Longer than [`FILE_LEN_MAX`].
    TooLong,
    /// The system refused to hand it out.
    NotRead,
    /// The system refused to take the new one, or to give it the owner and the mode of the old.
    NotWritten,
    /// The new one took the place of the old, but the system did not say that this lasts.
    NotLasting,
    /// Another server writes it.
    Busy,
    /// It has no policies, and would remove all that there are.
    Empty,
    /// A line of it is wrong.
    Line(LineError),
}

/// Puts the policies of the file in the place of all that there are, and tells what that changes.
/// A file without policies is refused unless the table is empty, as at the start: it is more often
/// one that was cut short than one that means it.
///
/// # Errors
///
/// [`FileError`], and nothing changes.
pub fn load(now: Instant) -> Result<Vec<Change>, FileError> {
    let bases = read(&path()?)?;
    fault::point(Point::PolicyLoad);
    let mut table = policies::table();
    if bases.is_empty() && !table.is_empty(now) {
        return Err(FileError::Empty);
    }
    Ok(table.load(bases, now))
}

/// Writes the policies to the file, but for the overrides.
///
/// # Errors
///
/// [`FileError`], and the file is as it was, but for [`FileError::NotLasting`].
pub fn save() -> Result<(), FileError> {
    let path = path()?;
    let mut text = policies::table().list(Pattern::ANY).join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    // What could not be read again is not written.
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
    // A pipe that nobody writes to would be waited for without that flag.
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
    // It may grow meanwhile.
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
    // Before anything is written: whoever cannot open it cannot make the name last.
    let folder = File::open(folder).map_err(|_| FileError::NotWritten)?;
    fault::point(Point::SaveCreate);
    let file = claim(&new_path)?;
    let written = fill(&file, old.as_ref(), text).and_then(|()| {
        fault::point(Point::SaveRename);
        fs::rename(&new_path, &path)
    });
    if written.is_err() {
        // What is left of it is of no use to anybody, and it is still ours.
        let _ = fs::remove_file(&new_path);
        return Err(FileError::NotWritten);
    }
    fault::point(Point::SaveFolder);
    folder.sync_all().map_err(|_| FileError::NotLasting)
}

/// Opens the file that is to take the place of the old one, for this server alone: several may
/// have the same file of policies, and save at the same time.
fn claim(new_path: &Path) -> Result<File, FileError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    // Neither through a link nor into a pipe. One that a killed server has left is used again.
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
    // Who had it before may have renamed it between our opening and our locking it.
    let named = fs::symlink_metadata(new_path).map_err(|_| FileError::Busy)?;
    if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) {
        Ok(file)
    } else {
        Err(FileError::Busy)
    }
}

/// Where the file is, behind all links, and what is there.
///
/// Followed by hand: where a server brings an allocator of its own, what C's `realpath` allocates
/// with the one cannot be freed with the other.
fn target(path: &Path) -> Result<(PathBuf, Option<Metadata>), FileError> {
    let mut target = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_symlink() => {
                let next = fs::read_link(&target).map_err(|_| FileError::NotWritten)?;
                // An absolute one takes the place of all before it.
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

/// Writes the text, with the owner and the mode of the old file, so that it lasts.
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
