//! One call of a command: its arguments, its keys, and the function that the server calls.

use super::bytes_of;
use super::command::KeyRange;
use super::guard::guard;
use super::key::{ChangedKey, Event, KeyName, RepeatedKey};
use super::reply::Context;
use redis_module::raw;
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::slice;

/// The maximum number of arguments that are read. Every valid call has fewer arguments, so a call
/// with unread arguments is an error anyway.
const ARGS_MAX: usize = 34;

/// The commands of a module. The server identifies a command only by the function that it calls.
pub trait Commands {
    /// The error reply of a command that panicked.
    const PANICKED: &'static CStr;

    /// Returns the positions of the keys among the arguments of the command at `index`; `None` if
    /// the command has no keys.
    fn keys(index: usize) -> Option<KeyRange>;

    /// Runs the command at `index` of the module's table. The command replies exactly once, at its
    /// very end.
    fn run(index: usize, call: &mut Call<'_>);
}

/// The error of [`Call::only_key`]: the call names no key, or its key was already handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoKey;

/// The function that the server calls to run a command.
///
/// # Safety
///
/// Only the server may call it, with the arguments of a command.
pub type CommandFunction = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

/// Runs a command. Each command has its own instance of this function: `INDEX` is the command's
/// place in the table.
///
/// # Safety
///
/// As for a [`CommandFunction`].
pub unsafe extern "C" fn trampoline<C: Commands, const INDEX: usize>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let replied = guard(false, || {
        let mut room = [const { MaybeUninit::uninit() }; ARGS_MAX];
        // SAFETY: by the contract of this function.
        let mut call = unsafe { Call::new(ctx, argv, argc, C::keys(INDEX), &mut room) };
        C::run(INDEX, &mut call);
        true
    });
    if !replied {
        // A command replies once, at its very end, so a command that panicked has not sent a reply.
        // SAFETY: the context is that of the running command.
        guard((), || unsafe { Context::new(ctx) }.reply_error(C::PANICKED));
    }
    raw::REDISMODULE_OK as c_int
}

/// One call of a command. Each run of a command creates one `Call`. Neither the call nor its keys
/// can be copied.
pub struct Call<'call> {
    context: Context<'call>,
    args: &'call [&'call [u8]],
    /// The arguments from the first key to the last; empty after [`Call::take_keys`] returned them.
    key_names: Cell<&'call [*mut raw::RedisModuleString]>,
    /// The distance from one key to the next, in arguments.
    key_step: usize,
}

/// The unopened keys of a call, in the order of its arguments.
///
/// Opening a key consumes its [`KeyName`], so a key never has two handles. With two, the use of one
/// could free bytes that are read through the other.
pub struct Keys<'open, 'call> {
    call: &'open Call<'call>,
    /// The arguments from the next unopened key to the last key.
    rest: &'call [*mut raw::RedisModuleString],
}

impl<'open, 'call> Iterator for Keys<'open, 'call> {
    type Item = KeyName<'open, 'call>;

    #[inline(always)]
    fn next(&mut self) -> Option<KeyName<'open, 'call>> {
        let name = self.rest.first()?;
        self.rest = self.rest.get(self.call.key_step..).unwrap_or_default();
        // SAFETY: the name belongs to this command and is handed out once. No other name is equal:
        // `take_keys` would have refused the call. The returned name borrows the call.
        Some(unsafe { KeyName::new(self.call.context, *name) })
    }
}

impl<'call> Call<'call> {
    /// Creates the call, and writes as many of its arguments to `room` as fit.
    ///
    /// # Safety
    ///
    /// `ctx` must be the context of the running command, and `argv` must hold the command's `argc`
    /// arguments. The context and the arguments must outlive `'call`, and no other `Call` may be
    /// created from them.
    #[inline]
    unsafe fn new(
        ctx: *mut raw::RedisModuleCtx,
        argv: *mut *mut raw::RedisModuleString,
        argc: c_int,
        keys: Option<KeyRange>,
        room: &'call mut [MaybeUninit<&'call [u8]>; ARGS_MAX],
    ) -> Self {
        let argc = usize::try_from(argc).unwrap_or(0);
        // SAFETY: by the contract of this function.
        let argv = unsafe { slice::from_raw_parts(argv, argc) };
        let argv = argv.get(1..).unwrap_or_default();
        // SAFETY: by the contract of this function.
        let context = unsafe { Context::new(ctx) };
        let (key_names, key_step) = match keys {
            None => (Default::default(), 1),
            Some(range) => (range.of(argv), range.step()),
        };
        for (place, string) in room.iter_mut().zip(argv) {
            // SAFETY: the string is alive for `'call`, and the server does not change arguments.
            place.write(unsafe { bytes_of(*string) });
        }
        let args_len = argv.len().min(ARGS_MAX);
        // SAFETY: the loop above wrote the first `args_len` places, and no code writes them again.
        let args = unsafe { slice::from_raw_parts(room.as_ptr().cast(), args_len) };
        Self { context, args, key_names: Cell::new(key_names), key_step }
    }

    /// Returns the arguments after the command's name.
    pub fn args(&self) -> &'call [&'call [u8]] {
        self.args
    }

    /// Returns the name of the first key, or an empty name if the call has no arguments.
    #[inline(always)]
    pub fn key_name(&self) -> &'call [u8] {
        self.args.first().copied().unwrap_or_default()
    }

    /// Returns the only key of the call. A key can be requested only once.
    ///
    /// # Errors
    ///
    /// [`NoKey`] if the call names no key, or its key was already requested.
    #[inline(always)]
    pub fn only_key(&self) -> Result<KeyName<'_, 'call>, NoKey> {
        self.take_keys().ok().and_then(|mut keys| keys.next()).ok_or(NoKey)
    }

    /// Returns the arguments after the first key.
    #[inline(always)]
    pub fn args_after_key(&self) -> &'call [&'call [u8]] {
        self.args.get(1..).unwrap_or_default()
    }

    /// Returns all arguments except the first key and the word after it.
    #[inline(always)]
    pub fn args_after_word(&self) -> &'call [&'call [u8]] {
        self.args.get(2..).unwrap_or_default()
    }

    /// Returns the context of this call.
    pub fn context(&self) -> Context<'call> {
        self.context
    }

    /// Returns the keys of the call, or no keys if they were returned before. Each key is compared
    /// with every other key, so use this only after the grammar has checked the number of
    /// arguments.
    ///
    /// # Errors
    ///
    /// [`RepeatedKey`] if two of the keys are equal.
    #[inline(always)]
    pub fn take_keys(&self) -> Result<Keys<'_, 'call>, RepeatedKey> {
        let mut rest = self.key_names.take();
        if rest.len() > 1 {
            // The first key is the first argument. Keys beyond `ARGS_MAX` are left out, because
            // their bytes were not read.
            let names = self.args.get(..rest.len()).unwrap_or(self.args);
            rest = rest.get(..names.len()).unwrap_or_default();
            if let Some(at) = find_repeated(names, self.key_step) {
                return Err(RepeatedKey(at));
            }
        }
        Ok(Keys { call: self, rest })
    }

    /// Announces a change of a key. Clients and modules that receive the announcement may change
    /// any key, so no key of this call may be open. The exclusive borrow of the call ensures that,
    /// because an open key borrows the call.
    pub fn announce(&mut self, changed: ChangedKey<'call>, event: Event) {
        changed.announce(event);
    }
}

/// Returns the number, counted from 0, of the first name that equals an earlier name. `names` has a
/// name at index 0 and at every `step` after it. A call has few names, so comparing each name with
/// every other name is the fastest way.
fn find_repeated(names: &[&[u8]], step: usize) -> Option<usize> {
    let mut at = step;
    while let Some(name) = names.get(at) {
        let mut earlier = names.get(..at).unwrap_or_default();
        while let [other, ..] = earlier {
            if other == name {
                return Some(at / step);
            }
            earlier = earlier.get(step..).unwrap_or_default();
        }
        at += step;
    }
    None
}

/// Replies with a fixed decision and does nothing else, to measure the minimal cost of a command.
///
/// # Safety
///
/// As for a [`CommandFunction`].
#[cfg(feature = "noop-command")]
pub unsafe extern "C" fn noop(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    let integers = [1, 1_000_000, 999_999, 0, 864_000];
    // SAFETY: the context is that of the running command.
    guard((), || unsafe { Context::new(ctx) }.reply_integers(&integers));
    raw::REDISMODULE_OK as c_int
}

#[cfg(test)]
mod tests {
    use super::{Call, Context, find_repeated};
    use std::cell::Cell;
    use std::ptr;

    #[test]
    fn the_keys_of_a_call_can_be_taken_once() {
        let names = [ptr::dangling_mut()];
        let call = Call {
            // SAFETY: the context is not used.
            context: unsafe { Context::new(ptr::null_mut()) },
            args: &[],
            key_names: Cell::new(&names),
            key_step: 1,
        };
        let mut keys = call.take_keys().expect("one key is not repeated");
        assert_eq!((&mut keys).count(), 1);
        assert!(keys.next().is_none());
        assert_eq!(call.take_keys().expect("none at all").count(), 0);
    }

    #[test]
    fn find_repeated_finds_an_equal_name_at_any_place() {
        let table: [(&[&str], Option<usize>); 8] = [
            (&[], None),
            (&["a"], None),
            (&["a", "b"], None),
            (&["a", "aa", "", "A"], None),
            (&["a", "a"], Some(1)),
            (&["a", "b", "a"], Some(2)),
            (&["c", "a", "b", "b", "a"], Some(3)),
            (&["", ""], Some(1)),
        ];
        for (names, expected) in table {
            let names: Vec<_> = names.iter().map(|name| name.as_bytes()).collect();
            assert_eq!(find_repeated(&names, 1), expected, "{names:?}");
            let pairs: Vec<_> = names.iter().flat_map(|name| [*name, b"FIXED 1 1"]).collect();
            assert_eq!(find_repeated(&pairs, 2), expected, "{pairs:?}");
            let odd = pairs.get(..pairs.len().saturating_sub(1)).unwrap_or_default();
            assert_eq!(find_repeated(odd, 2), expected, "{odd:?}");
        }
    }
}
