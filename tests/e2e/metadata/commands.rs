//! The commands' metadata, which clients, proxies and `redis-cli` request from the server.

use redis::Value;

use support::{Client, Server, raw_error, text};

/// Starts a server on which every command is enabled.
fn start() -> Server {
    Server::setup().line("rl.redis-cell yes").line("rl.gcra yes").start()
}

/// The expected metadata of one command.
struct Described {
    name: &'static str,
    since: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    /// The flags of its key specification; empty if the command has no key.
    key: &'static [&'static str],
    /// First key, last key and step, for clients that do not use key specifications.
    position: [i64; 3],
    /// The arguments in COMMAND DOCS: tokens in capitals, optional arguments in brackets.
    syntax: &'static str,
}

const UPDATES: &[&str] = &["RW", "access", "update"];
const READS: &[&str] = &["RO", "access"];

/// The syntax of all rules that a policy can have.
macro_rules! algorithms {
    () => {
        "FIXED limit window [ALIGNED] | SLIDING limit window | \
         SLIDINGLOG limit window [SLOTS slots] | \
         TOKENBUCKET capacity rate period | LEAKYBUCKET capacity rate period | \
         GCRA burst rate period | BACKOFF attempts base max forget | \
         QUOTA limit <DAY | WEEK | MONTH | QUARTER | YEAR> [ZONE zone] [START start]"
    };
}

/// The words that may follow the name of a policy in every command.
macro_rules! variants_and_default {
    () => {
        concat!("[FOR variant [FOR variant]] [DEFAULT <", algorithms!(), ">]")
    };
}

macro_rules! reservable {
    () => {
        concat!(
            "<FIXED limit window [ALIGNED] | \
             QUOTA limit <DAY | WEEK | MONTH | QUARTER | YEAR> [ZONE zone] [START start] | \
             USE policy ",
            variants_and_default!(),
            ">"
        )
    };
}

const ANY_RULE: &str =
    concat!("key <", algorithms!(), " | USE policy ", variants_and_default!(), "> [COST cost]");
const ONE_KEY: [i64; 3] = [1, 1, 1];
const EVERY_OTHER: [i64; 3] = [1, -1, 2];

static COMMANDS: [Described; 37] = [
    Described {
        name: "rl.fixed",
        since: "0.1.0",
        arity: -4,
        flags: &["write", "denyoom", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key limit window [COST cost] [PARTIAL] [LEAVE leave] [ALIGNED]",
    },
    Described {
        name: "rl.sliding",
        since: "0.1.0",
        arity: -4,
        flags: &["write", "denyoom", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key limit window [COST cost] [PARTIAL] [LEAVE leave]",
    },
    Described {
        name: "rl.slidinglog",
        since: "0.1.0",
        arity: -4,
        flags: &["write", "denyoom"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key limit window [COST cost] [PARTIAL] [LEAVE leave] [SLOTS slots]",
    },
    Described {
        name: "rl.tokenbucket",
        since: "0.1.0",
        arity: -5,
        flags: &["write", "denyoom", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key capacity rate period [COST cost] [PARTIAL] [LEAVE leave]",
    },
    Described {
        name: "rl.leakybucket",
        since: "0.1.0",
        arity: -5,
        flags: &["write", "denyoom", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key capacity rate period [COST cost] [PARTIAL] [LEAVE leave]",
    },
    Described {
        name: "rl.gcra",
        since: "0.1.0",
        arity: -5,
        flags: &["write", "denyoom", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key burst rate period [COST cost] [PARTIAL] [LEAVE leave]",
    },
    Described {
        name: "rl.peek",
        since: "0.1.0",
        arity: -4,
        flags: &["readonly", "fast"],
        key: READS,
        position: ONE_KEY,
        syntax: concat!(
            "key <",
            algorithms!(),
            " | LEASE id limit ttl | RESERVE id ttl ",
            reservable!(),
            " | USE policy ",
            variants_and_default!(),
            "> [COST cost] [PARTIAL] [LEAVE leave]"
        ),
    },
    Described {
        name: "rl.use",
        since: "0.2.0",
        arity: -3,
        flags: &["write", "denyoom"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: concat!("key policy [COST cost] [PARTIAL] [LEAVE leave] ", variants_and_default!()),
    },
    Described {
        name: "rl.backoff",
        since: "0.2.0",
        arity: -6,
        flags: &["write", "denyoom", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key attempts base max forget",
    },
    Described {
        name: "rl.quota",
        since: "0.2.0",
        arity: -4,
        flags: &["write", "denyoom", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key limit <DAY | WEEK | MONTH | QUARTER | YEAR> [ZONE zone] [START start] \
                 [COST cost] [PARTIAL] [LEAVE leave]",
    },
    Described {
        name: "rl.charge",
        since: "0.2.0",
        arity: -4,
        flags: &["write", "denyoom"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: ANY_RULE,
    },
    Described {
        name: "rl.refund",
        since: "0.2.0",
        arity: -4,
        flags: &["write"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: ANY_RULE,
    },
    Described {
        name: "rl.reserve",
        since: "0.2.0",
        arity: -6,
        flags: &["write", "denyoom"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: concat!("key id ttl ", reservable!(), " [COST cost] [LEAVE leave]"),
    },
    Described {
        name: "rl.commit",
        since: "0.2.0",
        arity: -5,
        flags: &["write"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: concat!("key id ", reservable!(), " [COST cost]"),
    },
    Described {
        name: "rl.cancel",
        since: "0.2.0",
        arity: -5,
        flags: &["write"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: concat!("key id ", reservable!(), " [COST cost]"),
    },
    Described {
        name: "rl.all",
        since: "0.2.0",
        arity: -3,
        flags: &["write", "denyoom"],
        key: UPDATES,
        position: EVERY_OTHER,
        syntax: "key rule [key rule ...]",
    },
    Described {
        name: "rl.peekall",
        since: "0.2.0",
        arity: -3,
        flags: &["readonly", "fast"],
        key: READS,
        position: EVERY_OTHER,
        syntax: "key rule [key rule ...]",
    },
    Described {
        name: "rl.lease",
        since: "0.2.0",
        arity: -5,
        flags: &["write", "denyoom", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key id limit ttl [LEAVE leave]",
    },
    Described {
        name: "rl.renew",
        since: "0.2.0",
        arity: 4,
        flags: &["write", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key id ttl",
    },
    Described {
        name: "rl.release",
        since: "0.2.0",
        arity: 3,
        flags: &["write", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key id",
    },
    Described {
        name: "rl.block",
        since: "0.3.0",
        arity: 3,
        flags: &["write"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key duration",
    },
    Described {
        name: "cl.throttle",
        since: "0.2.0",
        arity: -5,
        flags: &["write", "denyoom", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key max_burst count_per_period period [quantity]",
    },
    Described {
        name: "gcra",
        since: "0.3.0",
        arity: -5,
        flags: &["write", "denyoom", "fast"],
        key: UPDATES,
        position: ONE_KEY,
        syntax: "key max-burst tokens-per-period period [TOKENS count]",
    },
    Described {
        name: "rl.inspect",
        since: "0.1.0",
        arity: 2,
        flags: &["readonly", "fast"],
        key: READS,
        position: ONE_KEY,
        syntax: "key",
    },
    Described {
        name: "rl.metrics",
        since: "0.2.0",
        arity: 1,
        flags: &["readonly", "loading", "stale"],
        key: &[],
        position: [0, 0, 0],
        syntax: "",
    },
    Described {
        name: "rl.debug",
        since: "0.1.0",
        arity: -3,
        flags: &["admin"],
        key: &[],
        position: [0, 0, 0],
        syntax: "CLOCK <FREEZE [unix-us] | ADVANCE duration | RESUME>",
    },
    Described { since: "0.3.0", ..policy("rl.top", -1, "[<[count] [CALLS] | RESET>]") },
    policy("rl.policy", -2, ""),
    policy(
        "rl.policy|set",
        -4,
        concat!(
            "policy [<SHADOW | OFF | BLOCK | ENFORCE percent>] [EX lasts] [<",
            algorithms!(),
            ">]"
        ),
    ),
    policy("rl.policy|del", -3, "policy [policy ...]"),
    policy("rl.policy|get", 3, "policy"),
    policy("rl.policy|list", -2, "[pattern]"),
    policy("rl.policy|load", 2, ""),
    policy("rl.policy|save", 2, ""),
    policy("rl.policy|stats", -2, "[pattern]"),
    policy("rl.policy|resetstat", 2, ""),
    policy("rl.policy|help", 2, ""),
];

/// Describes a command for operators. It has no keys, applies to one server, and cannot be called
/// by scripts.
const fn policy(name: &'static str, arity: i64, syntax: &'static str) -> Described {
    Described {
        name,
        since: "0.2.0",
        arity,
        flags: &["admin", "loading", "noscript", "stale"],
        key: &[],
        position: [0, 0, 0],
        syntax,
    }
}

/// Returns the commands that this server should list.
fn known(client: &mut Client) -> Vec<&'static Described> {
    let knows_subcommands = client.knows_subcommands();
    COMMANDS.iter().filter(|command| knows_subcommands || !command.name.contains('|')).collect()
}

/// The flags that the module sets; servers add `module` and others.
const CHOSEN_FLAGS: [&str; 8] =
    ["write", "readonly", "denyoom", "fast", "admin", "noscript", "loading", "stale"];

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("no list: {other:?}"),
    }
}

fn words(value: &Value) -> Vec<String> {
    let mut words = items(value).iter().map(text).collect::<Vec<_>>();
    words.sort();
    words
}

/// Returns a field of a RESP3 map.
fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(pairs) = map else { panic!("no map: {map:?}") };
    pairs.iter().find(|(key, _)| text(key) == name).map(|(_, value)| value)
}

fn described(client: &mut Client, name: &str) -> Vec<Value> {
    match client.run(&format!("COMMAND INFO {name}")) {
        Value::Array(commands) => items(&commands[0]).to_vec(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn command_info_shows_arity_flags_and_key_position() {
    let server = start();
    let mut client = server.client3();
    for command in known(&mut client) {
        let info = described(&mut client, command.name);
        assert_eq!(text(&info[0]).to_lowercase(), command.name);
        assert_eq!(info[1], Value::Int(command.arity), "{}: arity", command.name);
        let mut flags = words(&info[2]);
        flags.retain(|flag| CHOSEN_FLAGS.contains(&flag.as_str()));
        let mut expected = command.flags.to_vec();
        expected.sort_unstable();
        assert_eq!(flags, expected, "{}: flags", command.name);
        assert_eq!(info[3..6], command.position.map(Value::Int), "{}", command.name);
    }
}

#[test]
fn key_specifications_tell_commands_that_read_from_commands_that_write() {
    let server = start();
    let mut client = server.client3();
    for command in known(&mut client) {
        let info = described(&mut client, command.name);
        let specifications = items(&info[8]);
        assert_eq!(specifications.len(), usize::from(!command.key.is_empty()));
        if let Some(specification) = specifications.first() {
            let flags = words(field(specification, "flags").expect("flags"));
            assert_eq!(flags, command.key, "{}", command.name);
        }
    }
}

#[test]
fn command_info_marks_peek_as_nondeterministic() {
    let server = start();
    let mut client = server.client3();
    let tips = words(&described(&mut client, "rl.peek")[7]);
    assert_eq!(tips, ["nondeterministic_output"]);
    // RL.GCRA sends its effect to replicas and not the call, so it needs no tip about
    // nondeterminism.
    assert!(words(&described(&mut client, "rl.gcra")[7]).is_empty());
}

#[test]
fn policy_commands_have_the_tip_to_run_on_every_node() {
    let server = Server::start();
    let mut client = server.client3();
    for command in known(&mut client) {
        if !command.name.starts_with("rl.policy") {
            continue;
        }
        let tips = words(&described(&mut client, command.name)[7]);
        let is_help = command.name.ends_with("help");
        let expected: &[&str] = if is_help { &[] } else { &["request_policy:all_nodes"] };
        assert_eq!(tips, expected, "{}", command.name);
    }
}

/// Formats the arguments of COMMAND DOCS as a syntax line.
fn syntax(arguments: &Value, separator: &str) -> String {
    let parts = items(arguments).iter().map(|argument| {
        let name = text(field(argument, "name").expect("a name"));
        let kind = text(field(argument, "type").expect("a type"));
        let token = field(argument, "token").map(text);
        let nested = field(argument, "arguments");
        let body = match (kind.as_str(), nested) {
            ("pure-token", None) => String::new(),
            ("oneof", Some(nested)) => format!("<{}>", syntax(nested, " | ")),
            ("block", Some(nested)) => syntax(nested, " "),
            (_, None) => name,
            other => panic!("{name}: {other:?}"),
        };
        let syntax = [token.unwrap_or_default(), body].join(" ").trim().to_owned();
        let flags = field(argument, "flags").map(words).unwrap_or_default();
        let has = |flag: &str| flags.iter().any(|found| found == flag);
        let syntax = if has("multiple") { format!("{syntax} [{syntax} ...]") } else { syntax };
        if has("optional") { format!("[{syntax}]") } else { syntax }
    });
    parts.collect::<Vec<_>>().join(separator)
}

/// The time complexity in `COMMAND DOCS` of the commands whose keys may hold reservations.
const COMPLEXITIES: [(&str, &str); 4] = [
    ("rl.fixed rl.quota", "O(1), or O(N) with N reservations in the key, at most 1024"),
    (
        "rl.peek",
        "O(1). SLIDINGLOG and LEASE: O(log N) with N entries or holders. FIXED and QUOTA: O(N) \
         with N reservations in the key, at most 1024",
    ),
    (
        "rl.inspect",
        "O(1). A key with leases: O(log N) with N holders. A key with reservations: O(N) with N \
         reservations, at most 1024",
    ),
    (
        "rl.use rl.charge rl.refund",
        "O(1). SLIDINGLOG: O(log N) amortised with N entries in the log. FIXED and QUOTA: O(N) \
         with N reservations in the key, at most 1024",
    ),
];

#[test]
fn documented_complexity_counts_the_reservations_of_a_key() {
    let server = start();
    let mut client = server.client3();
    let rows = COMPLEXITIES
        .iter()
        .flat_map(|(names, expected)| names.split(' ').map(move |name| (name, *expected)));
    for (name, expected) in rows {
        let reply = client.run(&format!("COMMAND DOCS {name}"));
        let Value::Map(documented) = &reply else { panic!("{name}: {reply:?}") };
        let complexity = field(&documented[0].1, "complexity").map(text);
        assert_eq!(complexity.as_deref(), Some(expected), "{name}");
    }
}

#[test]
fn command_docs_have_everything_that_redis_cli_hints_need() {
    let server = start();
    let mut client = server.client3();
    for command in known(&mut client) {
        let reply = client.run(&format!("COMMAND DOCS {}", command.name));
        let Value::Map(documented) = &reply else { panic!("{}: {reply:?}", command.name) };
        assert_eq!(documented.len(), 1, "{} is known", command.name);
        let docs = &documented[0].1;
        let value = |name| field(docs, name).map(text).unwrap_or_default();
        assert!(value("summary").len() > 20, "{}: {:?}", command.name, value("summary"));
        assert_eq!(value("since"), command.since, "{}", command.name);
        assert_eq!(value("group"), "module", "{}", command.name);
        assert!(value("complexity").starts_with("O("), "{}", command.name);
        // COMMAND DOCS lists no arguments for a command that has none.
        let arguments = field(docs, "arguments");
        let documented = arguments.map(|arguments| syntax(arguments, " ")).unwrap_or_default();
        assert_eq!(documented, command.syntax, "{}", command.name);
    }
}

#[test]
fn command_docs_also_work_with_resp2() {
    let server = start();
    let reply = server.client().run("COMMAND DOCS rl.gcra");
    assert_eq!(text(&items(&reply)[0]), "rl.gcra");
    assert!(
        items(&items(&reply)[1])
            .iter()
            .any(|word| *word == Value::BulkString(b"arguments".to_vec()))
    );
}

/// Calls of every syntax on the key `k`, with arguments that look like keys and options.
const SYNTAXES: [(&str, &[&str]); 35] = [
    ("RL.FIXED k 5 60", UPDATES),
    ("RL.FIXED k 5 60 COST 1 ALIGNED", UPDATES),
    ("RL.FIXED k 5 60 ALIGNED COST 1", UPDATES),
    ("RL.SLIDING k 5 60", UPDATES),
    ("RL.SLIDINGLOG k 5 60 COST 0", UPDATES),
    ("RL.TOKENBUCKET k 5 1 60", UPDATES),
    ("RL.LEAKYBUCKET k 5 1 60 COST 3", UPDATES),
    ("RL.GCRA k 5 1 60", UPDATES),
    ("RL.GCRA k k k k COST k", UPDATES),
    ("RL.PEEK k FIXED 5 60 ALIGNED", READS),
    ("RL.PEEK k SLIDING 5 60", READS),
    ("RL.PEEK k SLIDINGLOG 5 60 COST 2", READS),
    ("RL.PEEK k GCRA 5 1 60", READS),
    ("RL.PEEK k k k k", READS),
    ("RL.QUOTA k 5 month START 31 ZONE Europe/Berlin COST 1 PARTIAL", UPDATES),
    ("RL.PEEK k QUOTA k week START k ZONE k", READS),
    ("RL.PEEK k LEASE k 1 1", READS),
    ("RL.LEASE k k 5 60", UPDATES),
    ("RL.RENEW k k 60", UPDATES),
    ("RL.RELEASE k k", UPDATES),
    ("RL.BLOCK k k", UPDATES),
    ("RL.RESERVE k k 1h FIXED 5 60 COST k ALIGNED", UPDATES),
    ("RL.RESERVE k k k QUOTA 5 day ZONE k", UPDATES),
    ("RL.COMMIT k k FIXED 5 60 COST 1", UPDATES),
    ("RL.COMMIT k k QUOTA 5 week START k COST 1", UPDATES),
    ("RL.CANCEL k k FIXED 5 60", UPDATES),
    ("RL.RESERVE k k 1h USE k COST 1 FOR k", UPDATES),
    ("RL.COMMIT k k USE k", UPDATES),
    ("RL.CANCEL k k USE k", UPDATES),
    ("RL.PEEK k RESERVE k 1h QUOTA 5 day", READS),
    ("CL.THROTTLE k 15 30 60", UPDATES),
    ("CL.THROTTLE k k k k k", UPDATES),
    ("GCRA k 5 10 60 TOKENS 1", UPDATES),
    ("GCRA k k k k TOKENS k", UPDATES),
    ("RL.INSPECT k", READS),
];

#[test]
fn key_of_every_syntax_is_found() {
    let server = start();
    let mut client = server.client();
    let key = || Value::BulkString(b"k".to_vec());
    for (call, flags) in SYNTAXES {
        let keys = client.run(&format!("COMMAND GETKEYS {call}"));
        assert_eq!(keys, Value::Array(vec![key()]), "{call}");
        let reply = client.run(&format!("COMMAND GETKEYSANDFLAGS {call}"));
        let pair = items(&items(&reply)[0]);
        assert_eq!(pair[0], key(), "{call}");
        assert_eq!(words(&pair[1]), flags, "{call}");
    }
    let none = client.run("COMMAND GETKEYS RL.DEBUG CLOCK RESUME");
    assert!(raw_error(&none).expect("an error").contains("no key arguments"), "{none:?}");
}

#[test]
fn every_key_of_several_rules_is_found() {
    let server = start();
    let mut client = server.client();
    let rules = ["a", "GCRA 5 1 60", "b", "FIXED 5 60", "c", "no rule"];
    for (command, flags) in [("RL.ALL", UPDATES), ("RL.PEEKALL", READS)] {
        for words in [&rules[..2], &rules[..4], &rules] {
            let call = [&["COMMAND", "GETKEYSANDFLAGS", command], words].concat();
            let reply = client.call(&call);
            let found = items(&reply).iter().map(|pair| {
                assert_eq!(self::words(&items(pair)[1]), flags, "{call:?}");
                text(&items(pair)[0])
            });
            let expected = words.iter().step_by(2).copied().collect::<Vec<_>>();
            assert_eq!(found.collect::<Vec<_>>(), expected, "{call:?}");
        }
    }
}

#[test]
fn server_lists_this_modules_commands() {
    let server = start();
    let mut client = server.client();
    let listed = words(&client.run("COMMAND LIST FILTERBY MODULE rl"));
    let mut expected = known(&mut client).iter().map(|command| command.name).collect::<Vec<_>>();
    expected.sort_unstable();
    assert_eq!(listed, expected);
}
