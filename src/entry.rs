//! The entry points for the server: load, unload, the cron, `INFO` and every command. This file
//! connects the server's API with the commands.

use crate::api::call::{Call, Commands};
use crate::api::command::KeyRange;
use crate::api::load::{End, Loader, Unregistered};
use crate::api::{self, Refused};
use crate::commands::table::{ACL_CATEGORY, COMMANDS, CommandId, functions};
use crate::policies::file::FileError;
use crate::policies::{file as policy_file, table as policies};
use crate::{clock, config, error, fault, handler, info, top};
use redis_module::{RedisString, Status, redis_module};
use redis_module_macros::cron_event_handler;
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Replaces the server's allocator in unit tests, which run without a server.
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
    // The version in `MODULE LIST`: 10,000 x major + 100 x minor + patch, of Cargo.toml's version.
    version: 300,
    allocator: (Allocator, ALLOCATOR),
    data_types: [],
    init: on_load,
    deinit: on_unload,
}

/// The commands of the table, in the form in which the server calls them.
struct Table;

impl Commands for Table {
    const PANICKED: &'static CStr = error::INTERNAL;

    fn keys(index: usize) -> Option<KeyRange> {
        CommandId::ALL[index].row().description.keys.map(|(range, _)| range)
    }

    #[inline]
    fn run(index: usize, call: &mut Call<'_>) {
        handler::run(CommandId::ALL[index], call);
    }
}

/// Loads the module. The `redis_module!` block binds the server's API before it calls this
/// function.
fn on_load(ctx: &redis_module::Context, args: &[RedisString]) -> Status {
    let Some(loader) = Loader::new(ctx) else { return Status::Err };
    let loaded = api::guard::guard(Err(Refused), || load(&loader, args.len()));
    if loaded.is_ok() {
        return Status::Ok;
    }
    // Redis 7.0 keeps the cron subscription of a module whose load was refused, and would later
    // call into the closed library.
    api::guard::guard((), || loader.unsubscribe_from_cron());
    Status::Err
}

fn load(loader: &Loader<'_>, args_len: usize) -> Result<(), Refused> {
    let refuse = |message: &str| {
        loader.log_warning(message);
        Refused
    };
    if let Some(name) = api::missing_function() {
        return Err(refuse(&format!(
            "redis-throttle needs Redis 7.0 or Valkey 8.0 or newer: this server has no {name}"
        )));
    }
    // The `redis_module!` block registered a function for `INFO` that is unsafe in a crash report.
    // This replaces it.
    loader.register_info::<info::Report>()?;
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("no message");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        api::log_warning(&format!("redis-throttle panicked at {place}: {message}"));
    }));
    if args_len > 0 {
        return Err(refuse(
            "redis-throttle takes no loadmodule arguments: set rl.* in the configuration instead",
        ));
    }
    if let Some(command) = api::effect::missing_effect() {
        return Err(refuse(&format!(
            "redis-throttle needs the command {command}, which this server does not have: remove \
             the rename-command line for {command} from the configuration"
        )));
    }
    fault::point(fault::Point::Load);
    loader.set_options();
    clock::resume();
    config::register(loader).map_err(|Refused| {
        refuse("redis-throttle could not register its settings: see redis.conf.example")
    })?;
    policies::clear();
    match policy_file::load(clock::now()) {
        Ok(_) | Err(FileError::NotSet) => {}
        Err(error) => {
            let text = error::file_error_text(error).to_string_lossy().into_owned();
            let text = text.strip_prefix("ERR ").unwrap_or(&text);
            return Err(refuse(&format!("redis-throttle could not read rl.policy-file: {text}")));
        }
    }
    // A failure is ignored: some servers cannot add a category, and others may still have this one
    // from an earlier load.
    let _ = loader.add_acl_category(ACL_CATEGORY);
    for (command, function) in COMMANDS.iter().zip(functions::<Table>()) {
        if !command.is_wanted() {
            continue;
        }
        let description = &command.description;
        let function = command.has_function().then_some(function);
        let registered = loader.register_command(description, function);
        if registered == Err(Unregistered::NameTaken) && command.may_be_missing() {
            loader.log_warning(
                "redis-throttle loads without GCRA, because the server has a command of that \
                 name: rl.gcra yes has no effect",
            );
            config::leave_gcra_to_the_server();
            continue;
        }
        registered.map_err(|_| {
            let name = description.name.to_string_lossy();
            refuse(&format!(
                "redis-throttle could not register {name}: is the name taken?{}",
                command.hint_if_taken()
            ))
        })?;
        // The module also works without the categories.
        let _ = loader
            .set_acl_categories(description, description.categories_and_own)
            .or_else(|Refused| loader.set_acl_categories(description, description.categories));
    }
    #[cfg(feature = "noop-command")]
    loader.register_bare_command(c"rl.noop", api::call::noop, c"readonly fast")?;
    loader.subscribe_to_end::<AtEnd>()?;
    loader.make_words();
    // Nothing refuses the load from here on, which would leave the memory allocated.
    top::create();
    *stage() = Stage::Loading { served: api::load::commands_served() };
    Ok(())
}

/// The stages of the module's life that decide if the server may unload it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The module was loaded, and no cron has run since: the server may still undo the load.
    Loading {
        /// The number of commands that the server had served at the load; `None` if the server does
        /// not count.
        served: Option<u64>,
    },
    /// A cron has run since the load.
    Settled,
    /// The server shuts down.
    Ending,
}

fn stage() -> MutexGuard<'static, Stage> {
    static STAGE: Mutex<Stage> = Mutex::new(Stage::Settled);
    STAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cron_event_handler]
fn on_cron(_: &redis_module::Context, _: u64) {
    *stage() = Stage::Settled;
}

/// The receiver of the server's shutdown event.
struct AtEnd;

impl End for AtEnd {
    fn ends() {
        *stage() = Stage::Ending;
    }
}

/// Decides if the server may unload the module.
///
/// Unloading is refused, because servers keep pointers to a module's commands: in a queue of MULTI,
/// and for calls that CLIENT PAUSE delays. There are two exceptions. The first is a load that the
/// server itself undoes in the same command that loaded the module, as after an unknown option of
/// MODULE LOADEX. No other client was served in between, and after a refusal the module would stay
/// loaded although the command returned an error. The second is a shutdown of Valkey 9, which
/// unloads modules: a refusal would write a false alarm to the log.
fn on_unload(_: &redis_module::Context) -> Status {
    api::guard::guard(Status::Err, || {
        let stage = *stage();
        let may_go = match stage {
            Stage::Ending => true,
            Stage::Settled => false,
            Stage::Loading { served } => served == api::load::commands_served(),
        };
        if !may_go {
            api::log_warning(
                "redis-throttle stays loaded: calls of its commands that wait in MULTI or under \
                 CLIENT PAUSE would crash the server. To upgrade or remove it, restart the server \
                 or fail over",
            );
            return Status::Err;
        }
        api::effect::free_words();
        top::free();
        Status::Ok
    })
}
