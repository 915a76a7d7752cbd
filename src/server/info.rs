//! `INFO rl`: counters since the module was loaded.
//!
//! Commands run one at a time, so a counter is read and written without a lock; it is atomic only
//! because `INFO` may be asked for by a crash report on another thread.

use super::commands::{Action, COMMANDS};
use super::{clock, fault, ffi};
use redis_module::{InfoContext, RedisResult};
use redis_module_macros::info_command_handler;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static ALLOWED: [AtomicU64; COMMANDS.len()] = [const { AtomicU64::new(0) }; COMMANDS.len()];
static DENIED: [AtomicU64; COMMANDS.len()] = [const { AtomicU64::new(0) }; COMMANDS.len()];
static ERRORS: AtomicU64 = AtomicU64::new(0);
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts a decision of the command at `index` of the table.
pub fn count_decision(index: usize, allowed: bool) {
    let counters = if allowed { &ALLOWED } else { &DENIED };
    if let Some(counter) = counters.get(index) {
        count(counter);
    }
}

/// Counts an error reply.
pub fn count_error() {
    count(&ERRORS);
}

/// Counts a panic that was caught.
pub fn count_panic() {
    count(&PANICS);
}

fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

#[info_command_handler]
fn info(ctx: &InfoContext, _for_crash_report: bool) -> RedisResult<()> {
    ffi::guard(Ok(()), || {
        fault::point(fault::Point::Info);
        let mut section = ctx
            .builder()
            .add_section("stats")
            .field("version", env!("CARGO_PKG_VERSION"))?
            .field("clock_source", clock::source())?
            .field("clock_frozen", u64::from(clock::is_frozen()))?
            .field("errors", ERRORS.load(Relaxed))?
            .field("panics", PANICS.load(Relaxed))?;
        for ((command, allowed), denied) in COMMANDS.iter().zip(&ALLOWED).zip(&DENIED) {
            if matches!(command.action, Action::Decide(_) | Action::Peek) {
                let name = command.name.to_string_lossy();
                let name = name.trim_start_matches("rl.");
                section = section
                    .field(&format!("{name}_allowed"), allowed.load(Relaxed))?
                    .field(&format!("{name}_denied"), denied.load(Relaxed))?;
            }
        }
        section.build_section()?.build_info()?;
        Ok(())
    })
}
