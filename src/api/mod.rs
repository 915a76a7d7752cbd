//! Safe functions over the server's API. All handwritten `unsafe` code is in this folder.
//!
//! Nothing here knows about limiters, states or the module's commands: the inputs and outputs are
//! bytes, numbers and texts. Read `call` and `key` first; `sorted_set`, `effect`, `reply`, `info`,
//! `setting`, `command` and `load` each cover one part of the server's API.
//!
//! Three rules hold. Every function that the server calls catches unwinding (`guard`), because a
//! panic that leaves an `extern "C"` function aborts the process. Bytes from a client never pass
//! through a C string or a format. Every value that is handed out borrows from its call, so that no
//! value outlives the command.

use redis_module::raw;
use std::ffi::{CString, c_int, c_longlong};
use std::{ptr, slice};

/// Returns a function of the server's API. `missing_function` checks at load that the server has
/// it.
macro_rules! api {
    ($name:ident) => {{
        #[allow(unused_unsafe, reason = "stands inside and outside of unsafe blocks")]
        // SAFETY: the pointers are written once, while the module loads, before any other use.
        let function = unsafe { ::redis_module::raw::$name };
        function.expect(concat!(stringify!($name), " was checked at load"))
    }};
}

/// Returns an array with a pair for each given function of the server's API: its name, and true if
/// the server has it.
macro_rules! presence {
    ($($name:ident)*) => {
        // SAFETY: as in `api!`.
        [$((stringify!($name), unsafe { raw::$name }.is_some())),*]
    };
}

pub mod call;
pub mod command;
pub mod effect;
pub mod guard;
pub mod info;
pub mod key;
pub mod load;
pub mod reply;
pub mod setting;
pub mod sorted_set;

/// The server refused a request: it lacks the feature, the name is taken, or the value has another
/// type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Returns the name of the first function that the module needs and the server lacks; `None` if the
/// server has them all. A server that lacks one is too old.
pub fn missing_function() -> Option<&'static str> {
    let functions = presence!(
        RedisModule_CreateCommand RedisModule_CreateSubcommand RedisModule_GetCommand
        RedisModule_SetCommandInfo RedisModule_GetClientId RedisModule_GetClientUserNameById
        RedisModule_GetSelectedDb
        RedisModule_SetModuleOptions RedisModule_RegisterBoolConfig
        RedisModule_RegisterNumericConfig RedisModule_RegisterStringConfig
        RedisModule_LoadConfigs RedisModule_RegisterInfoFunc
        RedisModule_InfoAddSection RedisModule_InfoAddFieldCString
        RedisModule_InfoAddFieldULongLong RedisModule_GetCommandKeys RedisModule_Free
        RedisModule_OpenKey RedisModule_CloseKey RedisModule_KeyType RedisModule_StringDMA
        RedisModule_StringTruncate RedisModule_StringSet RedisModule_DeleteKey
        RedisModule_UnlinkKey
        RedisModule_GetAbsExpire RedisModule_SetAbsExpire RedisModule_CreateString
        RedisModule_FreeString
        RedisModule_StringPtrLen RedisModule_Replicate RedisModule_SignalModifiedKey
        RedisModule_NotifyKeyspaceEvent RedisModule_ReplyWithArray RedisModule_ReplyWithLongLong
        RedisModule_ReplyWithMap RedisModule_ReplyWithStringBuffer RedisModule_ReplyWithNull
        RedisModule_ReplyWithSimpleString RedisModule_ReplyWithError RedisModule_WrongArity
        RedisModule_Log
        RedisModule_GetServerInfo RedisModule_FreeServerInfo RedisModule_ServerInfoGetFieldUnsigned
        RedisModule_SubscribeToServerEvent RedisModule_ValueLength RedisModule_ZsetAdd
        RedisModule_ZsetRem RedisModule_ZsetScore RedisModule_ZsetFirstInScoreRange
        RedisModule_ZsetLastInScoreRange RedisModule_ZsetRangeCurrentElement
        RedisModule_ZsetRangeNext RedisModule_ZsetRangePrev RedisModule_ZsetRangeStop
        RedisModule_Call RedisModule_CallReplyType RedisModule_CallReplyInteger
        RedisModule_CallReplyArrayElement RedisModule_CreateStringFromCallReply
        RedisModule_FreeCallReply
    );
    functions.into_iter().find(|(_, present)| !present).map(|(name, _)| name)
}

/// Returns the server's cached time of the running command in Unix microseconds; `None` if the
/// server does not provide it.
pub fn cached_time_us() -> Option<u64> {
    // SAFETY: as in `api!`; the function takes nothing and only reads.
    let us = unsafe { raw::RedisModule_CachedMicroseconds.map(|cached| cached()) }?;
    u64::try_from(us).ok()
}

/// Returns the system's time in Unix microseconds; `None` before 1970.
// The standard library takes 45 instructions more for the same, in every call on a server without
// a cached time.
pub fn system_time_us() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for the result, valid during the call.
    let failure = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    let whole_us = u64::try_from(time.tv_sec).ok()?.checked_mul(1_000_000)?;
    let us = whole_us.checked_add(u64::try_from(time.tv_nsec).ok()? / 1_000)?;
    (failure == 0).then_some(us)
}

/// Returns true if the server's API provides the cached time of the running command.
pub fn has_cached_time() -> bool {
    // SAFETY: as in `api!`.
    unsafe { raw::RedisModule_CachedMicroseconds }.is_some()
}

/// Writes a line to the server's log, outside of any command.
pub fn log_warning(message: &str) {
    log(ptr::null_mut(), message);
}

/// Writes a line to the server's log. `ctx` may be null.
fn log(ctx: *mut raw::RedisModuleCtx, message: &str) {
    let printable: String = message.chars().filter(|char| *char != '\0').collect();
    let message = CString::new(printable).unwrap_or_default();
    let (level, format) = (c"warning".as_ptr(), c"%s".as_ptr());
    // SAFETY: the only format is "%s", and one C string follows.
    unsafe { api!(RedisModule_Log)(ctx, level, format, message.as_ptr()) };
}

/// Returns [`Refused`] unless `result` is the success code of an API function.
fn accepted(result: c_int) -> Result<(), Refused> {
    if result == raw::REDISMODULE_OK as c_int { Ok(()) } else { Err(Refused) }
}

/// Converts a number to the API's integer type. A number that is too large becomes the maximum.
fn to_integer(number: u64) -> c_longlong {
    c_longlong::try_from(number).unwrap_or(c_longlong::MAX)
}

/// Returns the bytes of a string of the server.
///
/// # Safety
///
/// `string` must be a string of the server that is neither changed nor freed during `'a`.
unsafe fn bytes_of<'a>(string: *const raw::RedisModuleString) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: by the contract of this function.
    unsafe {
        let start = api!(RedisModule_StringPtrLen)(string, &raw mut len);
        if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
    }
}
