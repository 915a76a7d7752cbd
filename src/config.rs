//! The settings `rl.*` of the server's configuration.

use crate::api::Refused;
use crate::api::load::Loader;
use crate::api::setting::{Flag, KeptText, Number, Text};
use crate::fault::{self, Point};
use redis_throttle_engine::bounds::Slots;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Registers the settings and applies what the configuration says of them.
///
/// # Errors
///
/// [`Refused`] when the server does not take them, or one is set out of bounds.
pub fn register(loader: &Loader<'_>) -> Result<(), Refused> {
    loader.register_flag::<DebugCommands>()?;
    loader.register_flag::<WithRedisCell>()?;
    loader.register_number::<SlidingLogSlots>()?;
    loader.register_number::<NearLimitPercent>()?;
    loader.register_text::<PolicyFile>()?;
    loader.load_settings()
}

/// Whether `RL.DEBUG` works. Fixed at load.
struct DebugCommands;

static DEBUG_COMMANDS: AtomicBool = AtomicBool::new(DebugCommands::DEFAULT);

impl Flag for DebugCommands {
    const NAME: &'static CStr = c"debug-commands";
    const DEFAULT: bool = false;

    fn get() -> bool {
        fault::point(Point::ConfigGet);
        debug_commands()
    }

    fn set(value: bool) {
        fault::point(Point::ConfigSet);
        DEBUG_COMMANDS.store(value, Relaxed);
    }
}

/// Whether `RL.DEBUG` works.
pub fn debug_commands() -> bool {
    DEBUG_COMMANDS.load(Relaxed)
}

/// Whether there is `CL.THROTTLE`, the command of redis-cell. Fixed at load.
struct WithRedisCell;

static REDIS_CELL: AtomicBool = AtomicBool::new(WithRedisCell::DEFAULT);

impl Flag for WithRedisCell {
    const NAME: &'static CStr = c"redis-cell";
    const DEFAULT: bool = false;

    fn get() -> bool {
        fault::point(Point::ConfigGet);
        redis_cell()
    }

    fn set(value: bool) {
        fault::point(Point::ConfigSet);
        REDIS_CELL.store(value, Relaxed);
    }
}

/// Whether there is `CL.THROTTLE`, the command of redis-cell.
pub fn redis_cell() -> bool {
    REDIS_CELL.load(Relaxed)
}

/// Into how many slots a sliding log divides its window.
struct SlidingLogSlots;

static SLIDING_LOG_SLOTS: AtomicU32 = AtomicU32::new(Slots::DEFAULT.count() as u32);

impl Number for SlidingLogSlots {
    const NAME: &'static CStr = c"sliding-log-slots";
    const DEFAULT: i64 = Slots::DEFAULT.count() as i64;
    const MIN: i64 = Slots::MIN as i64;
    const MAX: i64 = Slots::MAX as i64;

    fn get() -> i64 {
        fault::point(Point::ConfigGet);
        SLIDING_LOG_SLOTS.load(Relaxed).into()
    }

    fn set(value: i64) -> bool {
        fault::point(Point::ConfigSet);
        let slots = u32::try_from(value).ok().filter(|slots| Slots::new(*slots).is_some());
        if let Some(slots) = slots {
            SLIDING_LOG_SLOTS.store(slots, Relaxed);
        }
        slots.is_some()
    }
}

/// Into how many slots a sliding log divides its window.
pub fn sliding_log_slots() -> Slots {
    Slots::new(SLIDING_LOG_SLOTS.load(Relaxed)).unwrap_or(Slots::DEFAULT)
}

/// An allowed call that leaves less than so many per cent of its limit is counted as near to it.
struct NearLimitPercent;

static NEAR_LIMIT_PERCENT: AtomicU8 = AtomicU8::new(NearLimitPercent::DEFAULT as u8);

impl Number for NearLimitPercent {
    const NAME: &'static CStr = c"near-limit-percent";
    const DEFAULT: i64 = 20;
    const MIN: i64 = 0;
    const MAX: i64 = 100;

    fn get() -> i64 {
        fault::point(Point::ConfigGet);
        near_limit_percent().into()
    }

    fn set(value: i64) -> bool {
        fault::point(Point::ConfigSet);
        let percent = u8::try_from(value).ok().filter(|percent| *percent <= 100);
        if let Some(percent) = percent {
            NEAR_LIMIT_PERCENT.store(percent, Relaxed);
        }
        percent.is_some()
    }
}

/// An allowed call that leaves less than so many per cent of its limit is counted as near to it.
pub fn near_limit_percent() -> u8 {
    NEAR_LIMIT_PERCENT.load(Relaxed)
}

/// Where the policies are read from and written to. Fixed at load.
struct PolicyFile;

static POLICY_FILE_TEXT: KeptText = KeptText::new();
/// Absolute, because the server may go to another folder later.
static POLICY_FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

impl Text for PolicyFile {
    const NAME: &'static CStr = c"policy-file";
    const DEFAULT: &'static CStr = c"";

    fn kept() -> &'static KeptText {
        fault::point(Point::ConfigGet);
        &POLICY_FILE_TEXT
    }

    fn set(value: &[u8]) -> bool {
        fault::point(Point::ConfigSet);
        let path = match value {
            [] => None,
            path => match std::path::absolute(OsStr::from_bytes(path)) {
                Ok(path) => Some(path),
                Err(_) => return false,
            },
        };
        *POLICY_FILE.lock().unwrap_or_else(PoisonError::into_inner) = path;
        true
    }
}

/// Where the policies are read from and written to, if anywhere.
pub fn policy_file() -> Option<PathBuf> {
    POLICY_FILE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
