//! What a server, a client and `redis-cli` want to know of a command, and the same in the server's
//! own structures. They point to each other and to static texts; building them is safe, reading
//! them is the business of `load`.

use redis_module::raw;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

/// One command as it describes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name; of a subcommand, with that of its container and `|` in front.
    pub name: &'static CStr,
    /// What it is for, in a sentence.
    pub summary: &'static CStr,
    /// What it costs.
    pub complexity: &'static CStr,
    /// Since which version of the module.
    pub since: &'static CStr,
    /// How many arguments with the name; negative: at least so many.
    pub arity: i32,
    /// The server's command flags.
    pub flags: &'static CStr,
    /// ACL categories that every server with such knows.
    pub categories: &'static CStr,
    /// The same and the module's own.
    pub categories_and_own: &'static CStr,
    /// Which of its arguments are keys and what it does to them; `None` when none is.
    pub keys: Option<(KeyRange, Access)>,
    /// Tips for proxies and clients.
    pub tips: Option<&'static CStr>,
    /// Its arguments.
    pub arguments: &'static [Argument],
}

/// Which arguments are keys: from argument 1 on, up to `last`, each `step` after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The last argument that may be one; negative: counted from the end, -1 being the last.
    pub last: i32,
    /// How far they are apart, at least 1.
    pub step: i32,
}

/// What a command does to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads them.
    Read,
    /// It reads them and writes what follows from that.
    Update,
}

/// One argument, as `COMMAND DOCS` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name.
    pub name: &'static CStr,
    /// What it is.
    pub kind: Kind,
    /// The word that stands for it or in front of it.
    pub token: Option<&'static CStr>,
    /// What it means.
    pub summary: Option<&'static CStr>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may come again and again.
    pub multiple: bool,
}

/// The kinds of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The key.
    Key,
    /// A whole number.
    Integer,
    /// Anything else.
    Text,
    /// A word that stands for itself.
    Token,
    /// One of several.
    OneOf(&'static [Argument]),
    /// Several together.
    Block(&'static [Argument]),
}

impl Description {
    /// The two names of a subcommand.
    pub(super) fn container_and_name(&self) -> Option<(CString, CString)> {
        let (container, name) = self.name.to_str().ok()?.split_once('|')?;
        Some((CString::new(container).ok()?, CString::new(name).ok()?))
    }
}

impl KeyRange {
    /// Argument 1 alone.
    pub const FIRST: Self = Self { last: 1, step: 1 };

    /// The arguments from the first key to the last that may be one.
    #[inline]
    pub(super) fn of<T>(self, args: &[T]) -> &[T] {
        let len = match usize::try_from(self.last) {
            Ok(last) => last.min(args.len()),
            Err(_) => args.len().saturating_sub(self.last.unsigned_abs() as usize - 1),
        };
        args.get(..len).unwrap_or_default()
    }

    /// The same distance as a number of arguments.
    #[inline]
    pub(super) fn step(self) -> usize {
        usize::try_from(self.step).unwrap_or(1).max(1)
    }
}

impl Argument {
    /// An argument without a token that has to be there.
    pub const fn new(name: &'static CStr, kind: Kind, summary: Option<&'static CStr>) -> Self {
        Self { name, kind, token: None, summary, optional: false, multiple: false }
    }

    /// A word that stands for itself.
    pub const fn token(name: &'static CStr, token: &'static CStr) -> Self {
        Self { token: Some(token), ..Self::new(name, Kind::Token, None) }
    }

    /// The same argument, which may come again and again.
    pub const fn multiple(self) -> Self {
        Self { multiple: true, ..self }
    }

    /// The same argument, which may be left out.
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

/// The end of a list of key specs.
pub(super) const NO_KEY_SPEC: raw::RedisModuleCommandKeySpec = raw::RedisModuleCommandKeySpec {
    notes: ptr::null(),
    flags: 0,
    begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID,
    bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
        index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 0 },
    },
    find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_OMITTED,
    fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
        range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
            lastkey: 0,
            keystep: 0,
            limit: 0,
        },
    },
};

/// Keys from argument 1 on, and what the command does to them.
pub(super) fn key_spec(range: KeyRange, access: Access) -> raw::RedisModuleCommandKeySpec {
    let flags = match access {
        Access::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        Access::Update => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
    };
    // A spec counts the last key from the first one on, and from the end as the range does.
    let last_from_first = if range.last > 0 { range.last - 1 } else { range.last };
    raw::RedisModuleCommandKeySpec {
        flags: flags.into(),
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 },
        },
        find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey: last_from_first,
                keystep: range.step,
                limit: 0,
            },
        },
        ..NO_KEY_SPEC
    }
}

/// The server's form of an argument list, which ends with an entry without a name. The lists live
/// in `kept_alive`.
pub(super) fn arguments(
    list: &[Argument],
    kept_alive: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> *mut raw::RedisModuleCommandArg {
    if list.is_empty() {
        return ptr::null_mut();
    }
    let flag = |is_set, flag| if is_set { flag as c_int } else { 0 };
    let or_null = |text: Option<&'static CStr>| text.map_or(ptr::null::<c_char>(), CStr::as_ptr);
    let mut raw_list = Vec::new();
    for argument in list {
        raw_list.push(raw::RedisModuleCommandArg {
            name: argument.name.as_ptr(),
            type_: match argument.kind {
                Kind::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
                Kind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
                Kind::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
                Kind::Token => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
                Kind::OneOf(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
                Kind::Block(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
            },
            key_spec_index: if argument.kind == Kind::Key { 0 } else { -1 },
            token: or_null(argument.token),
            summary: or_null(argument.summary),
            since: ptr::null(),
            flags: flag(argument.optional, raw::REDISMODULE_CMD_ARG_OPTIONAL)
                | flag(argument.multiple, raw::REDISMODULE_CMD_ARG_MULTIPLE),
            deprecated_since: ptr::null(),
            subargs: match argument.kind {
                Kind::OneOf(parts) | Kind::Block(parts) => arguments(parts, kept_alive),
                _ => ptr::null_mut(),
            },
            display_text: ptr::null(),
        });
    }
    raw_list.push(raw::RedisModuleCommandArg {
        name: ptr::null(),
        type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        key_spec_index: 0,
        token: ptr::null(),
        summary: ptr::null(),
        since: ptr::null(),
        flags: 0,
        deprecated_since: ptr::null(),
        subargs: ptr::null_mut(),
        display_text: ptr::null(),
    });
    let start = raw_list.as_mut_ptr();
    kept_alive.push(raw_list);
    start
}

#[cfg(test)]
mod tests {
    use super::KeyRange;

    #[test]
    fn a_range_takes_the_arguments_that_its_command_has_as_keys() {
        let pairs = KeyRange { last: -1, step: 2 };
        let rows: [(KeyRange, &[&str], &[&str]); 7] = [
            // One key, whatever follows; none where nothing is.
            (KeyRange::FIRST, &["key", "6", "10"], &["key"]),
            (KeyRange::FIRST, &[], &[]),
            // Every other one up to the end, also where the last has no partner.
            (pairs, &["a", "1", "b", "2"], &["a", "b"]),
            (pairs, &["a", "1", "b"], &["a", "b"]),
            (pairs, &[], &[]),
            // Up to the one before the last.
            (KeyRange { last: -2, step: 1 }, &["a", "b", "timeout"], &["a", "b"]),
            (KeyRange { last: -2, step: 1 }, &[], &[]),
        ];
        for (range, args, keys) in rows {
            let found: Vec<_> = range.of(args).iter().step_by(range.step()).copied().collect();
            assert_eq!(found, keys, "{range:?} of {args:?}");
        }
    }
}
