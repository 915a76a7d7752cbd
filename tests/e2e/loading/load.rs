//! Loading the module: which loads are refused, their messages, and a second load.

use redis::Value;

use support::{BASE_US, Client, Server, module, text};

/// Returns the names that MODULE LIST shows.
fn modules(client: &mut Client) -> Vec<String> {
    let reply = client.run("MODULE LIST");
    let Value::Array(modules) = &reply else { panic!("{reply:?}") };
    let names = modules.iter().map(|module| match module {
        Value::Array(fields) => {
            let name = fields.iter().position(|field| text_of(field) == "name");
            text(&fields[name.expect("a name") + 1])
        }
        other => panic!("{other:?}"),
    });
    names.filter(|name| name == "rl").collect()
}

/// Returns the text of a value that is a text, or an empty one: MODULE LIST also has numbers and
/// lists.
fn text_of(value: &Value) -> String {
    match value {
        Value::BulkString(_) | Value::SimpleString(_) => text(value),
        _ => String::new(),
    }
}

#[test]
fn module_is_listed_under_its_name() {
    let server = Server::start();
    assert_eq!(modules(&mut server.client()), ["rl"]);
}

#[test]
fn any_module_argument_refuses_the_load_with_a_log_line() {
    for arguments in ["debug-commands yes", "987654321987654321", "--help", "%s%n"] {
        let setup = Server::setup().without_debug_commands().module_arguments(arguments);
        let log = setup.try_start().err().unwrap_or_else(|| panic!("{arguments} was accepted"));
        let mut ours = log.lines().filter(|line| line.contains("<rl>"));
        let line = ours.find(|line| line.contains("argument"));
        let line = line.unwrap_or_else(|| panic!("{arguments}: the module says nothing:\n{log}"));
        // The line says what is wrong, and how to set options.
        assert!(line.contains("rl."), "{line}");
        assert!(!line.contains(arguments), "it repeats what it was given: {line}");
    }
}

#[test]
fn refused_load_leaves_a_running_server_unchanged() {
    let server = Server::setup().without_module().start();
    let mut client = server.client();
    let path = module::path().display().to_string();
    assert!(client.error(&format!("MODULE LOAD {path} anything")).starts_with("ERR"));
    assert!(modules(&mut client).is_empty());
    assert!(client.error("RL.GCRA k 1 1 1").contains("unknown command"));
    client.wait_for_cron();
    assert!(server.log().lines().any(|line| line.contains("argument")), "{}", server.log());
    // Without the argument the same server loads the module.
    client.ok(&format!("MODULE LOAD {path}"));
    assert_eq!(modules(&mut client), ["rl"]);
    assert!(client.allows("RL.GCRA k 1 1 1h"));
    server.assert_alive();
}

#[test]
fn unknown_and_invalid_options_stop_the_start() {
    let lines = [
        "rl.unknown-option 1",
        "rl.sliding-log-slots 15",
        "rl.sliding-log-slots 65537",
        "rl.sliding-log-slots many",
        "rl.near-limit-percent 101",
        "rl.near-limit-percent -1",
        "rl.debug-commands maybe",
    ];
    for line in lines {
        let refused = Server::setup().without_debug_commands().line(line).try_start();
        assert!(refused.is_err(), "{line} was accepted");
    }
}

#[test]
fn second_load_is_refused_without_harm() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    assert!(client.allows("RL.GCRA k 2 1 1h"));
    for _ in 0..3 {
        client.error(&format!("MODULE LOAD {}", module::path().display()));
        assert_eq!(modules(&mut client), ["rl"]);
    }
    assert_eq!(client.integer("RL.DEBUG CLOCK FREEZE"), BASE_US);
    assert_eq!(client.decide("RL.GCRA k 2 1 1h")[..3], [1, 2, 0]);
    assert_eq!(client.info_number("rl", "rl_gcra_allowed"), 2);
    assert_eq!(text(&client.run("CONFIG GET rl.debug-commands").into_second()), "yes");
    server.assert_alive();
}

trait Second {
    fn into_second(self) -> Value;
}

impl Second for Value {
    /// Returns the value of a reply that has one name and one value.
    fn into_second(self) -> Value {
        match self {
            Self::Array(mut pair) if pair.len() == 2 => pair.remove(1),
            other => panic!("no pair: {other:?}"),
        }
    }
}

#[test]
fn load_is_refused_if_a_command_that_replicates_effects_is_renamed_or_removed() {
    // Renames or removes each command that the effects use, or puts another command in its place.
    let effects = ["SET", "SETRANGE", "PEXPIREAT", "DEL", "UNLINK", "ZADD", "ZREM"];
    for command in effects.into_iter().chain(["ZCOUNT", "ZRANGE"]) {
        for renaming in [format!("{command} HIDDEN{command}"), format!("{command} \"\"")] {
            let setup = Server::setup().line(&format!("rename-command {renaming}"));
            let log = setup.try_start().err().unwrap_or_else(|| panic!("{renaming} was accepted"));
            let line = log.lines().find(|line| line.contains("redis-throttle"));
            let line =
                line.unwrap_or_else(|| panic!("{renaming}: the module says nothing:\n{log}"));
            assert!(line.contains(&format!("needs the command {command}, ")), "{line}");
            assert!(line.contains("rename-command"), "it says what to do: {line}");
        }
        if matches!(command, "DEL" | "UNLINK") {
            // In place of these two commands, the module accepts a command that takes a key and any
            // arguments, as TOUCH does.
            continue;
        }
        let setup = Server::setup().line(&format!("rename-command {command} HIDDEN{command}"));
        let swapped = setup.line(&format!("rename-command TOUCH {command}")).try_start();
        assert!(swapped.is_err(), "TOUCH under the name of {command} was accepted");
    }
}

#[test]
fn load_into_a_running_server_is_refused_if_a_command_of_the_effects_is_missing() {
    let setup = Server::setup().without_module().line("rename-command PEXPIREAT XPEXPIREAT");
    let server = setup.start();
    let mut client = server.client();
    let path = module::path().display().to_string();
    for _ in 0..3 {
        assert!(client.error(&format!("MODULE LOAD {path}")).starts_with("ERR"));
        // The server's cron must not call a function of the refused module.
        client.wait_for_cron();
    }
    assert!(modules(&mut client).is_empty());
    server.assert_alive();
    // Commands that the effects do not use may be renamed or removed.
    let server = Server::setup().line("rename-command FLUSHALL \"\"").start();
    assert!(server.client().allows("RL.GCRA k 1 1 1h"));
}
