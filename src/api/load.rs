//! Functions that the module calls while the server loads it: they set options and register
//! commands.

use super::call::CommandFunction;
use super::command::{Description, NO_KEY_SPEC, arguments, key_spec};
use super::effect::make_words;
use super::guard::guard;
use super::{Refused, accepted, log};
use redis_module::raw;
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

/// The option that declares support for slot migration. Without it, Valkey 9 refuses to migrate
/// slots while the module is loaded.
const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

/// A receiver of the server's shutdown event.
pub trait End {
    /// Called when the server shuts down. The server serves no client after this call.
    fn ends();
}

extern "C" fn end<E: End>(
    _: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    guard((), E::ends);
}

/// Returns the number of commands that the server has served; `None` if the server does not report
/// it. The number does not change during a command, and is different in the next command, also
/// within a transaction.
pub fn commands_served() -> Option<u64> {
    let (get, free) = (api!(RedisModule_GetServerInfo), api!(RedisModule_FreeServerInfo));
    let field = api!(RedisModule_ServerInfoGetFieldUnsigned);
    let mut error = 0;
    // SAFETY: the section and the field are C strings. Without a context, this function frees the
    // result, once.
    let count = unsafe {
        let info = get(ptr::null_mut(), c"stats".as_ptr());
        let count = field(info, c"total_commands_processed".as_ptr(), &raw mut error);
        free(ptr::null_mut(), info);
        count
    };
    (error == raw::REDISMODULE_OK as c_int).then_some(count)
}

/// Returns true if the server can safely remove a command with more than seven subcommands. The
/// server removes the module's commands after a refused load.
///
/// In Valkey 8.1, a loop empties the table of subcommands, and the table shrinks while the loop
/// still reads it. The loop then reads freed memory, and the server may crash. A table of at most
/// seven never shrinks (valkey-io/valkey pull request 2753). No version of Redis has the number
/// 8.1.
pub fn frees_subcommands() -> bool {
    const VALKEY_8_1: c_int = 0x0801;
    // SAFETY: as in `api!`; the function takes nothing and only reads.
    let version = unsafe { raw::RedisModule_GetServerVersion.map(|version| version()) };
    version.is_none_or(|version| version >> 8 != VALKEY_8_1)
}

/// The reason why a command is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unregistered {
    /// The server does not create it: the name is taken.
    NameTaken,
    /// The server rejects the description.
    Undescribed,
}

impl From<Refused> for Unregistered {
    fn from(_: Refused) -> Self {
        Self::Undescribed
    }
}

/// The access to the server's API while the module is being loaded.
pub struct Loader<'load>(*mut raw::RedisModuleCtx, PhantomData<&'load ()>);

impl<'load> Loader<'load> {
    /// Returns the loader for the context that the `redis_module!` block passes on; `None` for a
    /// null context. The server's functions refuse any context other than that of a load.
    pub fn new(ctx: &'load redis_module::Context) -> Option<Self> {
        (!ctx.ctx.is_null()).then_some(Self(ctx.ctx, PhantomData))
    }

    /// Returns the server's context of the load.
    pub(super) fn ctx(&self) -> *mut raw::RedisModuleCtx {
        self.0
    }

    /// Writes a line to the server's log, under the module's name.
    pub fn log_warning(&self, message: &str) {
        log(self.0, message);
    }

    /// Declares the server features that the module supports.
    pub fn set_options(&self) {
        let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS as c_int
            | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD as c_int
            | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int;
        let mut found: *mut c_void = ptr::null_mut();
        // SAFETY: the server writes a function pointer to the second argument, or nothing. The
        // pointer is never called.
        let is_valkey = unsafe {
            raw::RedisModule_GetApi.is_some_and(|get_api| {
                let name = c"ValkeyModule_SetModuleOptions";
                get_api(name.as_ptr(), (&raw mut found).cast()) == raw::REDISMODULE_OK as c_int
            })
        };
        if is_valkey {
            options |= HANDLE_ATOMIC_SLOT_MIGRATION;
        }
        // SAFETY: the context is that of the load.
        unsafe { api!(RedisModule_SetModuleOptions)(self.0, options) };
    }

    /// Creates the option words of the effects. This is the last step of a load, so that a refused
    /// load leaves no strings behind.
    pub fn make_words(&self) {
        make_words();
    }

    /// Adds an ACL category, if the server supports that.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the server does not support categories, or already has this one.
    pub fn add_acl_category(&self, name: &CStr) -> Result<(), Refused> {
        // SAFETY: as in `api!`; the context is that of the load.
        unsafe {
            let add = raw::RedisModule_AddACLCategory.ok_or(Refused)?;
            accepted(add(self.0, name.as_ptr()))
        }
    }

    /// Cancels the module's subscription to the server's cron. The `redis_module!` block subscribes
    /// an `#[cron_event_handler]` before it calls the module.
    pub fn unsubscribe_from_cron(&self) {
        // An error means that there is no subscription, or that the server is too old for one.
        let _ = self.subscribe(raw::REDISMODULE_EVENT_CRON_LOOP, None);
    }

    /// Makes the server call `E::ends` at an orderly shutdown.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the server does not support the event.
    pub fn subscribe_to_end<E: End>(&self) -> Result<(), Refused> {
        self.subscribe(raw::REDISMODULE_EVENT_SHUTDOWN, Some(end::<E>))
    }

    fn subscribe(&self, id: u64, callback: raw::RedisModuleEventCallback) -> Result<(), Refused> {
        // SAFETY: as in `api!`. `api!` itself would panic in a load that is refused because the
        // server lacks this very function.
        let subscribe = unsafe { raw::RedisModule_SubscribeToServerEvent }.ok_or(Refused)?;
        // SAFETY: the context is that of the load; the event is defined in the header.
        accepted(unsafe { subscribe(self.0, raw::RedisModuleEvent { id, dataver: 1 }, callback) })
    }

    /// Registers a command with its description. A name `CONTAINER|NAME` registers a subcommand.
    /// The container must be registered earlier, without a function.
    ///
    /// # Errors
    ///
    /// [`Unregistered`] if the name is taken or the server rejects the description.
    pub fn register_command(
        &self,
        command: &Description,
        function: Option<CommandFunction>,
    ) -> Result<(), Unregistered> {
        let (first, last, step) = match command.keys {
            None => (0, 0, 0),
            Some((range, _)) => (1, range.last, range.step),
        };
        let flags = command.flags.as_ptr();
        if let Some((container, name)) = command.container_and_name() {
            let container = self.registered(&container)?;
            let create = api!(RedisModule_CreateSubcommand);
            // SAFETY: the container was registered by this load; the server copies name and flags.
            let result =
                unsafe { create(container, name.as_ptr(), function, flags, first, last, step) };
            accepted(result).map_err(|Refused| Unregistered::NameTaken)?;
        } else {
            let create = api!(RedisModule_CreateCommand);
            let name = command.name.as_ptr();
            // SAFETY: the context is that of the load; the server copies name and flags.
            let result = unsafe { create(self.0, name, function, flags, first, last, step) };
            accepted(result).map_err(|Refused| Unregistered::NameTaken)?;
        }
        Ok(self.set_command_info(command)?)
    }

    /// Returns the server's object for a command that was registered during this load.
    fn registered(&self, name: &CStr) -> Result<*mut raw::RedisModuleCommand, Refused> {
        // SAFETY: the context is that of the load.
        let registered = unsafe { api!(RedisModule_GetCommand)(self.0, name.as_ptr()) };
        if registered.is_null() { Err(Refused) } else { Ok(registered) }
    }

    /// Registers a command without a description, with its key at argument 1.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the name is taken or a flag unknown.
    #[cfg(feature = "noop-command")]
    pub fn register_bare_command(
        &self,
        name: &CStr,
        function: CommandFunction,
        flags: &CStr,
    ) -> Result<(), Refused> {
        let create = api!(RedisModule_CreateCommand);
        // SAFETY: the context is that of the load; the server copies name and flags.
        accepted(unsafe { create(self.0, name.as_ptr(), Some(function), flags.as_ptr(), 1, 1, 1) })
    }

    /// Adds a command to ACL categories, if the server supports categories.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the server does not support categories, or does not know one of `names`.
    pub fn set_acl_categories(&self, command: &Description, names: &CStr) -> Result<(), Refused> {
        // SAFETY: as in `api!`.
        let set = unsafe { raw::RedisModule_SetCommandACLCategories }.ok_or(Refused)?;
        let registered = self.registered(command.name)?;
        // SAFETY: the command was registered by this load; the server reads the names.
        accepted(unsafe { set(registered, names.as_ptr()) })
    }

    fn set_command_info(&self, command: &Description) -> Result<(), Refused> {
        let version = raw::RedisModuleCommandInfoVersion {
            version: 1,
            sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
            sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
            sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
        };
        let key_spec = |(range, access)| [key_spec(range, access), NO_KEY_SPEC];
        let mut key_specs = command.keys.map(key_spec);
        let mut kept_alive = Vec::new();
        let args = arguments(command.arguments, &mut kept_alive);
        let info = raw::RedisModuleCommandInfo {
            version: &raw const version,
            summary: command.summary.as_ptr(),
            complexity: command.complexity.as_ptr(),
            since: command.since.as_ptr(),
            history: ptr::null_mut(),
            tips: command.tips.map_or(ptr::null(), CStr::as_ptr),
            arity: command.arity,
            key_specs: key_specs.as_mut().map_or(ptr::null_mut(), |specs| specs.as_mut_ptr()),
            args,
        };
        let registered = self.registered(command.name)?;
        // SAFETY: the command was registered by this load. The server copies `info` and the lists
        // that it points to. All of them live until the end of this function.
        accepted(unsafe { api!(RedisModule_SetCommandInfo)(registered, &raw const info) })
    }
}
