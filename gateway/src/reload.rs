//! Holds the configuration, and reads files again on request or when they change.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::config::{self, Configuration, Remark, Texts};
use crate::reading::digest;

/// The time between two looks at the files. Looking also finds replaced folders and edited targets
/// of links, which notices of the system miss.
const EVERY: Duration = Duration::from_millis(500);
/// The time without a change after which files are read. An editor writes a file in pieces.
const SETTLED_AFTER: Duration = Duration::from_millis(100);
/// The most looks before files that keep changing are read.
const LOOKS_MAX: u32 = 20;

/// The configuration in force. Its clones share it.
#[derive(Debug, Clone)]
pub struct Live {
    path: Arc<Path>,
    current: Arc<RwLock<Arc<Configuration>>>,
    /// The digest of the texts that were read last.
    read: Arc<AtomicU64>,
}

impl Live {
    /// Reads the configuration.
    ///
    /// # Errors
    /// All mistakes.
    pub fn load(path: PathBuf) -> Result<Self, Vec<Remark>> {
        let texts = Texts::read(&path);
        let current = Arc::new(RwLock::new(Arc::new(Configuration::of(&texts)?)));
        Ok(Self { path: path.into(), current, read: Arc::new(digest(&texts).into()) })
    }

    /// Returns the configuration in force. A request keeps to the one with which it began.
    #[must_use]
    pub fn current(&self) -> Arc<Configuration> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the configuration again. If it has mistakes, the old one stays in force. Returns
    /// `None` if the texts are those that were read last, unless the operator requests it.
    ///
    /// # Errors
    /// All mistakes.
    pub fn reload(&self, is_requested: bool) -> Option<Result<Arc<Configuration>, Vec<Remark>>> {
        let texts = Texts::read(&self.path);
        let read = digest(&texts);
        if self.read.swap(read, Ordering::Relaxed) == read && !is_requested {
            return None;
        }
        Some(Configuration::of(&texts).map(|loaded| {
            let loaded = Arc::new(loaded);
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = loaded.clone();
            loaded
        }))
    }

    /// Reads the configuration again after each change of its files, and after each `requested`.
    /// Calls `done` with the result. Never returns.
    pub async fn follow(
        self,
        requested: Arc<Notify>,
        done: impl Fn(Result<Arc<Configuration>, Vec<Remark>>) + Clone + Send + 'static,
    ) {
        let path = self.path.clone();
        let files = move || config::files(&path).unwrap_or_default();
        follow(files, requested, move |is_requested| {
            self.reload(is_requested).into_iter().for_each(&done)
        })
        .await;
    }
}

/// Calls `reload` after each change of files, with `false`, and after each `requested`, with
/// `true`. Begins with a call: the files may have changed since they were first read. Never
/// returns.
pub async fn follow(
    files: impl Fn() -> Vec<PathBuf> + Clone + Send + 'static,
    requested: Arc<Notify>,
    reload: impl Fn(bool) + Clone + Send + 'static,
) {
    let (mut read, mut is_requested) = (None, false);
    loop {
        let found = settled(&files, read.as_ref()).await;
        // A signal that came in the meantime requests the same reading.
        is_requested |= timeout(Duration::ZERO, requested.notified()).await.is_ok();
        if is_requested || read.as_ref() != Some(&found) {
            let reload = reload.clone();
            // The task fails only if the runtime shuts down.
            let _ = spawn_blocking(move || reload(is_requested)).await;
            read = Some(found);
        }
        is_requested = timeout(EVERY, requested.notified()).await.is_ok();
    }
}

/// The files as the system describes them, without their contents.
type Described = Vec<(PathBuf, Option<[i64; 7]>)>;

/// Looks at the files; if they have changed, until they no longer do.
async fn settled(
    files: &(impl Fn() -> Vec<PathBuf> + Clone + Send + 'static),
    read: Option<&Described>,
) -> Described {
    let look = async || {
        let files = files.clone();
        spawn_blocking(move || describe(files())).await.unwrap_or_default()
    };
    let mut found = look().await;
    for _ in 0..LOOKS_MAX {
        if Some(&found) == read {
            break;
        }
        sleep(SETTLED_AFTER).await;
        let next = look().await;
        if next == found {
            break;
        }
        found = next;
    }
    found
}

fn describe(files: Vec<PathBuf>) -> Described {
    let described = |file: PathBuf| {
        let description = fs::metadata(&file).ok().map(|metadata| {
            let [device, inode, bytes] =
                [metadata.dev(), metadata.ino(), metadata.len()].map(u64::cast_signed);
            let (written, changed) = (metadata.mtime(), metadata.ctime());
            [device, inode, bytes, written, metadata.mtime_nsec(), changed, metadata.ctime_nsec()]
        });
        (file, description)
    };
    files.into_iter().map(described).collect()
}

#[cfg(test)]
mod tests;
