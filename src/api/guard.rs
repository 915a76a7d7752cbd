//! No panic leaves the module: it is caught at every function that the server calls, and counted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Runs `body`; when it panics, counts that and answers `otherwise`. The panic hook has logged it.
pub fn guard<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        PANICS.fetch_add(1, Relaxed);
        otherwise
    })
}

/// How many panics were caught since the module was loaded.
pub fn panics() -> u64 {
    PANICS.load(Relaxed)
}
