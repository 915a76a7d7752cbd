//! Holds the configuration, and reads files again when asked or when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use crate::config::{Configuration, Remark};
use crate::log::{Level, event};

/// The time after a change during which further ones belong to it. A ConfigMap changes by several
/// steps, and an editor writes a file in pieces.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// The configuration in force. Its clones share it.
#[derive(Debug, Clone)]
pub struct Live {
    path: Arc<Path>,
    current: Arc<RwLock<Arc<Configuration>>>,
}

impl Live {
    /// Reads the configuration.
    ///
    /// # Errors
    /// All mistakes.
    pub fn load(path: PathBuf) -> Result<Self, Vec<Remark>> {
        let loaded = Arc::new(Configuration::load(&path)?);
        Ok(Self { path: path.into(), current: Arc::new(RwLock::new(loaded)) })
    }

    /// Returns the configuration in force. A request keeps to the one with which it began.
    #[must_use]
    pub fn current(&self) -> Arc<Configuration> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the configuration again. If it has mistakes, the old one stays in force.
    ///
    /// # Errors
    /// All mistakes.
    pub fn reload(&self) -> Result<Arc<Configuration>, Vec<Remark>> {
        let loaded = Arc::new(Configuration::load(&self.path)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = loaded.clone();
        Ok(loaded)
    }

    /// Reads the configuration again after each change of its files, and after each `asked`. Calls
    /// `done` with the result. Never returns.
    pub async fn follow(
        self,
        asked: Arc<Notify>,
        done: impl Fn(Result<Arc<Configuration>, Vec<Remark>>) + Clone + Send + 'static,
    ) {
        let path = self.path.clone();
        follow(&[&path], asked, move || done(self.reload())).await;
    }
}

/// Calls `reload` after each change of files or folders, and after each `asked`. Never returns.
pub async fn follow(
    paths: &[&Path],
    asked: Arc<Notify>,
    reload: impl Fn() + Clone + Send + 'static,
) {
    let watcher = watcher(paths, asked.clone());
    if let Err(error) = &watcher {
        let event = event(Level::Warning, "files_not_watched").with("message", error);
        event.with("hint", "send SIGHUP after a change").write();
    }
    loop {
        asked.notified().await;
        tokio::time::sleep(SETTLED_AFTER).await;
        // The task fails only if the runtime shuts down.
        let _ = tokio::task::spawn_blocking(reload.clone()).await;
    }
}

fn watcher(paths: &[&Path], changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let read: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| changes(&event, &read)) {
            changed.notify_one();
        }
    })?;
    for path in paths {
        watcher.watch(watched(path), RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

/// Returns the folder to watch: a file may be replaced by another one of its name.
fn watched(path: &Path) -> &Path {
    if path.is_dir() {
        return path;
    }
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Returns true for an event after which one of the files may read differently. Reading is none,
/// nor is a change of another file: the log may be in the same folder.
fn changes(event: &Event, read: &[PathBuf]) -> bool {
    let is_written = event.kind == EventKind::Access(AccessKind::Close(AccessMode::Write));
    let is_read = |path: &PathBuf| read.iter().any(|read| may_change(read, path));
    (is_written || !event.kind.is_access())
        // Without paths, events were lost.
        && (event.paths.is_empty() || event.paths.iter().any(is_read))
}

/// Returns true if `path` may be the file `read`, a file of domains in the folder `read`, or the
/// link `..data` of a ConfigMap.
fn may_change(read: &Path, path: &Path) -> bool {
    let Some(name) = path.file_name() else { return true };
    let ending = path.extension().and_then(|ending| ending.to_str());
    let is_domain = matches!(ending, Some("yaml" | "yml"));
    name.as_encoded_bytes().starts_with(b"..")
        || read.file_name() == Some(name)
        || (is_domain && read.is_dir())
}

#[cfg(test)]
mod tests;
