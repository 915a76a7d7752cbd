//! The context of a command, and the replies that it sends.

use super::{bytes_of, log, to_integer};
use redis_module::raw;
use std::ffi::CStr;
use std::marker::PhantomData;

/// The server's context of one command.
#[derive(Clone, Copy)]
pub struct Context<'call>(*mut raw::RedisModuleCtx, PhantomData<&'call ()>);

/// A value in a map reply.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A text.
    Text(&'static str),
    /// A number.
    Integer(u64),
}

impl Context<'_> {
    /// # Safety
    ///
    /// `ctx` must be the context of the running command, and the lifetime must end before the
    /// command does.
    pub(super) unsafe fn new(ctx: *mut raw::RedisModuleCtx) -> Self {
        Self(ctx, PhantomData)
    }

    /// Returns the server's pointer to this context.
    pub(super) fn as_ptr(self) -> *mut raw::RedisModuleCtx {
        self.0
    }

    /// Replies with an array of integers.
    #[inline(always)]
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

    /// Replies with one array: first the integers, then each row as an array of integers.
    pub fn reply_integers_and_rows(
        self,
        integers: &[i64],
        rows: impl ExactSizeIterator<Item: AsRef<[i64]>>,
    ) {
        let (array, long_long) =
            (api!(RedisModule_ReplyWithArray), api!(RedisModule_ReplyWithLongLong));
        let len = (integers.len() + rows.len()).try_into().unwrap_or(0);
        // SAFETY: the context is that of the running command; as many replies follow as announced.
        unsafe {
            array(self.0, len);
            for integer in integers {
                long_long(self.0, *integer);
            }
        }
        rows.for_each(|row| self.reply_integers(row.as_ref()));
    }

    /// Replies with one integer.
    pub fn reply_integer(self, integer: i64) {
        // SAFETY: the context is that of the running command.
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.0, integer) };
    }

    /// Replies with a map. A client that uses RESP2 receives it as a flat array.
    pub fn reply_map(self, pairs: &[(&'static str, Value)]) {
        let len = pairs.len().try_into().unwrap_or(0);
        // SAFETY: the context is that of the running command; as many pairs follow as announced.
        unsafe { api!(RedisModule_ReplyWithMap)(self.0, len) };
        pairs.iter().for_each(|pair| self.reply_pair(pair));
    }

    fn reply_pair(self, (name, value): &(&'static str, Value)) {
        let string = api!(RedisModule_ReplyWithStringBuffer);
        // SAFETY: the context is that of the running command; texts go with their length.
        unsafe {
            string(self.0, name.as_ptr().cast(), name.len());
            match value {
                Value::Text(text) => {
                    string(self.0, text.as_ptr().cast(), text.len());
                }
                Value::Integer(integer) => self.reply_integer(to_integer(*integer)),
            }
        }
    }

    /// Replies with a map from names to maps. A client that uses RESP2 receives every map as a flat
    /// array.
    pub fn reply_maps<'a, const N: usize>(
        self,
        maps: impl ExactSizeIterator<Item = (&'a str, [(&'static str, Value); N])>,
    ) {
        let len = maps.len().try_into().unwrap_or(0);
        // SAFETY: the context is that of the running command; as many pairs follow as announced.
        unsafe { api!(RedisModule_ReplyWithMap)(self.0, len) };
        for (name, pairs) in maps {
            self.reply_text(name);
            self.reply_map(&pairs);
        }
    }

    /// Replies with a map: first all `pairs`, then one entry from `name` to a map, in which each
    /// member has its number.
    pub fn reply_map_with_members<'a>(
        self,
        pairs: &[(&'static str, Value)],
        name: &'static str,
        members: impl ExactSizeIterator<Item = (&'a [u8], u64)>,
    ) {
        let map = api!(RedisModule_ReplyWithMap);
        let string = api!(RedisModule_ReplyWithStringBuffer);
        let len = |pairs: usize| pairs.try_into().unwrap_or(0);
        // SAFETY: the context is that of the running command; texts go with their length; as many
        // pairs follow as announced.
        unsafe {
            map(self.0, len(pairs.len() + 1));
            pairs.iter().for_each(|pair| self.reply_pair(pair));
            string(self.0, name.as_ptr().cast(), name.len());
            map(self.0, len(members.len()));
            for (member, number) in members {
                string(self.0, member.as_ptr().cast(), member.len());
                self.reply_integer(to_integer(number));
            }
        }
    }

    /// Replies with an array of rows, each with a name and two numbers.
    pub fn reply_rows(self, rows: &[(Vec<u8>, [u64; 2])]) {
        let (array, string) =
            (api!(RedisModule_ReplyWithArray), api!(RedisModule_ReplyWithStringBuffer));
        // SAFETY: the context is that of the running command; texts go with their length; as many
        // replies follow as announced.
        unsafe {
            array(self.0, rows.len().try_into().unwrap_or(0));
            for (name, numbers) in rows {
                array(self.0, 3);
                string(self.0, name.as_ptr().cast(), name.len());
                numbers.iter().for_each(|number| self.reply_integer(to_integer(*number)));
            }
        }
    }

    /// Replies with `OK`.
    pub fn reply_ok(self) {
        // SAFETY: the context is that of the running command; the text is a C string.
        unsafe { api!(RedisModule_ReplyWithSimpleString)(self.0, c"OK".as_ptr()) };
    }

    /// Replies with a text, which may contain bytes from a client.
    pub fn reply_text(self, text: &str) {
        // SAFETY: the context is that of the running command; the text goes with its length.
        unsafe {
            api!(RedisModule_ReplyWithStringBuffer)(self.0, text.as_ptr().cast(), text.len());
        }
    }

    /// Replies with an array of texts.
    pub fn reply_texts(self, texts: impl ExactSizeIterator<Item = impl AsRef<str>>) {
        let len = texts.len().try_into().unwrap_or(0);
        // SAFETY: the context is that of the running command; as many replies follow as announced.
        unsafe { api!(RedisModule_ReplyWithArray)(self.0, len) };
        texts.for_each(|text| self.reply_text(text.as_ref()));
    }

    /// Writes a line to the server's log, under the module's name.
    pub fn log_warning(self, message: &str) {
        log(self.0, message);
    }

    /// Returns the number of the selected database.
    #[inline]
    pub fn database(self) -> u32 {
        // SAFETY: the context is that of the running command.
        let number = unsafe { api!(RedisModule_GetSelectedDb)(self.0) };
        u32::try_from(number).unwrap_or(0)
    }

    /// Returns the name of the calling user; `None` if there is no user, as for a call by another
    /// module.
    pub fn user_name(self) -> Option<Vec<u8>> {
        // `GetCurrentUserName` is not used: it reads the name of the user even if there is no user.
        let id = api!(RedisModule_GetClientId);
        let name = api!(RedisModule_GetClientUserNameById);
        // SAFETY: the context is that of the running command. This function frees the name once,
        // after copying its bytes.
        unsafe {
            let name = name(self.0, id(self.0));
            if name.is_null() {
                return None;
            }
            let bytes = bytes_of(name).to_vec();
            api!(RedisModule_FreeString)(self.0, name);
            Some(bytes)
        }
    }

    /// Replies with null.
    pub fn reply_null(self) {
        // SAFETY: the context is that of the running command.
        unsafe { api!(RedisModule_ReplyWithNull)(self.0) };
    }

    /// Replies with an error. The text must not contain bytes from a client.
    pub fn reply_error(self, text: &CStr) {
        // SAFETY: the context is that of the running command; the server copies the text.
        unsafe { api!(RedisModule_ReplyWithError)(self.0, text.as_ptr()) };
    }

    /// Replies with the server's own error for a wrong number of arguments.
    pub fn reply_wrong_arity(self) {
        // SAFETY: the context is that of the running command.
        unsafe { api!(RedisModule_WrongArity)(self.0) };
    }
}
