//! Keys that hold a sorted set: their members by score, from either end, and their size.
//!
//! The server's API functions walk a set from a given score, but can neither count members nor find
//! one by rank. If a walk would take too many steps, the module uses the server's own commands. The
//! module closes the key before such a command, because a command that changed the key would leave
//! a dangling handle.

use super::key::{KeyKind, ReadKey, WriteKey};
use super::reply::Context;
use super::{Refused, accepted, to_integer};
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The command that counts the members between two scores.
const ZCOUNT: &CStr = c"ZCOUNT";
/// The command that returns the member at a rank.
const ZRANGE: &CStr = c"ZRANGE";

/// A sample of each command that queries a set, with arguments of the same form.
pub(super) const QUERIES: [&[&CStr]; 2] =
    [&[ZCOUNT, c"key", c"1", c"2"], &[ZRANGE, c"key", c"1", c"1"]];

/// A member of a sorted set: a string of the server, owned by the module.
#[repr(transparent)]
pub struct Member(NonNull<raw::RedisModuleString>);

impl Member {
    /// Creates a member from bytes; `None` if the server cannot create the string.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let create = api!(RedisModule_CreateString);
        // SAFETY: the bytes are copied. Without a context, only the member frees the string.
        NonNull::new(unsafe { create(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len()) })
            .map(Self)
    }

    /// Returns the member's bytes.
    pub fn bytes(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the member owns the string, which never changes.
        unsafe {
            let start = api!(RedisModule_StringPtrLen)(self.0.as_ptr(), &raw mut len);
            if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
        }
    }

    /// Returns the server's pointer to the member's string.
    pub(super) fn as_ptr(&self) -> *mut raw::RedisModuleString {
        self.0.as_ptr()
    }
}

/// The member without bytes, created once at load.
static EMPTY: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

/// Creates the empty member. This step of a load cannot fail.
pub(super) fn make_empty() {
    let empty =
        Member::new(b"").map_or(ptr::null_mut(), |member| ManuallyDrop::new(member).as_ptr());
    EMPTY.store(empty, Relaxed);
}

/// Frees the empty member.
pub(super) fn free_empty() {
    drop(NonNull::new(EMPTY.swap(ptr::null_mut(), Relaxed)).map(Member));
}

impl Member {
    /// Returns the empty member; `None` if the module is not loaded.
    pub fn empty() -> Option<ManuallyDrop<Self>> {
        NonNull::new(EMPTY.load(Relaxed)).map(|empty| ManuallyDrop::new(Self(empty)))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // SAFETY: the member owns the string, which is not used after this.
        unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), self.0.as_ptr()) };
    }
}

/// An iterator over the members of a sorted set and their scores. It borrows the key exclusively.
pub struct Walk<'key, 'open, 'call> {
    key: &'key mut ReadKey<'open, 'call>,
    step: unsafe extern "C" fn(*mut raw::RedisModuleKey) -> c_int,
    is_at_start: bool,
}

impl Walk<'_, '_, '_> {
    /// Skips one member. Returns false if no member is left.
    pub fn pass(&mut self) -> bool {
        let Some(handle) = self.key.sorted_set() else { return false };
        // SAFETY: the handle is open and holds a sorted set, which is not changed during the walk.
        if !self.is_at_start && unsafe { (self.step)(handle) } == 0 {
            return false;
        }
        self.is_at_start = false;
        true
    }
}

impl Iterator for Walk<'_, '_, '_> {
    type Item = (Member, f64);

    fn next(&mut self) -> Option<(Member, f64)> {
        if !self.pass() {
            return None;
        }
        let handle = self.key.sorted_set()?;
        let current = api!(RedisModule_ZsetRangeCurrentElement);
        let mut score = 0.0;
        // SAFETY: the handle is open and holds a sorted set; the member owns the new string.
        let member = NonNull::new(unsafe { current(handle, &raw mut score) })?;
        Some((Member(member), score))
    }
}

impl Drop for Walk<'_, '_, '_> {
    fn drop(&mut self) {
        if let Some(handle) = self.key.sorted_set() {
            // SAFETY: the handle is open and holds a sorted set.
            unsafe { api!(RedisModule_ZsetRangeStop)(handle) };
        }
    }
}

impl<'open, 'call> ReadKey<'open, 'call> {
    /// Returns the number of members; 0 for any other type of value.
    pub fn members(&self) -> u64 {
        let Some(handle) = self.sorted_set() else { return 0 };
        // SAFETY: the handle is open.
        unsafe { api!(RedisModule_ValueLength)(handle) as u64 }
    }

    /// Returns the score of a member; `None` if the set does not contain the member.
    pub fn score(&self, member: &Member) -> Option<f64> {
        let handle = self.sorted_set()?;
        let mut score = 0.0;
        let get = api!(RedisModule_ZsetScore);
        // SAFETY: the handle is open, and the string alive.
        let result = unsafe { get(handle, member.as_ptr(), &raw mut score) };
        accepted(result).ok().map(|()| score)
    }

    /// Returns all members, the lowest score first.
    pub fn ascending(&mut self) -> Walk<'_, 'open, 'call> {
        self.walk(f64::NEG_INFINITY, false, true)
    }

    /// Returns the members with a score above `score`, the lowest first.
    pub fn ascending_above(&mut self, score: f64) -> Walk<'_, 'open, 'call> {
        self.walk(score, true, true)
    }

    /// Returns all members, the highest score first.
    pub fn descending(&mut self) -> Walk<'_, 'open, 'call> {
        self.walk(f64::NEG_INFINITY, false, false)
    }

    fn walk(&mut self, min: f64, above: bool, ascends: bool) -> Walk<'_, 'open, 'call> {
        let max = f64::INFINITY;
        if let Some(handle) = self.sorted_set() {
            // SAFETY: the handle is open and holds a sorted set. No other walk exists, because it
            // would borrow the key.
            unsafe {
                if ascends {
                    api!(RedisModule_ZsetFirstInScoreRange)(handle, min, max, above.into(), 0);
                } else {
                    api!(RedisModule_ZsetLastInScoreRange)(handle, min, max, above.into(), 0);
                }
            }
        }
        let step =
            if ascends { api!(RedisModule_ZsetRangeNext) } else { api!(RedisModule_ZsetRangePrev) };
        Walk { key: self, step, is_at_start: true }
    }

    /// Returns the number of members with a score from `min` to `max`, in logarithmic time. The key
    /// is closed during the query and opened again, and may then have expired.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the server does not reply with a count.
    pub fn count_members(&mut self, min: u64, max: u64) -> Result<u64, Refused> {
        self.while_closed(|context, name| {
            let reply = Reply::of(context, ZCOUNT, name, to_integer(min), to_integer(max))?;
            reply.integer().ok_or(Refused)
        })
    }

    /// Returns the member that has `rank` members with lower scores before it, in logarithmic time;
    /// `None` if the set is too small. The key is closed during the query and opened again, and may
    /// then have expired.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the server does not reply.
    pub fn member_at(&mut self, rank: u64) -> Result<Option<Member>, Refused> {
        let rank = to_integer(rank);
        self.while_closed(|context, name| Reply::of(context, ZRANGE, name, rank, rank)?.first())
    }
}

impl WriteKey<'_, '_> {
    /// Adds a member with this score, or changes its score. A missing key is created.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the key holds another type of value.
    pub fn add_member(&mut self, member: &Member, score: u64) -> Result<(), Refused> {
        let handle = match self.kind() {
            KeyKind::Missing | KeyKind::SortedSet => self.handle().ok_or(Refused)?,
            KeyKind::String | KeyKind::Other => return Err(Refused),
        };
        let add = api!(RedisModule_ZsetAdd);
        let flags = ptr::null_mut();
        // SAFETY: the handle is open for writing, on a missing key or a sorted set; no walk exists.
        // The member is copied.
        accepted(unsafe { add(handle.as_ptr(), score as f64, member.as_ptr(), flags) })?;
        self.holds(KeyKind::SortedSet);
        Ok(())
    }

    /// Removes a member, but never the only one: the server would then delete the key.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the key holds another type of value, or a set with only one member.
    pub fn remove_member(&mut self, member: &Member) -> Result<(), Refused> {
        let handle = self.sorted_set().filter(|_| self.members() > 1).ok_or(Refused)?;
        let remove = api!(RedisModule_ZsetRem);
        // SAFETY: the handle is open for writing and holds a sorted set, which does not become
        // empty; no walk exists.
        accepted(unsafe { remove(handle, member.as_ptr(), ptr::null_mut()) })
    }
}

/// The reply of a server command that the module ran.
struct Reply(NonNull<raw::RedisModuleCallReply>);

impl Reply {
    /// Runs the query `command name from to`. The key of this name must not be open.
    fn of(
        context: Context<'_>,
        command: &'static CStr,
        name: *mut raw::RedisModuleString,
        from: i64,
        to: i64,
    ) -> Result<Self, Refused> {
        let call = api!(RedisModule_Call);
        let format: *const c_char = c"sll".as_ptr();
        // SAFETY: context and name belong to the running command; the arguments match the format.
        // The command reads only this key, which has no handle.
        let reply = unsafe { call(context.as_ptr(), command.as_ptr(), format, name, from, to) };
        NonNull::new(reply).map(Self).ok_or(Refused)
    }

    fn integer(&self) -> Option<u64> {
        let reply = self.0.as_ptr();
        // SAFETY: the reply is alive, and is read as an integer only if it is one.
        unsafe {
            let kind = api!(RedisModule_CallReplyType)(reply);
            let is_integer = kind == raw::REDISMODULE_REPLY_INTEGER as c_int;
            let integer = is_integer.then(|| api!(RedisModule_CallReplyInteger)(reply))?;
            u64::try_from(integer).ok()
        }
    }

    /// Returns the first element of an array; `None` if the array is empty.
    fn first(&self) -> Result<Option<Member>, Refused> {
        let reply = self.0.as_ptr();
        // SAFETY: the reply is alive, and is read as an array only if it is one. The reply owns its
        // elements; the module owns the string that is created from an element.
        unsafe {
            let kind = api!(RedisModule_CallReplyType)(reply);
            if kind != raw::REDISMODULE_REPLY_ARRAY as c_int {
                return Err(Refused);
            }
            let element = api!(RedisModule_CallReplyArrayElement)(reply, 0);
            if element.is_null() {
                return Ok(None);
            }
            let string = api!(RedisModule_CreateStringFromCallReply)(element);
            NonNull::new(string).map(|string| Some(Member(string))).ok_or(Refused)
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: this value owns the reply, which is not used after this.
        unsafe { api!(RedisModule_FreeCallReply)(self.0.as_ptr()) };
    }
}
