//! Keeps panics inside the module: every function that the server calls catches and counts them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Runs `body` and returns its result. If `body` panics, counts the panic and returns `otherwise`.
/// The panic hook has already logged the panic.
pub fn guard<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        PANICS.fetch_add(1, Relaxed);
        otherwise
    })
}

/// Returns the number of panics caught since the module was loaded.
pub fn panics() -> u64 {
    PANICS.load(Relaxed)
}
