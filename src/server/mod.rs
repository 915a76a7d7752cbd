//! The module in the server: the only folder that names `redis_module`.
//!
//! `commands` is the table, `handler` the path of a call, `ffi` the border; the rest is what its
//! name says. Loading happens in the order of [`load`].

mod clock;
mod commands;
mod config;
mod error;
mod fault;
mod ffi;
mod handler;
mod info;
mod keyspace;
mod metadata;
mod replication;
mod reply;

use ffi::{Loader, Refused};
use redis_module::{RedisString, Status, redis_module};

/// Stands in for the server's allocator in unit tests, which run without a server.
#[cfg(test)]
type Allocator = std::alloc::System;
#[cfg(not(test))]
type Allocator = redis_module::alloc::RedisAlloc;

#[cfg(test)]
const ALLOCATOR: Allocator = std::alloc::System;
#[cfg(not(test))]
const ALLOCATOR: Allocator = redis_module::alloc::RedisAlloc;

redis_module! {
    name: "rl",
    // What `MODULE LIST` shows: 10,000 x major + 100 x minor + patch, of Cargo.toml's version.
    version: 100,
    allocator: (Allocator, ALLOCATOR),
    data_types: [],
    init: on_load,
    deinit: on_unload,
}

/// Called by the server through the block above, which has bound the API by then.
fn on_load(ctx: &redis_module::Context, args: &[RedisString]) -> Status {
    ffi::guard(Status::Err, || match load(&Loader::new(ctx), args.len()) {
        Ok(()) => Status::Ok,
        Err(Refused) => Status::Err,
    })
}

/// Called by the server before it lets go of the module.
fn on_unload(_: &redis_module::Context) -> Status {
    ffi::guard(Status::Err, || {
        ffi::unload();
        Status::Ok
    })
}

fn load(loader: &Loader<'_>, args_len: usize) -> Result<(), Refused> {
    let refuse = |message: &str| {
        loader.log_warning(message);
        Refused
    };
    if let Some(name) = ffi::missing_function() {
        return Err(refuse(&format!(
            "redis-throttle needs Redis 7.0 or Valkey 8.0 or newer: this server has no {name}"
        )));
    }
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("no message");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        ffi::log_warning(&format!("redis-throttle panicked at {place}: {message}"));
    }));
    if args_len > 0 {
        return Err(refuse(
            "redis-throttle takes no loadmodule arguments: set rl.* in the configuration instead",
        ));
    }
    fault::point(fault::Point::Load);
    loader.set_options();
    clock::resume();
    config::register(loader).map_err(|Refused| {
        refuse("redis-throttle could not register its settings: see redis.conf.example")
    })?;
    // Not every server can add a category, and one that can may still have it from an earlier load.
    let _ = loader.add_acl_category(commands::ACL_CATEGORY);
    for (index, command) in commands::COMMANDS.iter().enumerate() {
        loader.register_command(index, command).map_err(|Refused| {
            let name = command.name.to_string_lossy();
            refuse(&format!("redis-throttle could not register {name}: is the name taken?"))
        })?;
        // A category that cannot be set is no reason not to run.
        let _ = loader
            .set_acl_categories(command, command.categories_and_own)
            .or_else(|Refused| loader.set_acl_categories(command, command.categories));
    }
    #[cfg(feature = "noop-command")]
    loader.create_command(c"rl.noop", ffi::noop, c"readonly fast", true)?;
    loader.make_words();
    Ok(())
}
