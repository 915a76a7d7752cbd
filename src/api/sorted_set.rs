//! A key that holds a sorted set: its members by score, from either end, and its size.
//!
//! The server's functions walk a set from a score on, but count nothing and know no rank. Where
//! that takes too many steps the server's own commands are asked, with the key closed meanwhile:
//! what they do to it would leave a handle behind that points to nothing.

use super::key::{KeyKind, ReadKey, WriteKey};
use super::reply::Context;
use super::{Refused, accepted, to_integer};
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Counts the members between two scores.
const ZCOUNT: &CStr = c"ZCOUNT";
/// Tells the member at a rank.
const ZRANGE: &CStr = c"ZRANGE";

/// What a set is asked by command, with arguments as they are sent.
pub(super) const QUERIES: [&[&CStr]; 2] =
    [&[ZCOUNT, c"key", c"1", c"2"], &[ZRANGE, c"key", c"1", c"1"]];

/// A member of a sorted set: a string of the server of our own.
#[repr(transparent)]
pub struct Member(NonNull<raw::RedisModuleString>);

impl Member {
    /// A member of these bytes; `None` when the server makes no string of them.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let create = api!(RedisModule_CreateString);
        // SAFETY: the bytes are copied. Without a context the string is nobody else's to free.
        NonNull::new(unsafe { create(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len()) })
            .map(Self)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the string is ours, and nobody changes it.
        unsafe {
            let start = api!(RedisModule_StringPtrLen)(self.0.as_ptr(), &raw mut len);
            if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
        }
    }

    /// The server's own pointer.
    pub(super) fn as_ptr(&self) -> *mut raw::RedisModuleString {
        self.0.as_ptr()
    }
}

/// The member of no bytes, made once.
static EMPTY: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

/// Makes the member of no bytes. A step of the load that is not refused.
pub(super) fn make_empty() {
    let empty =
        Member::new(b"").map_or(ptr::null_mut(), |member| ManuallyDrop::new(member).as_ptr());
    EMPTY.store(empty, Relaxed);
}

/// Gives the member of no bytes back.
pub(super) fn free_empty() {
    drop(NonNull::new(EMPTY.swap(ptr::null_mut(), Relaxed)).map(Member));
}

impl Member {
    /// The member of no bytes; `None` when the module is not loaded.
    pub fn empty() -> Option<ManuallyDrop<Self>> {
        NonNull::new(EMPTY.load(Relaxed)).map(|empty| ManuallyDrop::new(Self(empty)))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // SAFETY: the string is ours, and given up here.
        unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), self.0.as_ptr()) };
    }
}

/// The members of a sorted set with their scores, one after the other. While it lasts, nothing else
/// is asked of the key.
pub struct Walk<'key, 'open, 'call> {
    key: &'key mut ReadKey<'open, 'call>,
    step: unsafe extern "C" fn(*mut raw::RedisModuleKey) -> c_int,
    is_at_start: bool,
}

impl Walk<'_, '_, '_> {
    /// Goes past one member without a look at it.
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
        // SAFETY: the handle is open and holds a sorted set; the string that is made is ours.
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
    /// How many members it has; 0 for anything but a sorted set.
    pub fn members(&self) -> u64 {
        let Some(handle) = self.sorted_set() else { return 0 };
        // SAFETY: the handle is open.
        unsafe { api!(RedisModule_ValueLength)(handle) as u64 }
    }

    /// The score of a member; `None` when it is none.
    pub fn score(&self, member: &Member) -> Option<f64> {
        let handle = self.sorted_set()?;
        let mut score = 0.0;
        let get = api!(RedisModule_ZsetScore);
        // SAFETY: the handle is open, and the string alive.
        let result = unsafe { get(handle, member.as_ptr(), &raw mut score) };
        accepted(result).ok().map(|()| score)
    }

    /// All members, the one with the lowest score first.
    pub fn ascending(&mut self) -> Walk<'_, 'open, 'call> {
        self.walk(f64::NEG_INFINITY, false, true)
    }

    /// The members with a score above `score`, the lowest first.
    pub fn ascending_above(&mut self, score: f64) -> Walk<'_, 'open, 'call> {
        self.walk(score, true, true)
    }

    /// All members, the one with the highest score first.
    pub fn descending(&mut self) -> Walk<'_, 'open, 'call> {
        self.walk(f64::NEG_INFINITY, false, false)
    }

    fn walk(&mut self, min: f64, above: bool, ascends: bool) -> Walk<'_, 'open, 'call> {
        let max = f64::INFINITY;
        if let Some(handle) = self.sorted_set() {
            // SAFETY: the handle is open and holds a sorted set. No other walk lasts: it would
            // borrow the key.
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

    /// How many members have a score from `min` to `max`. In the time of the logarithm of all; the
    /// key is closed meanwhile, and may have expired after it.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the server does not count them.
    pub fn count_members(&mut self, min: u64, max: u64) -> Result<u64, Refused> {
        self.while_closed(|context, name| {
            let reply = Reply::of(context, ZCOUNT, name, to_integer(min), to_integer(max))?;
            reply.integer().ok_or(Refused)
        })
    }

    /// The member that has so many before it; `None` when there is none. In the time of the
    /// logarithm of all; the key is closed meanwhile, and may have expired after it.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the server does not tell.
    pub fn member_at(&mut self, rank: u64) -> Result<Option<Member>, Refused> {
        let rank = to_integer(rank);
        self.while_closed(|context, name| Reply::of(context, ZRANGE, name, rank, rank)?.first())
    }
}

impl WriteKey<'_, '_> {
    /// Gives a member this score, be it new or not; of a missing key it makes a sorted set.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the key holds something else.
    pub fn add_member(&mut self, member: &Member, score: u64) -> Result<(), Refused> {
        let handle = match self.kind() {
            KeyKind::Missing | KeyKind::SortedSet => self.handle().ok_or(Refused)?,
            KeyKind::String | KeyKind::Other => return Err(Refused),
        };
        let add = api!(RedisModule_ZsetAdd);
        let flags = ptr::null_mut();
        // SAFETY: the handle is open for writing, and empty or of a sorted set; no walk lasts. The
        // member is copied.
        accepted(unsafe { add(handle.as_ptr(), score as f64, member.as_ptr(), flags) })?;
        self.holds(KeyKind::SortedSet);
        Ok(())
    }

    /// Removes a member. Not the last one, with which the key would go.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the key holds something else, or nothing but one member.
    pub fn remove_member(&mut self, member: &Member) -> Result<(), Refused> {
        let handle = self.sorted_set().filter(|_| self.members() > 1).ok_or(Refused)?;
        let remove = api!(RedisModule_ZsetRem);
        // SAFETY: the handle is open for writing and holds a sorted set, which stays; no walk
        // lasts.
        accepted(unsafe { remove(handle, member.as_ptr(), ptr::null_mut()) })
    }
}

/// What a command of the server answered.
struct Reply(NonNull<raw::RedisModuleCallReply>);

impl Reply {
    /// Asks about the key of this name, which is not open.
    fn of(
        context: Context<'_>,
        command: &'static CStr,
        name: *mut raw::RedisModuleString,
        from: i64,
        to: i64,
    ) -> Result<Self, Refused> {
        let call = api!(RedisModule_Call);
        let format: *const c_char = c"sll".as_ptr();
        // SAFETY: context and name belong to the running command; the arguments are what the
        // format says. The command reads this one key alone, which has no handle.
        let reply = unsafe { call(context.as_ptr(), command.as_ptr(), format, name, from, to) };
        NonNull::new(reply).map(Self).ok_or(Refused)
    }

    fn integer(&self) -> Option<u64> {
        let reply = self.0.as_ptr();
        // SAFETY: the reply is alive; one that is no integer is not read as one.
        unsafe {
            let kind = api!(RedisModule_CallReplyType)(reply);
            let is_integer = kind == raw::REDISMODULE_REPLY_INTEGER as c_int;
            let integer = is_integer.then(|| api!(RedisModule_CallReplyInteger)(reply))?;
            u64::try_from(integer).ok()
        }
    }

    /// The first of an array, if there is one.
    fn first(&self) -> Result<Option<Member>, Refused> {
        let reply = self.0.as_ptr();
        // SAFETY: the reply is alive; one that is no array is not read as one. An element belongs
        // to it, the string that is made of the element is ours.
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
        // SAFETY: the reply is ours, and given up here.
        unsafe { api!(RedisModule_FreeCallReply)(self.0.as_ptr()) };
    }
}
