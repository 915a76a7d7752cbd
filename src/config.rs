//! The settings `rl.*` of the server's configuration.

use crate::api::Refused;
use crate::api::load::Loader;
use crate::api::setting::{Flag, KeptText, Number, Text};
use crate::fault::{self, Point};
use redis_throttle_engine::bounds::Slots;
use redis_throttle_engine::grammar;
use redis_throttle_engine::top::HalfLife;
use redis_throttle_engine::top::ranking::SLOTS_MAX;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Registers the settings and applies their configured values.
///
/// # Errors
///
/// [`Refused`] if the server does not accept the settings, or a value is out of bounds.
pub fn register(loader: &Loader<'_>) -> Result<(), Refused> {
    GCRA_TAKEN.store(false, Relaxed);
    loader.register_flag::<DebugCommands>()?;
    loader.register_flag::<WithRedisCell>()?;
    loader.register_flag::<WithGcra>()?;
    loader.register_number::<SlidingLogSlots>()?;
    loader.register_number::<NearLimitPercent>()?;
    loader.register_number::<TopSlots>()?;
    loader.register_text::<TopHalfLife>()?;
    loader.register_text::<PolicyFile>()?;
    loader.load_settings()
}

/// The setting that enables `RL.DEBUG`. Fixed at load.
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

/// Returns true if `RL.DEBUG` is enabled.
pub fn debug_commands() -> bool {
    DEBUG_COMMANDS.load(Relaxed)
}

/// The setting that enables `CL.THROTTLE`, the command of redis-cell. Fixed at load.
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

/// Returns true if `CL.THROTTLE`, the command of redis-cell, is enabled.
pub fn redis_cell() -> bool {
    REDIS_CELL.load(Relaxed)
}

/// The setting that enables `GCRA`, the command that Redis has merged but not released. Fixed at
/// load.
struct WithGcra;

static GCRA: AtomicBool = AtomicBool::new(WithGcra::DEFAULT);
/// Whether the server has a command of that name.
static GCRA_TAKEN: AtomicBool = AtomicBool::new(false);

impl Flag for WithGcra {
    const NAME: &'static CStr = c"gcra";
    const DEFAULT: bool = false;

    fn get() -> bool {
        fault::point(Point::ConfigGet);
        GCRA.load(Relaxed)
    }

    fn set(value: bool) {
        fault::point(Point::ConfigSet);
        GCRA.store(value, Relaxed);
    }
}

/// Returns true if `GCRA` is enabled, and the server has no command of that name.
pub fn gcra() -> bool {
    GCRA.load(Relaxed) && !GCRA_TAKEN.load(Relaxed)
}

/// Records that the server has a command of the name `GCRA`. The setting keeps its value.
pub fn leave_gcra_to_the_server() {
    GCRA_TAKEN.store(true, Relaxed);
}

/// Returns true if a command is enabled that stores its state as decimal digits.
pub fn stores_digits() -> bool {
    redis_cell() || gcra()
}

/// The setting for the number of slots into which a sliding log divides its window.
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

/// Returns the number of slots into which a sliding log divides its window.
pub fn sliding_log_slots() -> Slots {
    Slots::new(SLIDING_LOG_SLOTS.load(Relaxed)).unwrap_or(Slots::DEFAULT)
}

/// The setting that defines "near the limit": an allowed call is near it if the units left are
/// below this percentage of the limit.
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

/// Returns the percentage of a limit below which the units left make an allowed call count as near
/// the limit.
pub fn near_limit_percent() -> u8 {
    NEAR_LIMIT_PERCENT.load(Relaxed)
}

/// The setting with the number of keys that `RL.TOP` holds. Fixed at load.
struct TopSlots;

static TOP_SLOTS: AtomicU16 = AtomicU16::new(TopSlots::DEFAULT as u16);

impl Number for TopSlots {
    const NAME: &'static CStr = c"top-slots";
    const DEFAULT: i64 = 512;
    const MIN: i64 = 0;
    const MAX: i64 = SLOTS_MAX as i64;
    const IS_FIXED: bool = true;

    fn get() -> i64 {
        fault::point(Point::ConfigGet);
        TOP_SLOTS.load(Relaxed).into()
    }

    fn set(value: i64) -> bool {
        fault::point(Point::ConfigSet);
        let slots = u16::try_from(value).ok().filter(|slots| usize::from(*slots) <= SLOTS_MAX);
        if let Some(slots) = slots {
            TOP_SLOTS.store(slots, Relaxed);
        }
        slots.is_some()
    }
}

/// Returns the number of keys that `RL.TOP` holds; 0 if it is disabled.
pub fn top_slots() -> usize {
    TOP_SLOTS.load(Relaxed).into()
}

/// The setting with the time after which the counts of `RL.TOP` halve.
struct TopHalfLife;

static TOP_HALF_LIFE_TEXT: KeptText = KeptText::new();
static TOP_HALF_LIFE_US: AtomicU64 = AtomicU64::new(HalfLife::DEFAULT.as_us());

impl Text for TopHalfLife {
    const NAME: &'static CStr = c"top-half-life";
    const DEFAULT: &'static CStr = c"10m";
    const IS_FIXED: bool = false;

    fn kept() -> &'static KeptText {
        fault::point(Point::ConfigGet);
        &TOP_HALF_LIFE_TEXT
    }

    fn set(value: &[u8]) -> bool {
        fault::point(Point::ConfigSet);
        let half_life = grammar::top::half_life(value);
        if let Some(half_life) = half_life {
            TOP_HALF_LIFE_US.store(half_life.as_us(), Relaxed);
        }
        half_life.is_some()
    }
}

/// Returns the time after which the counts of `RL.TOP` halve.
#[inline]
pub fn top_half_life() -> HalfLife {
    HalfLife::from_us(TOP_HALF_LIFE_US.load(Relaxed))
}

/// The setting for the path of the policy file. Fixed at load.
struct PolicyFile;

static POLICY_FILE_TEXT: KeptText = KeptText::new();
/// The path of the policy file. It is absolute, because the server may change its working directory
/// later.
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

/// Returns the path of the policy file; `None` if none is set.
pub fn policy_file() -> Option<PathBuf> {
    POLICY_FILE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
