//! The border to the server: all `unsafe` written by hand, behind functions that are safe to call.
//!
//! Three rules hold here. Every function that the server calls catches unwinding, because a panic
//! that leaves an `extern "C"` function aborts the process. Bytes that a client sent never pass
//! through a C string or a format. And what is handed out borrows from the [`Call`] or the key
//! it belongs to, so that nothing outlives the command.

use super::commands::{Access, COMMANDS, Command};
use super::metadata::{self, NO_KEY_SPEC};
use super::{config, fault, handler, info};
use crate::limiter::sliding_log::RawEntry;
use crate::limiter::{Instant, Slots};
use redis_module::raw;
use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_uint, c_void};
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A function of the server's API. Those used below are checked at load, so that it is there.
macro_rules! api {
    ($name:ident) => {{
        #[allow(unused_unsafe, reason = "stands inside and outside of unsafe blocks")]
        // SAFETY: the pointers are written once, while the module loads, before any other use.
        let function = unsafe { raw::$name };
        function.expect(concat!(stringify!($name), " was checked at load"))
    }};
}

/// Whether the server has each of these functions, with its name.
macro_rules! presence {
    ($($name:ident)*) => {
        // SAFETY: as in `api!`.
        [$((stringify!($name), unsafe { raw::$name }.is_some())),*]
    };
}

/// Replicates a command on the key of a call. The format has a letter for each argument, the key in
/// front: `s` is a string of the server, `b` a pointer and a length, `l` an integer.
macro_rules! replicate {
    ($call:expr, $command:literal, $format:literal, $($argument:expr),+) => {{
        let replicate = api!(RedisModule_Replicate);
        let (command, format) = ($command.as_ptr(), $format.as_ptr());
        // SAFETY: the arguments are what the format says, and alive during the call.
        unsafe { replicate($call.context.0, command, format, $call.key_name, $($argument),+) };
    }};
}

/// How many arguments are looked at. The longest valid call has seven after its name, so that one
/// cut off here is in error before.
const ARGS_MAX: usize = 10;

/// Valkey 9: without it the server refuses to migrate slots while the module is loaded.
const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

/// The server said no: it has no such thing, the name is taken, the value is not of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// A word of the effects, made once: an effect takes a share in it where it would take a copy.
struct Word(AtomicPtr<raw::RedisModuleString>, &'static CStr);

static PXAT: Word = Word::new(c"PXAT");
static KEEPTTL: Word = Word::new(c"KEEPTTL");

impl Word {
    const fn new(text: &'static CStr) -> Self {
        Self(AtomicPtr::new(ptr::null_mut()), text)
    }

    /// The server's string of this word; never null once the module is loaded.
    fn string(&self) -> *mut raw::RedisModuleString {
        self.0.load(Relaxed)
    }

    fn make(&self) {
        let (create, text) = (api!(RedisModule_CreateString), self.1);
        // SAFETY: the text lives for ever. Without a context the string is nobody else's to free.
        let string = unsafe { create(ptr::null_mut(), text.as_ptr(), text.count_bytes()) };
        self.0.store(string, Relaxed);
    }

    fn free(&self) {
        let string = self.0.swap(ptr::null_mut(), Relaxed);
        if !string.is_null() {
            // SAFETY: it was made by `make` and is freed once.
            unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), string) };
        }
    }
}

/// The server's context of one command.
#[derive(Clone, Copy)]
pub struct Context<'call>(*mut raw::RedisModuleCtx, PhantomData<&'call ()>);

/// One command as it was called.
pub struct Call<'call> {
    context: Context<'call>,
    key_name: *mut raw::RedisModuleString,
    args: [&'call [u8]; ARGS_MAX],
    args_len: usize,
}

/// A key that can be read until this is dropped.
pub struct ReadKey<'call> {
    /// There is none for a missing key that was opened for reading.
    handle: Option<NonNull<raw::RedisModuleKey>>,
    kind: KeyKind,
    call: PhantomData<&'call Call<'call>>,
}

/// A key that can be read and written until this is dropped.
pub struct WriteKey<'call>(ReadKey<'call>);

/// What a key holds, as far as the server tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// There is no such key.
    Missing,
    /// A string.
    String,
    /// Anything else.
    Other,
}

impl<'call> Call<'call> {
    /// # Safety
    ///
    /// `argv` must hold `argc` strings of the server that live as long as `'call`, as they do in
    /// the function of a command.
    unsafe fn new(
        ctx: *mut raw::RedisModuleCtx,
        argv: *mut *mut raw::RedisModuleString,
        argc: c_int,
    ) -> Self {
        let argc = usize::try_from(argc).unwrap_or(0);
        // SAFETY: by the contract of this function.
        let argv = unsafe { slice::from_raw_parts(argv, argc) };
        let argv = argv.get(1..).unwrap_or_default();
        let mut args = [[].as_slice(); ARGS_MAX];
        for (arg, string) in args.iter_mut().zip(argv) {
            // SAFETY: the string is alive for `'call`, and the server does not change arguments.
            *arg = unsafe { bytes_of(*string) };
        }
        Self {
            context: Context(ctx, PhantomData),
            key_name: argv.first().copied().unwrap_or(ptr::null_mut()),
            args,
            args_len: argv.len().min(ARGS_MAX),
        }
    }

    /// The arguments after the command's name.
    pub fn args(&self) -> &[&'call [u8]] {
        self.args.get(..self.args_len).unwrap_or_default()
    }

    /// The context of this call.
    pub fn context(&self) -> Context<'call> {
        self.context
    }

    /// Opens the key that argument 1 names, for reading alone.
    pub fn open_for_reading(&self) -> ReadKey<'_> {
        self.open(raw::REDISMODULE_READ as c_int)
    }

    /// Opens the key that argument 1 names, to read it and perhaps to write it.
    pub fn open_for_writing(&self) -> WriteKey<'_> {
        WriteKey(self.open((raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int))
    }

    fn open(&self, mode: c_int) -> ReadKey<'_> {
        let (open_key, key_type) = (api!(RedisModule_OpenKey), api!(RedisModule_KeyType));
        // SAFETY: context and name belong to the running command; every command that opens a key
        // has an arity that makes the server insist on argument 1.
        let handle = unsafe { open_key(self.context.0, self.key_name, mode) };
        // SAFETY: the handle was just opened; null, a missing key opened for reading, is accepted.
        let kind = match unsafe { key_type(handle) } {
            kind if kind == raw::REDISMODULE_KEYTYPE_EMPTY as c_int => KeyKind::Missing,
            kind if kind == raw::REDISMODULE_KEYTYPE_STRING as c_int => KeyKind::String,
            _ => KeyKind::Other,
        };
        ReadKey { handle: NonNull::new(handle), kind, call: PhantomData }
    }

    /// Replicates `SET key bytes PXAT expire_at_ms`.
    pub fn replicate_set_pxat(&self, bytes: &[u8], expire_at_ms: u64) {
        // The server would take two allocations and twice as long to spell the number.
        let mut buffer = itoa::Buffer::new();
        let ms = buffer.format(expire_at_ms);
        let (bytes, len) = (bytes.as_ptr(), bytes.len());
        replicate!(self, c"SET", c"sbsb", bytes, len, PXAT.string(), ms.as_ptr(), ms.len());
    }

    /// Replicates `SET key bytes KEEPTTL`.
    pub fn replicate_set_keepttl(&self, bytes: &[u8]) {
        replicate!(self, c"SET", c"sbs", bytes.as_ptr(), bytes.len(), KEEPTTL.string());
    }

    /// Replicates `SETRANGE key offset entry`.
    pub fn replicate_setrange(&self, offset: usize, entry: &RawEntry) {
        let offset = c_longlong::try_from(offset).unwrap_or(c_longlong::MAX);
        replicate!(self, c"SETRANGE", c"slb", offset, entry.as_ptr(), entry.len());
    }

    /// Replicates `PEXPIREAT key expire_at_ms`.
    pub fn replicate_pexpireat(&self, expire_at_ms: u64) {
        replicate!(self, c"PEXPIREAT", c"sl", to_integer(expire_at_ms));
    }

    /// Tells WATCH and client tracking that the key changed.
    pub fn signal_modified(&self) {
        // SAFETY: context and name belong to the running command.
        unsafe { api!(RedisModule_SignalModifiedKey)(self.context.0, self.key_name) };
    }

    /// Emits the keyspace event `set`, of class `$`.
    pub fn notify_set(&self) {
        let notify = api!(RedisModule_NotifyKeyspaceEvent);
        let class = raw::REDISMODULE_NOTIFY_STRING as c_int;
        // SAFETY: context and name belong to the running command, the event is a C string.
        unsafe { notify(self.context.0, class, c"set".as_ptr(), self.key_name) };
    }
}

impl ReadKey<'_> {
    /// What kind of value it holds.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The bytes of a string, in place; empty for anything else.
    ///
    /// The server makes a plain string of one that it keeps in a compact form (a small one, or an
    /// integer) the first time its bytes are asked for: there is no other way to read in place.
    pub fn bytes(&self) -> &[u8] {
        let (Some(handle), KeyKind::String) = (self.handle, self.kind) else {
            return &[];
        };
        let dma = api!(RedisModule_StringDMA);
        let mut len = 0;
        // SAFETY: the handle is open and holds a string. The bytes stay where they are until the
        // next change through this handle, which takes a mutable borrow.
        unsafe {
            let start = dma(handle.as_ptr(), &raw mut len, raw::REDISMODULE_READ as c_int);
            if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
        }
    }
}

impl<'call> Deref for WriteKey<'call> {
    type Target = ReadKey<'call>;

    fn deref(&self) -> &ReadKey<'call> {
        &self.0
    }
}

impl WriteKey<'_> {
    /// Makes `bytes` its value. A new key gets a string as compact as `SET` makes it; the string of
    /// an old one is overwritten where it is.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the key holds something that is no string.
    pub fn replace(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        match self.kind {
            KeyKind::Missing => self.create(bytes),
            KeyKind::String => self.overwrite(0, bytes),
            KeyKind::Other => Err(Refused),
        }
    }

    /// Makes `bytes` what the string holds from `offset` on, up to its end.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the key holds no string.
    pub fn overwrite(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Refused> {
        let (Some(handle), KeyKind::String) = (self.handle, self.kind) else {
            return Err(Refused);
        };
        let (dma, truncate) = (api!(RedisModule_StringDMA), api!(RedisModule_StringTruncate));
        let write = raw::REDISMODULE_WRITE as c_int;
        let len_wanted = offset.saturating_add(bytes.len());
        let mut len = 0;
        // SAFETY: the handle is open for writing and holds a string, as a `WriteKey` of that kind
        // does. The copy stays within the length that the server reported, and `bytes` is not part
        // of the value: the borrow of `self` is exclusive.
        unsafe {
            let mut start = dma(handle.as_ptr(), &raw mut len, write);
            if len != len_wanted {
                // A string that grows gets twice the room, as a log wants it. A state that is
                // replaced whole gives it back when one byte too much is cut off.
                if offset == 0 && len_wanted > len {
                    truncate(handle.as_ptr(), len_wanted.saturating_add(1));
                }
                if truncate(handle.as_ptr(), len_wanted) != raw::REDISMODULE_OK as c_int {
                    return Err(Refused);
                }
                start = dma(handle.as_ptr(), &raw mut len, write);
            }
            if start.is_null() || len != len_wanted {
                return Err(Refused);
            }
            ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast::<u8>().add(offset), bytes.len());
        }
        Ok(())
    }

    fn create(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        let handle = self.handle.ok_or(Refused)?;
        let (create, free) = (api!(RedisModule_CreateString), api!(RedisModule_FreeString));
        let set = api!(RedisModule_StringSet);
        // SAFETY: the handle is open for writing. The bytes are copied into a string of the server,
        // which the key takes a share in and this function gives up. Without a context the string
        // is nobody else's to free.
        let result = unsafe {
            let string = create(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len());
            let result = set(handle.as_ptr(), string);
            free(ptr::null_mut(), string);
            result
        };
        accepted(result)?;
        self.0.kind = KeyKind::String;
        Ok(())
    }

    /// When it expires, in Unix milliseconds; `None` when it never does.
    pub fn expire_at_ms(&self) -> Option<u64> {
        let handle = self.handle.filter(|_| self.kind != KeyKind::Missing)?;
        let get = api!(RedisModule_GetAbsExpire);
        // SAFETY: the handle is open, and there is a key behind it.
        u64::try_from(unsafe { get(handle.as_ptr()) }).ok()
    }

    /// Lets it expire at `ms`, in Unix milliseconds.
    ///
    /// # Errors
    ///
    /// [`Refused`] when there is no key.
    pub fn set_expire_at_ms(&mut self, ms: u64) -> Result<(), Refused> {
        let handle = self.handle.ok_or(Refused)?;
        let set = api!(RedisModule_SetAbsExpire);
        // SAFETY: the handle is open for writing; without a key behind it the function refuses.
        accepted(unsafe { set(handle.as_ptr(), to_integer(ms)) })
    }
}

impl Drop for ReadKey<'_> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle {
            let close = api!(RedisModule_CloseKey);
            // SAFETY: the handle is open, and not used after this.
            unsafe { close(handle.as_ptr()) };
        }
    }
}

/// A value in a map reply.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A text.
    Text(&'static str),
    /// A number.
    Integer(u64),
}

impl Context<'_> {
    /// Replies with an array of integers.
    pub fn reply_integers(self, integers: &[i64]) {
        let (array, long_long) =
            (api!(RedisModule_ReplyWithArray), api!(RedisModule_ReplyWithLongLong));
        let len = integers.len().try_into().unwrap_or(0);
        // SAFETY: the context is that of the running command; as many replies follow as announced.
        unsafe {
            array(self.0, len);
            for integer in integers {
                long_long(self.0, *integer);
            }
        }
    }

    /// Replies with one integer.
    pub fn reply_integer(self, integer: i64) {
        // SAFETY: the context is that of the running command.
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.0, integer) };
    }

    /// Replies with a map: flat for a client that speaks RESP2.
    pub fn reply_map(self, pairs: &[(&'static str, Value)]) {
        let map = api!(RedisModule_ReplyWithMap);
        let long_long = api!(RedisModule_ReplyWithLongLong);
        let string = api!(RedisModule_ReplyWithStringBuffer);
        let len = pairs.len().try_into().unwrap_or(0);
        // SAFETY: the context is that of the running command; texts go with their length; as many
        // pairs follow as announced.
        unsafe {
            map(self.0, len);
            for (name, value) in pairs {
                string(self.0, name.as_ptr().cast(), name.len());
                match value {
                    Value::Text(text) => string(self.0, text.as_ptr().cast(), text.len()),
                    Value::Integer(integer) => {
                        long_long(self.0, i64::try_from(*integer).unwrap_or(i64::MAX))
                    }
                };
            }
        }
    }

    /// Replies with `OK`.
    #[cfg(feature = "fault-injection")]
    pub fn reply_ok(self) {
        // SAFETY: the context is that of the running command; the text is a C string.
        unsafe { api!(RedisModule_ReplyWithSimpleString)(self.0, c"OK".as_ptr()) };
    }

    /// Replies with null.
    pub fn reply_null(self) {
        // SAFETY: the context is that of the running command.
        unsafe { api!(RedisModule_ReplyWithNull)(self.0) };
    }

    /// Replies with an error.
    pub fn reply_error(self, text: &'static CStr) {
        // SAFETY: the context is that of the running command; the text is a C string for ever.
        unsafe { api!(RedisModule_ReplyWithError)(self.0, text.as_ptr()) };
    }

    /// Replies with the server's own error about the number of arguments.
    pub fn reply_wrong_arity(self) {
        // SAFETY: the context is that of the running command.
        unsafe { api!(RedisModule_WrongArity)(self.0) };
    }
}

/// Writes a line to the server's log, on behalf of no command in particular.
pub fn log_warning(message: &str) {
    log(ptr::null_mut(), message);
}

/// Writes a line to the server's log. A null context is accepted.
fn log(ctx: *mut raw::RedisModuleCtx, message: &str) {
    let printable: String = message.chars().filter(|char| *char != '\0').collect();
    let message = CString::new(printable).unwrap_or_default();
    let (level, format) = (c"warning".as_ptr(), c"%s".as_ptr());
    // SAFETY: the only format is "%s", and one C string follows.
    unsafe { api!(RedisModule_Log)(ctx, level, format, message.as_ptr()) };
}

/// The server's cached time of the running command, where it tells.
pub fn cached_time() -> Option<Instant> {
    // SAFETY: as in `api!`; the function takes nothing and only reads.
    let us = unsafe { raw::RedisModule_CachedMicroseconds.map(|cached| cached()) }?;
    u64::try_from(us).ok().map(Instant::from_us)
}

/// Whether the server tells the cached time of the running command.
pub fn has_cached_time() -> bool {
    // SAFETY: as in `api!`.
    unsafe { raw::RedisModule_CachedMicroseconds }.is_some()
}

/// Runs `body`; when it panics, counts that and answers `otherwise`. The panic hook has logged it.
pub fn guard<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        info::count_panic();
        otherwise
    })
}

/// What the server calls for a command.
pub type CommandFunction =
    extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// The function of every command: the server calls the instance that bears its index in the table.
extern "C" fn trampoline<const INDEX: usize>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let replied = guard(false, || {
        // SAFETY: these are the arguments of a command, which outlive it.
        let call = unsafe { Call::new(ctx, argv, argc) };
        handler::run(INDEX, &call);
        true
    });
    if !replied {
        // A handler replies in one go at its very end, so nothing has been sent yet.
        guard((), || Context(ctx, PhantomData).reply_error(super::error::INTERNAL));
    }
    raw::REDISMODULE_OK as c_int
}

/// One instance for each line of the table.
const TRAMPOLINES: [CommandFunction; COMMANDS.len()] = [
    trampoline::<0>,
    trampoline::<1>,
    trampoline::<2>,
    trampoline::<3>,
    trampoline::<4>,
    trampoline::<5>,
    trampoline::<6>,
    trampoline::<7>,
    trampoline::<8>,
];

/// The floor of any command: the reply of a decision, and nothing else.
#[cfg(feature = "noop-command")]
pub extern "C" fn noop(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    guard((), || Context(ctx, PhantomData).reply_integers(&[1, 1_000_000, 999_999, 0, 864_000]));
    raw::REDISMODULE_OK as c_int
}

/// The first function that the server lacks, if any: it is then too old.
pub fn missing_function() -> Option<&'static str> {
    let functions = presence!(
        RedisModule_CreateCommand RedisModule_GetCommand RedisModule_SetCommandInfo
        RedisModule_SetModuleOptions RedisModule_RegisterBoolConfig
        RedisModule_RegisterNumericConfig RedisModule_LoadConfigs RedisModule_RegisterInfoFunc
        RedisModule_OpenKey RedisModule_CloseKey RedisModule_KeyType RedisModule_StringDMA
        RedisModule_StringTruncate RedisModule_StringSet RedisModule_GetAbsExpire
        RedisModule_SetAbsExpire RedisModule_CreateString RedisModule_FreeString
        RedisModule_StringPtrLen RedisModule_Replicate RedisModule_SignalModifiedKey
        RedisModule_NotifyKeyspaceEvent RedisModule_ReplyWithArray RedisModule_ReplyWithLongLong
        RedisModule_ReplyWithMap RedisModule_ReplyWithStringBuffer RedisModule_ReplyWithNull
        RedisModule_ReplyWithError RedisModule_WrongArity RedisModule_Log
    );
    functions.into_iter().find(|(_, present)| !present).map(|(name, _)| name)
}

/// Gives back what the server allocated for the module.
pub fn unload() {
    [&PXAT, &KEEPTTL].into_iter().for_each(Word::free);
}

/// What the module can do while it is being loaded.
pub struct Loader<'load>(*mut raw::RedisModuleCtx, PhantomData<&'load ()>);

impl<'load> Loader<'load> {
    /// The loader behind the context that the `redis_module!` block hands on.
    pub fn new(ctx: &'load redis_module::Context) -> Self {
        Self(ctx.ctx, PhantomData)
    }

    /// Writes a line to the server's log, under the module's name.
    pub fn log_warning(&self, message: &str) {
        log(self.0, message);
    }

    /// Announces what the module copes with.
    pub fn set_options(&self) {
        let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS as c_int
            | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD as c_int
            | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int;
        let mut found: *mut c_void = ptr::null_mut();
        // SAFETY: the server writes a function pointer where the second argument points, or
        // nothing. It is only looked at, never called.
        let is_valkey = unsafe {
            raw::RedisModule_GetApi.is_some_and(|get_api| {
                let name = c"ValkeyModule_SetModuleOptions";
                get_api(name.as_ptr(), (&raw mut found).cast()) == raw::REDISMODULE_OK as c_int
            })
        };
        if is_valkey {
            options |= HANDLE_ATOMIC_SLOT_MIGRATION;
        }
        // SAFETY: the context is that of the load.
        unsafe { api!(RedisModule_SetModuleOptions)(self.0, options) };
    }

    /// Registers `debug-commands`, which stays as the configuration file has it.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the server does not accept it.
    pub fn register_debug_commands(&self, default: bool) -> Result<(), Refused> {
        // SAFETY: the context is that of the load; getter and setter ignore their data.
        let result = unsafe {
            api!(RedisModule_RegisterBoolConfig)(
                self.0,
                c"debug-commands".as_ptr(),
                default.into(),
                raw::REDISMODULE_CONFIG_IMMUTABLE as c_uint,
                Some(get_debug_commands),
                Some(set_debug_commands),
                None,
                ptr::null_mut(),
            )
        };
        accepted(result)
    }

    /// Registers `sliding-log-slots`.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the server does not accept it.
    pub fn register_sliding_log_slots(&self, default: Slots) -> Result<(), Refused> {
        // SAFETY: the context is that of the load; getter and setter ignore their data.
        let result = unsafe {
            api!(RedisModule_RegisterNumericConfig)(
                self.0,
                c"sliding-log-slots".as_ptr(),
                to_integer(default.count()),
                raw::REDISMODULE_CONFIG_DEFAULT as c_uint,
                Slots::MIN.into(),
                Slots::MAX.into(),
                Some(get_sliding_log_slots),
                Some(set_sliding_log_slots),
                None,
                ptr::null_mut(),
            )
        };
        accepted(result)
    }

    /// Applies what the configuration file says of the registered settings.
    ///
    /// # Errors
    ///
    /// [`Refused`] when a value is out of bounds; the server has logged which.
    pub fn load_settings(&self) -> Result<(), Refused> {
        // SAFETY: the context is that of the load.
        accepted(unsafe { api!(RedisModule_LoadConfigs)(self.0) })
    }

    /// Adds an ACL category, where the server can.
    ///
    /// # Errors
    ///
    /// [`Refused`] when it cannot, or has that category already.
    pub fn add_acl_category(&self, name: &CStr) -> Result<(), Refused> {
        // SAFETY: as in `api!`; the context is that of the load.
        unsafe {
            let add = raw::RedisModule_AddACLCategory.ok_or(Refused)?;
            accepted(add(self.0, name.as_ptr()))
        }
    }

    /// Registers command `index` of the table with all that it says of itself.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the name is taken or the server finds fault with the table.
    pub fn register_command(&self, index: usize, command: &Command) -> Result<(), Refused> {
        let function = TRAMPOLINES.get(index).ok_or(Refused)?;
        let has_key = command.access != Access::None;
        self.create_command(command.name, *function, command.flags, has_key)?;
        self.set_command_info(command)
    }

    /// Makes the server call `function` for commands of that name.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the name is taken or a flag unknown.
    pub fn create_command(
        &self,
        name: &CStr,
        function: CommandFunction,
        flags: &CStr,
        has_key: bool,
    ) -> Result<(), Refused> {
        let (create, at) = (api!(RedisModule_CreateCommand), has_key.into());
        // SAFETY: the context is that of the load; the server copies name and flags.
        accepted(unsafe {
            create(self.0, name.as_ptr(), Some(function), flags.as_ptr(), at, at, at)
        })
    }

    /// Makes the words of the effects. The last step of a load, so that a refused one leaves none.
    pub fn make_words(&self) {
        [&PXAT, &KEEPTTL].into_iter().for_each(Word::make);
    }

    /// Files a command under ACL categories, where the server can.
    ///
    /// # Errors
    ///
    /// [`Refused`] when it cannot, or does not know one of them.
    pub fn set_acl_categories(&self, command: &Command, names: &CStr) -> Result<(), Refused> {
        // SAFETY: as in `api!`; the command was registered by this load.
        unsafe {
            let set = raw::RedisModule_SetCommandACLCategories.ok_or(Refused)?;
            let registered = api!(RedisModule_GetCommand)(self.0, command.name.as_ptr());
            if registered.is_null() {
                return Err(Refused);
            }
            accepted(set(registered, names.as_ptr()))
        }
    }

    fn set_command_info(&self, command: &Command) -> Result<(), Refused> {
        let version = raw::RedisModuleCommandInfoVersion {
            version: 1,
            sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
            sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
            sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
        };
        let mut key_specs = [metadata::key_spec(command.access), NO_KEY_SPEC];
        let mut kept_alive = Vec::new();
        let args = metadata::arguments(command.arguments, &mut kept_alive);
        let info = raw::RedisModuleCommandInfo {
            version: &raw const version,
            summary: command.summary.as_ptr(),
            complexity: command.complexity.as_ptr(),
            since: command.since.as_ptr(),
            history: ptr::null_mut(),
            tips: command.tips.map_or(ptr::null(), CStr::as_ptr),
            arity: command.arity,
            key_specs: match command.access {
                Access::None => ptr::null_mut(),
                Access::Read | Access::Update => key_specs.as_mut_ptr(),
            },
            args,
        };
        // SAFETY: the command was registered by this load. The server copies all of `info`, which
        // lives until the end of this function, as do the lists that it points to.
        let result = unsafe {
            let registered = api!(RedisModule_GetCommand)(self.0, command.name.as_ptr());
            if registered.is_null() {
                return Err(Refused);
            }
            api!(RedisModule_SetCommandInfo)(registered, &raw const info)
        };
        accepted(result)
    }
}

extern "C" fn get_debug_commands(_: *const c_char, _: *mut c_void) -> c_int {
    guard(0, || {
        fault::point(fault::Point::ConfigGet);
        config::debug_commands().into()
    })
}

extern "C" fn set_debug_commands(
    _: *const c_char,
    value: c_int,
    _: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    guard(raw::REDISMODULE_ERR as c_int, || {
        fault::point(fault::Point::ConfigSet);
        config::set_debug_commands(value != 0);
        raw::REDISMODULE_OK as c_int
    })
}

extern "C" fn get_sliding_log_slots(_: *const c_char, _: *mut c_void) -> c_longlong {
    guard(to_integer(Slots::DEFAULT.count()), || {
        fault::point(fault::Point::ConfigGet);
        to_integer(config::sliding_log_slots().count())
    })
}

extern "C" fn set_sliding_log_slots(
    _: *const c_char,
    value: c_longlong,
    _: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    guard(raw::REDISMODULE_ERR as c_int, || {
        fault::point(fault::Point::ConfigSet);
        match config::set_sliding_log_slots(value) {
            true => raw::REDISMODULE_OK as c_int,
            false => raw::REDISMODULE_ERR as c_int,
        }
    })
}

fn accepted(result: c_int) -> Result<(), Refused> {
    if result == raw::REDISMODULE_OK as c_int { Ok(()) } else { Err(Refused) }
}

/// An unsigned number as the API takes it.
fn to_integer(number: u64) -> c_longlong {
    c_longlong::try_from(number).unwrap_or(c_longlong::MAX)
}

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
