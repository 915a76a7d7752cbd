//! `INFO rl`: counters since the module was loaded.
//!
//! Commands run one at a time, so a counter is read and written without a lock. It is atomic only
//! because a crash report may read `INFO` on another thread.

use crate::api::info::{Info, Section};
use crate::commands::table::{COMMANDS, CommandId};
use crate::policies::table as policies;
use crate::{api, clock, fault, top};
use redis_throttle_engine::calendar::zone;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static ALLOWED: [AtomicU64; COMMANDS.len()] = [const { AtomicU64::new(0) }; COMMANDS.len()];
static DENIED: [AtomicU64; COMMANDS.len()] = [const { AtomicU64::new(0) }; COMMANDS.len()];
/// The numbers of keys that commands created.
static CREATED: [AtomicU64; COMMANDS.len()] = [const { AtomicU64::new(0) }; COMMANDS.len()];
static ERRORS: AtomicU64 = AtomicU64::new(0);

/// The version of the module, as a C string.
const VERSION: &CStr = {
    let version = concat!(env!("CARGO_PKG_VERSION"), "\0");
    match CStr::from_bytes_with_nul(version.as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no NUL in it"),
    }
};

/// The release of the built-in time zone database, with a final NUL.
const TZDB_VERSION: [u8; zone::DATABASE_VERSION.len() + 1] = {
    let mut text = [0; zone::DATABASE_VERSION.len() + 1];
    let (version, _) = text.split_at_mut(zone::DATABASE_VERSION.len());
    version.copy_from_slice(zone::DATABASE_VERSION.as_bytes());
    text
};

/// Counts a decision of command `id`.
pub fn count_decision(id: CommandId, allowed: bool) {
    let counters = if allowed { &ALLOWED } else { &DENIED };
    count(&counters[id as usize]);
}

/// Counts a key that command `id` created.
#[cold]
pub fn count_created(id: CommandId) {
    count(&CREATED[id as usize]);
}

/// Counts an error reply.
pub fn count_error() {
    count(&ERRORS);
}

fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

/// Returns the number of error replies.
pub fn errors() -> u64 {
    ERRORS.load(Relaxed)
}

/// Returns, for each command that decides, its name in the fields of `INFO`, and the numbers of
/// allowed and denied calls.
pub fn decisions() -> impl Iterator<Item = (&'static str, u64, u64)> {
    let counted = COMMANDS.iter().zip(&ALLOWED).zip(&DENIED);
    let counted =
        counted.filter(|((command, _), _)| command.counters.is_some() && command.is_wanted());
    counted.map(|((command, allowed), denied)| {
        (command.short_name(), allowed.load(Relaxed), denied.load(Relaxed))
    })
}

/// Returns, for each command that creates keys, its name without the prefix and the number of keys.
pub fn created() -> impl Iterator<Item = (&'static str, u64)> {
    let counted = COMMANDS.iter().zip(&CREATED);
    let counted = counted.filter(|(command, _)| command.creates_keys() && command.is_wanted());
    counted.map(|(command, created)| (command.short_name(), created.load(Relaxed)))
}

/// The contents of `INFO rl`. It is also part of every crash report: see [`Info`] for the
/// restrictions.
pub struct Report;

impl Info for Report {
    fn write(section: &Section<'_>, for_crash_report: bool) {
        // A crash report leaves out the policies, because counting them takes a lock, and the
        // shares of the keys denied most, because a crash may have left their counts half changed.
        let policies = (!for_crash_report).then(|| {
            fault::point(fault::Point::Info);
            policies::table().count_and_digest(clock::now())
        });
        let shares = if for_crash_report { None } else { top::denied_shares() };
        if !section.open(c"stats") {
            return;
        }
        section.text(c"version", VERSION);
        section.text(c"tzdb_version", CStr::from_bytes_until_nul(&TZDB_VERSION).unwrap_or(c""));
        section.text(c"clock_source", clock::source());
        section.number(c"clock_frozen", clock::is_frozen().into());
        section.number(c"errors", ERRORS.load(Relaxed));
        section.number(c"panics", api::guard::panics());
        section.number(c"keys_created", created().map(|(_, created)| created).sum());
        if let Some((count, digest)) = policies {
            section.number(c"policies", count as u64);
            section.digits(c"policies_digest", digest);
        }
        if let Some([of_first, of_ten]) = shares {
            section.ratio(c"denied_top1_ratio", of_first);
            section.ratio(c"denied_top10_ratio", of_ten);
        }
        for ((command, allowed), denied) in COMMANDS.iter().zip(&ALLOWED).zip(&DENIED) {
            if let Some(counters) = command.counters.filter(|_| command.is_wanted()) {
                section.number(counters.allowed, allowed.load(Relaxed));
                section.number(counters.denied, denied.load(Relaxed));
            }
        }
    }
}
