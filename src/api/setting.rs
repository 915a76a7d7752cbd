//! Settings of a module in the server's configuration: `NAME.setting value`.

use super::guard::guard;
use super::load::Loader;
use super::{Refused, accepted, bytes_of};
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A setting with the value yes or no. It is fixed when the module is loaded.
pub trait Flag {
    /// The name, without the module's prefix.
    const NAME: &'static CStr;
    /// The default value.
    const DEFAULT: bool;

    /// Returns the current value.
    fn get() -> bool;

    /// Applies the configured value.
    fn set(value: bool);
}

/// A setting whose value is a number. It can be changed at any time, unless it is fixed at load.
pub trait Number {
    /// The name, without the module's prefix.
    const NAME: &'static CStr;
    /// The default value.
    const DEFAULT: i64;
    /// The smallest value that the server accepts.
    const MIN: i64;
    /// The largest value that the server accepts.
    const MAX: i64;
    /// Whether the value is fixed when the server starts.
    const IS_FIXED: bool = false;

    /// Returns the current value.
    fn get() -> i64;

    /// Changes the value. Returns false, and changes nothing, if the number is not accepted.
    fn set(value: i64) -> bool;
}

/// A setting whose value is a text. It is fixed when the module is loaded, unless it says
/// otherwise.
pub trait Text {
    /// The name, without the module's prefix.
    const NAME: &'static CStr;
    /// The default value.
    const DEFAULT: &'static CStr;
    /// Whether the value is fixed when the server starts.
    const IS_FIXED: bool = true;

    /// Returns the place that stores the current value in the form that the server reads.
    fn kept() -> &'static KeptText;

    /// Applies the configured value. Returns false if it is not accepted.
    fn set(value: &[u8]) -> bool;
}

/// The place that stores the value of a [`Text`] setting in the form that the server reads: as a
/// string of the server, owned by the module.
pub struct KeptText(AtomicPtr<raw::RedisModuleString>);

impl KeptText {
    /// Creates a place that stores no value yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn get(&self) -> *mut raw::RedisModuleString {
        self.0.load(Relaxed)
    }

    fn set(&self, value: &[u8]) {
        let create = api!(RedisModule_CreateString);
        // SAFETY: the server copies the bytes; without a context the module owns the new string. It
        // also owns the old string, to which the server keeps no pointer.
        unsafe {
            let new = create(ptr::null_mut(), value.as_ptr().cast(), value.len());
            let old = self.0.swap(new, Relaxed);
            if !old.is_null() {
                api!(RedisModule_FreeString)(ptr::null_mut(), old);
            }
        }
    }
}

impl Loader<'_> {
    /// Registers a setting with the value yes or no.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the server does not accept it.
    pub fn register_flag<F: Flag>(&self) -> Result<(), Refused> {
        // SAFETY: the context is that of the load; getter and setter ignore their data.
        let result = unsafe {
            api!(RedisModule_RegisterBoolConfig)(
                self.ctx(),
                F::NAME.as_ptr(),
                F::DEFAULT.into(),
                raw::REDISMODULE_CONFIG_IMMUTABLE as c_uint,
                Some(get_flag::<F>),
                Some(set_flag::<F>),
                None,
                ptr::null_mut(),
            )
        };
        accepted(result)
    }

    /// Registers a setting whose value is a number.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the server does not accept it.
    pub fn register_number<N: Number>(&self) -> Result<(), Refused> {
        // SAFETY: the context is that of the load; getter and setter ignore their data.
        let result = unsafe {
            api!(RedisModule_RegisterNumericConfig)(
                self.ctx(),
                N::NAME.as_ptr(),
                N::DEFAULT,
                flags(N::IS_FIXED),
                N::MIN,
                N::MAX,
                Some(get_number::<N>),
                Some(set_number::<N>),
                None,
                ptr::null_mut(),
            )
        };
        accepted(result)
    }

    /// Registers a setting whose value is a text.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the server does not accept it.
    pub fn register_text<T: Text>(&self) -> Result<(), Refused> {
        // SAFETY: the context is that of the load; getter and setter ignore their data.
        let result = unsafe {
            api!(RedisModule_RegisterStringConfig)(
                self.ctx(),
                T::NAME.as_ptr(),
                T::DEFAULT.as_ptr(),
                flags(T::IS_FIXED),
                Some(get_text::<T>),
                Some(set_text::<T>),
                None,
                ptr::null_mut(),
            )
        };
        accepted(result)
    }

    /// Applies the configured values of the registered settings.
    ///
    /// # Errors
    ///
    /// [`Refused`] if a value is out of bounds; the server has logged the setting.
    pub fn load_settings(&self) -> Result<(), Refused> {
        // SAFETY: the context is that of the load.
        accepted(unsafe { api!(RedisModule_LoadConfigs)(self.ctx()) })
    }
}

/// Returns the flags of a setting that is fixed when the server starts, or of any other.
const fn flags(is_fixed: bool) -> c_uint {
    let flags =
        if is_fixed { raw::REDISMODULE_CONFIG_IMMUTABLE } else { raw::REDISMODULE_CONFIG_DEFAULT };
    flags as c_uint
}

extern "C" fn get_flag<F: Flag>(_: *const c_char, _: *mut c_void) -> c_int {
    guard(F::DEFAULT.into(), || F::get().into())
}

extern "C" fn set_flag<F: Flag>(
    _: *const c_char,
    value: c_int,
    _: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    guard(raw::REDISMODULE_ERR as c_int, || {
        F::set(value != 0);
        raw::REDISMODULE_OK as c_int
    })
}

extern "C" fn get_number<N: Number>(_: *const c_char, _: *mut c_void) -> c_longlong {
    guard(N::DEFAULT, N::get)
}

extern "C" fn set_number<N: Number>(
    _: *const c_char,
    value: c_longlong,
    _: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    guard(raw::REDISMODULE_ERR as c_int, || match N::set(value) {
        true => raw::REDISMODULE_OK as c_int,
        false => raw::REDISMODULE_ERR as c_int,
    })
}

extern "C" fn get_text<T: Text>(_: *const c_char, _: *mut c_void) -> *mut raw::RedisModuleString {
    guard(ptr::null_mut(), || T::kept().get())
}

extern "C" fn set_text<T: Text>(
    _: *const c_char,
    value: *mut raw::RedisModuleString,
    _: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    guard(raw::REDISMODULE_ERR as c_int, || {
        // SAFETY: the string is alive for this call, and the server does not change it meanwhile.
        let value = unsafe { bytes_of(value) };
        if !T::set(value) {
            return raw::REDISMODULE_ERR as c_int;
        }
        T::kept().set(value);
        raw::REDISMODULE_OK as c_int
    })
}
