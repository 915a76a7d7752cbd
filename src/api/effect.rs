//! Effects: the commands that replicas and the append-only file receive. Each effect has one key.
//!
//! The server refuses an effect if it has no command of that name. The module checks this once, at
//! load, with a sample of each effect ([`missing_effect`]).

use super::key::WriteKey;
use super::sorted_set::{Member, QUERIES, free_empty, make_empty};
use super::{Refused, accepted, to_integer};
use redis_module::raw;
use std::ffi::{CStr, c_int, c_longlong};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

const SET: &CStr = c"SET";
const SETRANGE: &CStr = c"SETRANGE";
const PEXPIREAT: &CStr = c"PEXPIREAT";
const DEL: &CStr = c"DEL";
const UNLINK: &CStr = c"UNLINK";
const ZADD: &CStr = c"ZADD";
const ZREM: &CStr = c"ZREM";

/// A sample of each effect below, with arguments of the same form.
const EFFECTS: [&[&CStr]; 9] = [
    &[SET, c"key", c"value", c"PXAT", c"1"],
    &[SET, c"key", c"value", c"KEEPTTL"],
    &[SETRANGE, c"key", c"0", c"value"],
    &[PEXPIREAT, c"key", c"1"],
    &[DEL, c"key"],
    &[UNLINK, c"key"],
    &[ZADD, c"key", c"1", c"member"],
    &[ZADD, c"key", c"0", c"", c"1", c"member"],
    &[ZREM, c"key", c"member", c"member"],
];

/// Replicates a command on a key. The format has one letter for each argument, the key first: `s`
/// is a string of the server, `b` a pointer and a length, `l` an integer, `v` an array of strings
/// of the server and its length.
macro_rules! replicate {
    ($key:expr, $command:expr, $format:literal $(, $argument:expr)*) => {{
        let replicate = api!(RedisModule_Replicate);
        let (context, name) = $key.effect_target();
        let (command, format) = ($command.as_ptr(), $format.as_ptr());
        // SAFETY: the arguments match the format and are alive during the call.
        accepted(unsafe { replicate(context, command, format, name $(, $argument)*) })
    }};
}

/// An option word of an effect, as a string of the server. The string is created once, so that
/// effects share it instead of copying it.
struct Word(AtomicPtr<raw::RedisModuleString>, &'static CStr);

static PXAT: Word = Word::new(c"PXAT");
static KEEPTTL: Word = Word::new(c"KEEPTTL");

impl Word {
    const fn new(text: &'static CStr) -> Self {
        Self(AtomicPtr::new(ptr::null_mut()), text)
    }

    /// Returns the server's string of this word; [`Refused`] before `make` and after `free`.
    fn string(&self) -> Result<*mut raw::RedisModuleString, Refused> {
        let string = self.0.load(Relaxed);
        if string.is_null() { Err(Refused) } else { Ok(string) }
    }

    fn make(&self) {
        self.0.store(new_string(self.1), Relaxed);
    }

    fn free(&self) {
        let string = self.0.swap(ptr::null_mut(), Relaxed);
        if !string.is_null() {
            // SAFETY: the string was created by `make`, and is not used after this.
            unsafe { free_string(string) };
        }
    }
}

/// Creates the option words of the effects. This is the last step of a load, so that a refused load
/// leaves no strings behind.
pub(super) fn make_words() {
    [&PXAT, &KEEPTTL].into_iter().for_each(Word::make);
    make_empty();
}

/// Frees the option words of the effects. This is the last act of the module.
pub fn free_words() {
    [&PXAT, &KEEPTTL].into_iter().for_each(Word::free);
    free_empty();
}

/// Returns the name of the first command, of an effect or a query, that this server cannot run: the
/// server has no command of that name, or its command has keys at other positions.
pub fn missing_effect() -> Option<&'static str> {
    let missing = EFFECTS.into_iter().chain(QUERIES).find(|effect| !names_its_key(effect))?;
    missing.first()?.to_str().ok()
}

/// Returns true if the server knows this command and takes its first argument, and only that one,
/// as a key.
fn names_its_key(command: &[&'static CStr]) -> bool {
    let mut argv: Vec<_> = command.iter().map(|word| new_string(word)).collect();
    let Ok(argc) = c_int::try_from(argv.len()) else { return false };
    let mut count = 0;
    // SAFETY: `argv` holds `argc` strings of the server. The result is an array of `count`
    // positions, or null; the caller frees it.
    let first_key = unsafe {
        let keys = api!(RedisModule_GetCommandKeys);
        let positions = keys(ptr::null_mut(), argv.as_mut_ptr(), argc, &raw mut count);
        let first = positions.as_ref().copied();
        if !positions.is_null() {
            api!(RedisModule_Free)(positions.cast());
        }
        first
    };
    for string in argv {
        // SAFETY: the string was created above, and is not used after this.
        unsafe { free_string(string) };
    }
    first_key == Some(1) && count == 1
}

/// Creates a string of the server without a context. The caller frees it.
fn new_string(text: &'static CStr) -> *mut raw::RedisModuleString {
    let create = api!(RedisModule_CreateString);
    // SAFETY: the text is static. Without a context, only the caller frees the string.
    unsafe { create(ptr::null_mut(), text.as_ptr(), text.count_bytes()) }
}

/// # Safety
///
/// `string` must come from [`new_string`], and not be used after this.
unsafe fn free_string(string: *mut raw::RedisModuleString) {
    // SAFETY: by the contract of this function.
    unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), string) };
}

/// Each method returns [`Refused`] if the server does not accept the effect, or if the module is
/// not loaded.
impl WriteKey<'_, '_> {
    /// Replicates `SET key bytes PXAT expire_at_ms`.
    #[inline(always)]
    pub fn replicate_set_pxat(&self, bytes: &[u8], expire_at_ms: u64) -> Result<(), Refused> {
        // The number is formatted here, because the server would need two allocations and twice
        // the time for that.
        let mut buffer = itoa::Buffer::new();
        let ms = buffer.format(expire_at_ms);
        let (bytes, len) = (bytes.as_ptr(), bytes.len());
        replicate!(self, SET, c"sbsb", bytes, len, PXAT.string()?, ms.as_ptr(), ms.len())
    }

    /// Replicates `SET key bytes KEEPTTL`.
    #[inline(always)]
    pub fn replicate_set_keepttl(&self, bytes: &[u8]) -> Result<(), Refused> {
        replicate!(self, SET, c"sbs", bytes.as_ptr(), bytes.len(), KEEPTTL.string()?)
    }

    /// Replicates `SETRANGE key offset bytes`.
    #[inline(always)]
    pub fn replicate_setrange(&self, offset: usize, bytes: &[u8]) -> Result<(), Refused> {
        let offset = c_longlong::try_from(offset).unwrap_or(c_longlong::MAX);
        replicate!(self, SETRANGE, c"slb", offset, bytes.as_ptr(), bytes.len())
    }

    /// Replicates `DEL key`.
    pub fn replicate_del(&self) -> Result<(), Refused> {
        replicate!(self, DEL, c"s")
    }

    /// Replicates `UNLINK key`.
    pub fn replicate_unlink(&self) -> Result<(), Refused> {
        replicate!(self, UNLINK, c"s")
    }

    /// Replicates `ZADD key score member`, or `ZADD key 0 first score member` if `first` is given.
    pub fn replicate_zadd(
        &self,
        first: Option<&Member>,
        score: u64,
        member: &Member,
    ) -> Result<(), Refused> {
        // The number is formatted here, because the server would need more time for that.
        let mut buffer = itoa::Buffer::new();
        let score = buffer.format(score);
        let (score, len, member) = (score.as_ptr(), score.len(), member.as_ptr());
        match first {
            None => replicate!(self, ZADD, c"sbs", score, len, member),
            Some(first) => {
                let zero: c_longlong = 0;
                replicate!(self, ZADD, c"slsbs", zero, first.as_ptr(), score, len, member)
            }
        }
    }

    /// Replicates `ZREM key members`.
    pub fn replicate_zrem(&self, members: &[Member]) -> Result<(), Refused> {
        // A member has the layout of the pointer that it wraps.
        let list: *const *mut raw::RedisModuleString = members.as_ptr().cast();
        replicate!(self, ZREM, c"sv", list, members.len())
    }

    /// Replicates `PEXPIREAT key expire_at_ms`.
    #[inline(always)]
    pub fn replicate_pexpireat(&self, expire_at_ms: u64) -> Result<(), Refused> {
        replicate!(self, PEXPIREAT, c"sl", to_integer(expire_at_ms))
    }
}
