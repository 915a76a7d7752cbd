//! A module's part of `INFO`, which is also its part of a crash report.
//!
//! A crash report is written by a signal handler, when the heap may be broken and locks may be
//! held. So a field takes only static texts and numbers. The code here never locks, and it never
//! allocates through the module's allocator or C's. (This is why it does not use `redis-module`,
//! which would capture a backtrace here: C's allocator would then conflict with the server's.)

use super::guard::guard;
use super::load::Loader;
use super::{Refused, accepted};
use redis_module::raw;
use std::ffi::{CStr, c_int};
use std::marker::PhantomData;

/// A module's part of `INFO`.
pub trait Info {
    /// Adds the module's fields. During a crash report this must not allocate, lock or panic.
    fn write(section: &Section<'_>, for_crash_report: bool);
}

/// The output of `INFO`. A field goes into the section that was opened last.
pub struct Section<'info>(*mut raw::RedisModuleInfoCtx, PhantomData<&'info ()>);

impl Section<'_> {
    /// Opens a section. Returns true if the caller of `INFO` requested this section.
    pub fn open(&self, name: &'static CStr) -> bool {
        // SAFETY: the context is that of the running report; the server copies the name.
        let result = unsafe { api!(RedisModule_InfoAddSection)(self.0, name.as_ptr()) };
        accepted(result).is_ok()
    }

    /// Adds a field with a text.
    pub fn text(&self, name: &'static CStr, value: &'static CStr) {
        let add = api!(RedisModule_InfoAddFieldCString);
        // SAFETY: as in `open`.
        unsafe { add(self.0, name.as_ptr(), value.as_ptr()) };
    }

    /// Adds a field with a number as sixteen hexadecimal digits.
    pub fn digits(&self, name: &'static CStr, value: u64) {
        let mut text = [0; 17];
        for (place, digit) in text.iter_mut().take(16).enumerate() {
            let half_byte = (value >> (60 - 4 * place)) as u32 & 0xf;
            *digit = char::from_digit(half_byte, 16).map_or(b'0', |digit| digit as u8);
        }
        let add = api!(RedisModule_InfoAddFieldCString);
        // SAFETY: as in `open`; the text ends with the zero after its digits, and is copied.
        unsafe { add(self.0, name.as_ptr(), text.as_ptr().cast()) };
    }

    /// Adds a ratio of at most 1, given in millionths, with six decimals.
    pub fn ratio(&self, name: &'static CStr, millionths: u64) {
        let mut text = *b"0.000000\0";
        let mut rest = millionths.min(1_000_000);
        for digit in text.iter_mut().take(8).rev().filter(|digit| **digit == b'0') {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let add = api!(RedisModule_InfoAddFieldCString);
        // SAFETY: as in `digits`.
        unsafe { add(self.0, name.as_ptr(), text.as_ptr().cast()) };
    }

    /// Adds a field with a decimal number.
    pub fn number(&self, name: &'static CStr, value: u64) {
        // SAFETY: as in `open`.
        unsafe { api!(RedisModule_InfoAddFieldULongLong)(self.0, name.as_ptr(), value) };
    }
}

impl Loader<'_> {
    /// Makes `I` the only source of the module's part of `INFO`.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the server does not accept the registration.
    pub fn register_info<I: Info>(&self) -> Result<(), Refused> {
        let register = api!(RedisModule_RegisterInfoFunc);
        // SAFETY: the context is that of the load. The server replaces a function registered
        // earlier.
        accepted(unsafe { register(self.ctx(), Some(info::<I>)) })
    }
}

extern "C" fn info<I: Info>(ctx: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    guard((), || I::write(&Section(ctx, PhantomData), for_crash_report != 0));
}
