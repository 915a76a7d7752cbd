//! The keys of a call: each is opened once, read in place, written if the call changes it, and
//! closed.
//!
//! ```text
//! KeyName ── open_for_reading ──> ReadKey ── drop
//!    └────── open_for_writing ──> WriteKey ── close ──> ChangedKey ──> Call::announce
//! ```
//!
//! Reading a value through one handle may move its bytes, and a second handle of the same key would
//! then read freed memory. So a [`KeyName`] cannot be copied or used twice, and a call hands out at
//! most one for each key. A client or module that is notified of a change may change any key. So a
//! handle borrows the call for `'open`, and announcing a change needs exclusive access to the call.
//!
//! To send the server a command on an open key, the module closes the handle and opens the key
//! again afterwards. This needs exclusive access to the key, so no bytes of the key are borrowed
//! while it is closed.
//!
//! One risk remains: opening a key may run another module's callback for `expired` or `keymiss`,
//! and that callback may write. The servers forbid modules to write in such a callback.

use super::reply::Context;
use super::{Refused, accepted, to_integer};
use redis_module::raw;
use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::slice;

/// The error of a call that names a key twice: the number of the second of the two equal keys,
/// counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedKey(pub usize);

/// A key that a call names and that is not open yet.
pub struct KeyName<'open, 'call> {
    context: Context<'call>,
    string: *mut raw::RedisModuleString,
    call: PhantomData<&'open ()>,
}

/// A key that can be read until this value is dropped.
pub struct ReadKey<'open, 'call> {
    name: KeyName<'open, 'call>,
    /// `None` for a missing key that was opened for reading.
    handle: Option<NonNull<raw::RedisModuleKey>>,
    kind: KeyKind,
    /// The mode in which `handle` opens the key: for reading, or for reading and writing.
    mode: c_int,
}

/// A key that can be read and written until this value is dropped.
pub struct WriteKey<'open, 'call>(ReadKey<'open, 'call>);

/// A key that was written and closed. Its change is not announced yet.
pub struct ChangedKey<'call> {
    context: Context<'call>,
    string: *mut raw::RedisModuleString,
}

/// A change of a key, as keyspace events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The key has a new value. The event is `set`, of class `$`.
    Set,
    /// The key was deleted. The event is `del`, of class `g`.
    Del,
    /// The members of the key's sorted set changed, and perhaps the key's expiry; or the set was
    /// replaced.
    SortedSet(MemberChanges),
}

/// The kinds of changes to a key that holds a sorted set, or held one. Their events are sent in the
/// order of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberChanges {
    /// A value of another type was deleted first. The event is `del`, of class `g`.
    pub replaced: bool,
    /// Members were removed. The event is `zrem`, of class `z`.
    pub removed: bool,
    /// Members were added or have another score. The event is `zadd`, of class `z`.
    pub added: bool,
    /// The key's expiry changed. The event is `expire`, of class `g`.
    pub expires: bool,
    /// The key has a string instead. The event is `set`, of class `$`.
    pub becomes_string: bool,
}

/// The type of a key's value, as the server reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// The key does not exist.
    Missing,
    /// A string.
    String,
    /// A sorted set.
    SortedSet,
    /// Anything else.
    Other,
}

impl<'open, 'call> KeyName<'open, 'call> {
    /// # Safety
    ///
    /// `string` must be an argument of the command of `context` and live as long as that command.
    /// No other `KeyName` of this command may exist for it or for an equal key.
    pub(super) unsafe fn new(context: Context<'call>, string: *mut raw::RedisModuleString) -> Self {
        Self { context, string, call: PhantomData }
    }

    /// Opens the key for reading only.
    #[inline(always)]
    pub fn open_for_reading(self) -> ReadKey<'open, 'call> {
        self.open(raw::REDISMODULE_READ as c_int)
    }

    /// Opens the key for reading and writing.
    #[inline(always)]
    pub fn open_for_writing(self) -> WriteKey<'open, 'call> {
        WriteKey(self.open((raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int))
    }

    #[inline(always)]
    fn open(self, mode: c_int) -> ReadKey<'open, 'call> {
        let (handle, kind) = self.handle(mode);
        ReadKey { name: self, handle, kind, mode }
    }

    /// Opens the key, and returns the handle and the type of the value. No other handle of this key
    /// may exist.
    #[inline(always)]
    fn handle(&self, mode: c_int) -> (Option<NonNull<raw::RedisModuleKey>>, KeyKind) {
        let (open_key, key_type) = (api!(RedisModule_OpenKey), api!(RedisModule_KeyType));
        // SAFETY: context and name belong to the running command.
        let handle = unsafe { open_key(self.context.as_ptr(), self.string, mode) };
        // SAFETY: the handle was just opened; null, a missing key opened for reading, is accepted.
        let kind = match unsafe { key_type(handle) } {
            kind if kind == raw::REDISMODULE_KEYTYPE_EMPTY as c_int => KeyKind::Missing,
            kind if kind == raw::REDISMODULE_KEYTYPE_STRING as c_int => KeyKind::String,
            kind if kind == raw::REDISMODULE_KEYTYPE_ZSET as c_int => KeyKind::SortedSet,
            _ => KeyKind::Other,
        };
        (NonNull::new(handle), kind)
    }
}

impl ReadKey<'_, '_> {
    /// Returns the type of the key's value.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Returns the bytes of a string without copying them; empty for any other type.
    ///
    /// At the first read, the server converts a string in a compact form (a short text or an
    /// integer) to a plain string. The API has no other way to read the bytes without a copy.
    pub fn bytes(&self) -> &[u8] {
        let (Some(handle), KeyKind::String) = (self.handle, self.kind) else {
            return &[];
        };
        let dma = api!(RedisModule_StringDMA);
        let mut len = 0;
        // SAFETY: the handle is open and holds a string. It is the only one of its key, and no
        // change is announced while it is open. The bytes stay in place until the next change
        // through it, which takes a mutable borrow; reading them again does not move them.
        unsafe {
            let start = dma(handle.as_ptr(), &raw mut len, raw::REDISMODULE_READ as c_int);
            if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
        }
    }

    /// Returns the handle of a sorted set; `None` for any other type.
    pub(super) fn sorted_set(&self) -> Option<*mut raw::RedisModuleKey> {
        self.handle.filter(|_| self.kind == KeyKind::SortedSet).map(NonNull::as_ptr)
    }

    /// Closes the key, runs `send`, which sends the server a command on this key, and opens the key
    /// again. The key may have expired in between. This needs exclusive access to the key, so no
    /// bytes of the key are borrowed while it is closed.
    #[cold]
    pub(super) fn while_closed<T>(
        &mut self,
        send: impl FnOnce(Context<'_>, *mut raw::RedisModuleString) -> T,
    ) -> T {
        self.close_handle();
        let result = send(self.name.context, self.name.string);
        (self.handle, self.kind) = self.name.handle(self.mode);
        result
    }

    #[inline(always)]
    fn close_handle(&mut self) {
        if let Some(handle) = self.handle.take() {
            let close = api!(RedisModule_CloseKey);
            // SAFETY: the handle is open, and not used after this.
            unsafe { close(handle.as_ptr()) };
        }
    }
}

impl<'open, 'call> AsMut<ReadKey<'open, 'call>> for ReadKey<'open, 'call> {
    fn as_mut(&mut self) -> &mut ReadKey<'open, 'call> {
        self
    }
}

impl<'open, 'call> AsMut<ReadKey<'open, 'call>> for WriteKey<'open, 'call> {
    fn as_mut(&mut self) -> &mut ReadKey<'open, 'call> {
        &mut self.0
    }
}

impl<'open, 'call> AsRef<ReadKey<'open, 'call>> for ReadKey<'open, 'call> {
    fn as_ref(&self) -> &ReadKey<'open, 'call> {
        self
    }
}

impl<'open, 'call> AsRef<ReadKey<'open, 'call>> for WriteKey<'open, 'call> {
    fn as_ref(&self) -> &ReadKey<'open, 'call> {
        &self.0
    }
}

impl<'open, 'call> Deref for WriteKey<'open, 'call> {
    type Target = ReadKey<'open, 'call>;

    fn deref(&self) -> &ReadKey<'open, 'call> {
        &self.0
    }
}

impl<'call> WriteKey<'_, 'call> {
    /// Sets the value to `bytes`. A new key gets a string as compact as `SET` would store. The
    /// string of an existing key is overwritten in place.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the key holds a value that is not a string.
    pub fn replace(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        match self.kind {
            KeyKind::Missing => self.create(bytes),
            KeyKind::String => self.overwrite(0, bytes),
            KeyKind::SortedSet | KeyKind::Other => Err(Refused),
        }
    }

    /// Replaces everything from `offset` to the end of the string with `bytes`.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the key does not hold a string.
    #[inline(always)]
    pub fn overwrite(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Refused> {
        let (Some(handle), KeyKind::String) = (self.handle, self.kind) else {
            return Err(Refused);
        };
        let (dma, truncate) = (api!(RedisModule_StringDMA), api!(RedisModule_StringTruncate));
        let write = raw::REDISMODULE_WRITE as c_int;
        let len_wanted = offset.saturating_add(bytes.len());
        let mut len = 0;
        // SAFETY: the handle is open for writing, and holds a string because `kind` says so. The
        // copy stays within the length that the server reported, and `bytes` is not part of the
        // value: the borrow of `self` is exclusive, and no other handle reads this key.
        unsafe {
            let mut start = dma(handle.as_ptr(), &raw mut len, write);
            if len != len_wanted {
                // When a string grows, the server reserves twice its length, which suits a log. A
                // state that is replaced as a whole does not need the spare room. To free it, the
                // string is made one byte too long, and that byte is cut off.
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
        // SAFETY: the handle is open for writing. The bytes are copied into a string of the server;
        // the key takes a reference to it, and this function releases its own. Without a context,
        // only this function frees the string.
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

    /// Returns the key's expiry in Unix milliseconds; `None` if the key never expires.
    #[inline(always)]
    pub fn expire_at_ms(&self) -> Option<u64> {
        let handle = self.handle.filter(|_| self.kind != KeyKind::Missing)?;
        let get = api!(RedisModule_GetAbsExpire);
        // SAFETY: the handle is open, and the key exists.
        u64::try_from(unsafe { get(handle.as_ptr()) }).ok()
    }

    /// Sets the key's expiry to `ms`, in Unix milliseconds.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the key does not exist.
    #[inline(always)]
    pub fn set_expire_at_ms(&mut self, ms: u64) -> Result<(), Refused> {
        let handle = self.handle.ok_or(Refused)?;
        let set = api!(RedisModule_SetAbsExpire);
        // SAFETY: the handle is open for writing; for a missing key the function refuses.
        accepted(unsafe { set(handle.as_ptr(), to_integer(ms)) })
    }

    /// Deletes the key.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the key does not exist.
    pub fn delete(&mut self) -> Result<(), Refused> {
        self.delete_by(api!(RedisModule_DeleteKey))
    }

    /// Deletes the key. The server frees a large value in the background.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the key does not exist.
    pub fn unlink(&mut self) -> Result<(), Refused> {
        self.delete_by(api!(RedisModule_UnlinkKey))
    }

    fn delete_by(
        &mut self,
        delete: unsafe extern "C" fn(*mut raw::RedisModuleKey) -> c_int,
    ) -> Result<(), Refused> {
        let handle = self.handle.filter(|_| self.kind != KeyKind::Missing).ok_or(Refused)?;
        // SAFETY: `delete` is one of the server's two functions that delete a key. The handle is
        // open for writing, and stays open on the deleted key.
        accepted(unsafe { delete(handle.as_ptr()) })?;
        self.0.kind = KeyKind::Missing;
        Ok(())
    }

    /// Returns the open handle, whatever the type of the value is.
    pub(super) fn handle(&self) -> Option<NonNull<raw::RedisModuleKey>> {
        self.0.handle
    }

    /// Records the type that the value has after a change through the handle.
    pub(super) fn holds(&mut self, kind: KeyKind) {
        self.0.kind = kind;
    }

    /// Returns the context and the key's name, for an effect on this key.
    pub(super) fn effect_target(&self) -> (*mut raw::RedisModuleCtx, *mut raw::RedisModuleString) {
        (self.name.context.as_ptr(), self.name.string)
    }

    /// Closes the key, so that clients and modules may read it when the change is announced.
    pub fn close(self) -> ChangedKey<'call> {
        let KeyName { context, string, .. } = self.0.name;
        drop(self);
        ChangedKey { context, string }
    }
}

impl ChangedKey<'_> {
    /// Notifies WATCH and client tracking that the key changed, then emits the keyspace event. No
    /// other key of the call may be open.
    pub(super) fn announce(self, event: Event) {
        let signal = api!(RedisModule_SignalModifiedKey);
        // SAFETY: context and name belong to the running command.
        unsafe { signal(self.context.as_ptr(), self.string) };
        let (class, name) = match event {
            Event::Set => (raw::REDISMODULE_NOTIFY_STRING, c"set"),
            Event::Del => (raw::REDISMODULE_NOTIFY_GENERIC, c"del"),
            Event::SortedSet(changes) => return self.notify_of_members(changes),
        };
        self.notify(class, name);
    }

    #[cold]
    fn notify_of_members(&self, changes: MemberChanges) {
        let events = [
            (changes.replaced, raw::REDISMODULE_NOTIFY_GENERIC, c"del"),
            (changes.removed, raw::REDISMODULE_NOTIFY_ZSET, c"zrem"),
            (changes.added, raw::REDISMODULE_NOTIFY_ZSET, c"zadd"),
            (changes.expires, raw::REDISMODULE_NOTIFY_GENERIC, c"expire"),
            (changes.becomes_string, raw::REDISMODULE_NOTIFY_STRING, c"set"),
        ];
        for (_, class, name) in events.into_iter().filter(|(happened, ..)| *happened) {
            self.notify(class, name);
        }
    }

    #[inline(always)]
    fn notify(&self, class: c_int, name: &CStr) {
        let notify = api!(RedisModule_NotifyKeyspaceEvent);
        // SAFETY: context and name belong to the running command, the event is a C string.
        unsafe { notify(self.context.as_ptr(), class, name.as_ptr(), self.string) };
    }
}

impl Drop for ReadKey<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.close_handle();
    }
}
