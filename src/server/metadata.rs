//! The command table in the server's own structures. They point to each other and to static texts;
//! building them is safe, reading them is the border's business.

use super::commands::{Access, Argument, Kind};
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;

/// The end of a list of key specs.
pub const NO_KEY_SPEC: raw::RedisModuleCommandKeySpec = raw::RedisModuleCommandKeySpec {
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

/// One key, argument 1, and what the command does to it.
pub fn key_spec(access: Access) -> raw::RedisModuleCommandKeySpec {
    let flags = match access {
        Access::None => 0,
        Access::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        Access::Update => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
    };
    raw::RedisModuleCommandKeySpec {
        flags: flags.into(),
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 },
        },
        find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey: 0,
                keystep: 1,
                limit: 0,
            },
        },
        ..NO_KEY_SPEC
    }
}

/// The server's form of an argument list, which ends with an entry without a name. The lists live
/// in `kept_alive`.
pub fn arguments(
    list: &[Argument],
    kept_alive: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> *mut raw::RedisModuleCommandArg {
    if list.is_empty() {
        return ptr::null_mut();
    }
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
            flags: if argument.optional { raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int } else { 0 },
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
