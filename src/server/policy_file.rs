//! The file of policies: read as a whole, and replaced as a whole.
//!
//! It is written beside itself and renamed, so that whoever reads it, at whatever time the server
//! or the machine stops, finds all of the old one or all of the new one.

use super::fault::{self, Point};
use super::{config, policies};
use crate::grammar::{self, FILE_LEN_MAX, LineError};
use crate::limiter::Instant;
use crate::policy::{Bases, Change, Pattern};
use std::fs::{self, File, Metadata, OpenOptions};
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
    /// A line of it is wrong.
    Line(LineError),
}

/// Puts the policies of the file in the place of all that there are, and tells what that changes.
///
/// # Errors
///
/// [`FileError`], and nothing changes.
pub fn load(now: Instant) -> Result<Vec<Change>, FileError> {
    let bases = read(&path()?)?;
    fault::point(Point::PolicyLoad);
    Ok(policies::table().load(bases, now))
}

/// Writes the policies to the file, but for the overrides.
///
/// # Errors
///
/// [`FileError`], and the file is as it was.
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

fn read(path: &Path) -> Result<Bases, FileError> {
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
    grammar::policy_file(&text).map_err(FileError::Line)
}

fn write(path: &Path, text: &[u8]) -> Result<(), FileError> {
    let (path, old) = target(path)?;
    let mut new_path = path.clone().into_os_string();
    new_path.push(NEW);
    let new_path = PathBuf::from(new_path);
    replace(&path, &new_path, old.as_ref(), text).map_err(|_| {
        // What is left of it is of no use to anybody.
        let _ = fs::remove_file(&new_path);
        FileError::NotWritten
    })
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

fn replace(
    path: &Path,
    new_path: &Path,
    old: Option<&Metadata>,
    text: &[u8],
) -> std::io::Result<()> {
    // Of a server that was killed.
    match fs::remove_file(new_path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fault::point(Point::SaveCreate);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new_path)?;
    let new = file.metadata()?;
    fault::point(Point::SaveWrite);
    file.write_all(text)?;
    match old {
        None => file.set_permissions(PermissionsExt::from_mode(0o640))?,
        Some(old) => {
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(old.permissions())?;
        }
    }
    fault::point(Point::SaveSync);
    file.sync_all()?;
    fault::point(Point::SaveRename);
    fs::rename(new_path, path)?;
    fault::point(Point::SaveFolder);
    // The name is lasting once the folder is.
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
