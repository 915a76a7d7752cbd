//! The description of a command for servers, clients and `redis-cli`, and its conversion to the
//! server's structures. Those structures contain pointers to each other and to static texts.
//! Building them is safe; only `load` lets the server read them.

use redis_module::raw;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

/// The description of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// The command's name. A subcommand's name begins with the name of its container and `|`.
    pub name: &'static CStr,
    /// The command's purpose, in one sentence.
    pub summary: &'static CStr,
    /// The command's time complexity.
    pub complexity: &'static CStr,
    /// The first version of the module that has the command.
    pub since: &'static CStr,
    /// The number of arguments, including the command's name. A negative number is a minimum.
    pub arity: i32,
    /// The server's command flags.
    pub flags: &'static CStr,
    /// The ACL categories, for a server that does not let a module add a category.
    pub categories: &'static CStr,
    /// The same categories and the module's own category, for all other servers.
    pub categories_and_own: &'static CStr,
    /// The positions of the keys and the command's access to them; `None` if the command has no
    /// keys.
    pub keys: Option<(KeyRange, Access)>,
    /// The command's tips for proxies and clients; `None` if it has none.
    pub tips: Option<&'static CStr>,
    /// The arguments that `COMMAND DOCS` shows.
    pub arguments: &'static [Argument],
}

/// The positions of a command's keys: argument 1, then every `step`-th argument up to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The position of the last argument that may be a key. A negative position counts from the
    /// end: -1 is the last argument.
    pub last: i32,
    /// The distance from one key to the next, in arguments; at least 1.
    pub step: i32,
}

/// The access that a command needs to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The command reads the keys.
    Read,
    /// The command reads the keys, and writes values that depend on the values read.
    Update,
}

/// One argument, as `COMMAND DOCS` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The argument's name.
    pub name: &'static CStr,
    /// The argument's type.
    pub kind: Kind,
    /// The word that precedes the argument, or that is the whole argument.
    pub token: Option<&'static CStr>,
    /// The argument's meaning.
    pub summary: Option<&'static CStr>,
    /// Whether the argument may be left out.
    pub optional: bool,
    /// Whether the argument may be repeated.
    pub multiple: bool,
}

/// The type of an argument in `COMMAND DOCS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The name of a key.
    Key,
    /// A whole number.
    Integer,
    /// Any other text.
    Text,
    /// A fixed word.
    Token,
    /// One of these alternatives.
    OneOf(&'static [Argument]),
    /// These arguments, in order.
    Block(&'static [Argument]),
}

impl Description {
    /// Returns the names of the container and the subcommand; `None` if this is not a subcommand.
    pub(super) fn container_and_name(&self) -> Option<(CString, CString)> {
        let (container, name) = self.name.to_str().ok()?.split_once('|')?;
        Some((CString::new(container).ok()?, CString::new(name).ok()?))
    }
}

impl KeyRange {
    /// The range in which argument 1 is the only key.
    pub const FIRST: Self = Self { last: 1, step: 1 };

    /// Returns the arguments from the first key to the last position that may hold a key.
    #[inline]
    pub(super) fn of<T>(self, args: &[T]) -> &[T] {
        let len = match usize::try_from(self.last) {
            Ok(last) => last.min(args.len()),
            Err(_) => args.len().saturating_sub(self.last.unsigned_abs() as usize - 1),
        };
        args.get(..len).unwrap_or_default()
    }

    /// Returns the distance between keys as a number of arguments.
    #[inline]
    pub(super) fn step(self) -> usize {
        usize::try_from(self.step).unwrap_or(1).max(1)
    }
}

impl Argument {
    /// Creates a required argument without a token.
    pub const fn new(name: &'static CStr, kind: Kind, summary: Option<&'static CStr>) -> Self {
        Self { name, kind, token: None, summary, optional: false, multiple: false }
    }

    /// Creates a number.
    pub const fn integer(name: &'static CStr, summary: &'static CStr) -> Self {
        Self::new(name, Kind::Integer, Some(summary))
    }

    /// Creates a text.
    pub const fn text(name: &'static CStr, summary: &'static CStr) -> Self {
        Self::new(name, Kind::Text, Some(summary))
    }

    /// Creates a choice of arguments.
    pub const fn one_of(name: &'static CStr, arguments: &'static [Self]) -> Self {
        Self::new(name, Kind::OneOf(arguments), None)
    }

    /// Creates a sequence of arguments.
    pub const fn block(name: &'static CStr, arguments: &'static [Self]) -> Self {
        Self::new(name, Kind::Block(arguments), None)
    }

    /// Returns the same argument after a fixed word.
    pub const fn after(self, token: &'static CStr) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Creates an argument that is a fixed word.
    pub const fn token(name: &'static CStr, token: &'static CStr) -> Self {
        Self { token: Some(token), ..Self::new(name, Kind::Token, None) }
    }

    /// Returns the same argument, repeatable.
    pub const fn multiple(self) -> Self {
        Self { multiple: true, ..self }
    }

    /// Returns the same argument, optional.
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

/// The entry that ends a list of key specs.
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

/// Builds the server's key spec for a range of keys.
pub(super) fn key_spec(range: KeyRange, access: Access) -> raw::RedisModuleCommandKeySpec {
    let flags = match access {
        Access::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        Access::Update => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
    };
    // In a key spec, a positive last position counts from the first key. A negative one counts from
    // the end, as in `range`.
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

/// Builds the server's form of an argument list, which ends with an entry without a name. Adds the
/// list, and every list that it points to, to `kept_alive`, which owns their memory.
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
    fn key_range_selects_the_arguments_that_are_keys() {
        let pairs = KeyRange { last: -1, step: 2 };
        let rows: [(KeyRange, &[&str], &[&str]); 7] = [
            // One key, whatever follows it; none if there are no arguments.
            (KeyRange::FIRST, &["key", "6", "10"], &["key"]),
            (KeyRange::FIRST, &[], &[]),
            // Every other argument up to the end, even if the last one has no partner.
            (pairs, &["a", "1", "b", "2"], &["a", "b"]),
            (pairs, &["a", "1", "b"], &["a", "b"]),
            (pairs, &[], &[]),
            // Every argument except the last.
            (KeyRange { last: -2, step: 1 }, &["a", "b", "timeout"], &["a", "b"]),
            (KeyRange { last: -2, step: 1 }, &[], &[]),
        ];
        for (range, args, keys) in rows {
            let found: Vec<_> = range.of(args).iter().step_by(range.step()).copied().collect();
            assert_eq!(found, keys, "{range:?} of {args:?}");
        }
    }
}
