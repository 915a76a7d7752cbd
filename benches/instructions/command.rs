//! The instructions of whole commands in a real server: those of the module, and those of the
//! server's functions that the module calls.

use crate::count::{self, Costs};
use crate::judge::Figure;
use redis::{Client, Cmd, Connection};
use redis_throttle_engine::algorithms::{Algorithm, Argument};
use redis_throttle_engine::bounds::Slots;
use redis_throttle_engine::grammar::rule::request;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The number of calls of each kind in the first run; the second run makes twice as many.
const CALLS: u64 = 400;

/// The name of the calls that replace a key of `RL.TOP`.
const REPLACING: &str = "command/top/replaced key";

/// The pattern with which callgrind finds the module's functions that the server calls.
const COMMAND_FUNCTION: &str = "*trampoline*";

/// Returns the key with this number. All keys have the same length.
fn key_of(index: u64) -> String {
    format!("key:{index:08}")
}

/// A kind of call: its name, the policy that it needs, the call that prepares each key (sent
/// twice for each key), and the measured call.
struct Kind {
    name: String,
    policy: Option<&'static str>,
    before: Option<Vec<String>>,
    call: Vec<String>,
}

fn kinds() -> Vec<Kind> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let of_rule = |algorithm: Algorithm| {
        let name = algorithm.name().to_ascii_lowercase();
        let [ample, scarce] = ["100", "1"].map(|number| arguments(algorithm, number));
        let ample_call = words(&format!("RL.{name} KEY {ample}"));
        let quarter = words(&format!("RL.{name} KEY {ample} COST 25"));
        let scarce_call = words(&format!("RL.{name} KEY {scarce}"));
        let [peek, charge, refund] = ["PEEK", "CHARGE", "REFUND"]
            .map(|verb| words(&format!("RL.{verb} KEY {name} {ample}")));
        let kind = |what: &str, before: Option<&Vec<String>>, call: &Vec<String>| Kind {
            name: format!("command/{name}/{what}"),
            policy: None,
            before: before.cloned(),
            call: call.clone(),
        };
        [
            kind("charged", Some(&quarter), &charge),
            kind("refunded", Some(&quarter), &refund),
            kind("new key", None, &ample_call),
            kind("allowed", Some(&quarter), &ample_call),
            kind("denied", Some(&scarce_call), &scarce_call),
            kind("peeked", Some(&quarter), &peek),
        ]
    };
    Algorithm::ALL
        .into_iter()
        .filter(|algorithm| takes_cost(*algorithm))
        .flat_map(of_rule)
        .chain(several())
        .chain(leases())
        .chain(uses())
        .chain(redis_cell())
        .chain(redis_gcra())
        .chain(top())
        .collect()
}

/// Returns the arguments of a rule of this algorithm: `number` for each number, ten days for each
/// duration, and a year for the unit of a quota.
fn arguments(algorithm: Algorithm, number: &str) -> String {
    let argument = |argument: &Argument| match argument {
        Argument::Number => number,
        Argument::Duration => "10d",
    };
    let mut words: Vec<_> = algorithm.arguments().iter().map(argument).collect();
    if algorithm == Algorithm::CalendarQuota {
        words.push("year ZONE Europe/Berlin");
    }
    words.join(" ")
}

/// Returns true if a call can be charged and refunded in units.
fn takes_cost(algorithm: Algorithm) -> bool {
    let call = format!("{} COST 25", arguments(algorithm, "100"));
    let words: Vec<_> = call.split(' ').map(str::as_bytes).collect();
    request(algorithm, &words, Slots::DEFAULT).is_ok()
}

/// Returns kinds of calls with three rules, to compare with calls with one rule.
fn several() -> [Kind; 3] {
    let call = |limit: &str, cost: u32, last: &str| {
        let gcra = format!("GCRA {limit} 100 10d COST {cost}");
        let bucket = format!("TOKENBUCKET {limit} 100 10d COST {cost}");
        let fixed = format!("FIXED {last} 10d");
        ["RL.ALL", "KEY:g", &gcra, "KEY:t", &bucket, "KEY:f", &fixed].map(str::to_owned).to_vec()
    };
    let before = || call("100", 25, "100");
    let kind = |what: &str, before: Vec<String>, call: Vec<String>| Kind {
        name: format!("command/three rules/{what}"),
        policy: None,
        before: Some(before),
        call,
    };
    // In a denied call the last rule denies. The other rules, which allow the call, are then
    // decided twice.
    [
        kind("allowed", before(), call("100", 1, "100")),
        kind("denied", call("100", 25, "1"), call("100", 1, "1")),
        // The text of every rule is new, so the module finds none of the rules in its cache.
        kind("new texts", before(), call("1NUMBER", 1, "1NUMBER")),
    ]
}

/// Returns kinds of calls for a lease: on a new key, on a key with one other holder, and denied.
fn leases() -> [Kind; 3] {
    let lease = |id: &str, limit: &str| ["RL.LEASE", "KEY", id, limit, "10d"].map(str::to_owned);
    let kind = |what: &str, before: Option<Vec<String>>, call: Vec<String>| Kind {
        name: format!("command/lease/{what}"),
        policy: None,
        before,
        call,
    };
    let first = || Some(lease("first", "2").to_vec());
    [
        kind("new key", None, lease("first", "2").to_vec()),
        kind("allowed", first(), lease("second", "2").to_vec()),
        kind("denied", first(), lease("second", "1").to_vec()),
    ]
}

/// Returns kinds of calls under a policy, alone and as one of three rules, to compare with calls
/// under the same rules without a policy.
fn uses() -> [Kind; 7] {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let kind = |what: &str, policy, before: &str, call: &str| Kind {
        name: format!("command/use/{what}"),
        policy: Some(policy),
        before: Some(words(before)),
        call: words(call),
    };
    let (enforced, shadow) = ("p GCRA 100 100 10d", "p SHADOW GCRA 100 100 10d");
    let (before, by_default) = ("RL.GCRA KEY 100 100 10d COST 25", "DEFAULT GCRA 100 100 10d");
    let all = ["RL.ALL", "KEY:g", "USE p", "KEY:t", "TOKENBUCKET 100 100 10d", "KEY:f"];
    let all = all.iter().map(|word| (*word).to_owned()).chain(["FIXED 100 10d".to_owned()]);
    [
        kind("allowed", enforced, before, "RL.USE KEY p"),
        kind("denied", "p GCRA 1 1 10d", "RL.GCRA KEY 1 1 10d", "RL.USE KEY p"),
        kind("allowed, shadow", shadow, before, "RL.USE KEY p"),
        kind("allowed, of a variant", "p@b GCRA 100 100 10d", before, "RL.USE KEY p FOR a FOR b"),
        kind("allowed, with a default", enforced, before, &format!("RL.USE KEY p {by_default}")),
        kind("allowed, by default", "q FIXED 1 1", before, &format!("RL.USE KEY p {by_default}")),
        Kind { call: all.collect(), ..kind("allowed, three rules", enforced, before, "") },
    ]
}

/// Returns kinds of calls of redis-cell's command, with the same rule as the calls of GCRA.
fn redis_cell() -> [Kind; 3] {
    in_digits("redis-cell", "CL.THROTTLE", "25")
}

/// Returns calls of Redis' `GCRA`, with the same rule.
fn redis_gcra() -> [Kind; 3] {
    in_digits("redis-gcra", "GCRA", "TOKENS 25")
}

/// Returns calls of a command whose state is redis-cell's. The arguments `quarter` make a call take
/// 25 units.
fn in_digits(name: &str, command: &str, quarter: &str) -> [Kind; 3] {
    let call = |arguments: &str| {
        let line = format!("{command} KEY {arguments}");
        line.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let kind = |what: &str, before: Option<Vec<String>>, call: Vec<String>| Kind {
        name: format!("command/{name}/{what}"),
        policy: None,
        before,
        call,
    };
    let (ample, scarce) = (|| call("99 100 864000"), || call("0 1 864000"));
    [
        kind("new key", None, ample()),
        kind("allowed", Some(call(&format!("99 100 864000 {quarter}"))), ample()),
        kind("denied", Some(scarce()), scarce()),
    ]
}

/// Returns denied calls that `RL.TOP` counts: of a known key of 32 bytes, and of a key that takes
/// the slot of another.
fn top() -> [Kind; 2] {
    let call = || {
        let line = "RL.GCRA KEY:0123456789012345678 1 1 10d";
        line.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    ["command/top/known key", REPLACING].map(|name| Kind {
        name: name.to_owned(),
        policy: None,
        before: Some(call()),
        call: call(),
    })
}

/// The counts of whole commands.
pub struct Commands {
    /// The figures of each kind of call.
    pub figures: Vec<Figure>,
    /// The instructions of the server's functions in an allowed call of GCRA, the largest first.
    pub server_functions: Vec<(String, u64)>,
}

/// Counts all kinds of calls.
pub fn count() -> Commands {
    let module = PathBuf::from(env::var_os("RL_MODULE").expect("RL_MODULE names the module"));
    let name = module.file_name().expect("a file").to_string_lossy().into_owned();
    let mut commands = Commands { figures: Vec::new(), server_functions: Vec::new() };
    let only = env::var("ONLY").unwrap_or_default();
    let names: Vec<_> = kinds().into_iter().map(|kind| kind.name).collect();
    let is_selected = |name: &str| only.split(',').any(|part| name.contains(part));
    assert!(names.iter().any(|name| is_selected(name)), "ONLY={only} is a part of none: {names:?}");
    for kind in kinds().into_iter().filter(|kind| is_selected(&kind.name)) {
        eprintln!("counting {} ...", kind.name);
        let [once, more] = [1, 2].map(|times| count_calls(&module, &kind, times * CALLS));
        let is_ours = |path: &str| path.ends_with(&name);
        let sum = |costs: &Costs, ours: bool| -> u64 {
            let objects = costs.objects.iter().filter(|(path, _)| is_ours(path) == ours);
            objects.map(|(_, count)| count).sum()
        };
        let by_call = |ours| sum(&more, ours).saturating_sub(sum(&once, ours)) / CALLS;
        if kind.name == "command/gcra/allowed" {
            let ours = more.calls_out.iter().filter(|((object, _), _)| is_ours(object));
            let mut functions: Vec<(String, u64)> = ours
                .map(|(key, count)| {
                    let before = once.calls_out.get(key).copied().unwrap_or(0);
                    (key.1.clone(), count.saturating_sub(before) / CALLS)
                })
                .collect();
            functions.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            commands.server_functions = functions;
        }
        let (ours, theirs) = (by_call(true), by_call(false));
        commands.figures.push(Figure { name: kind.name, ours, theirs });
    }
    commands
}

/// Counts the instructions inside the commands of a server that receives this number of calls.
fn count_calls(module: &Path, kind: &Kind, calls: u64) -> Costs {
    let directory = tempfile::tempdir().expect("a directory");
    let [socket, out] = ["socket", "out"].map(|name| directory.path().join(name));
    let mut server = Command::new(env::var_os("SERVER").unwrap_or_else(|| "redis-server".into()));
    server.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
    server.arg("--dir").arg(directory.path()).arg("--loadmodule").arg(module);
    // Every other kind of call has a slot for each of its keys.
    let slots = if kind.name == REPLACING { "100" } else { "4096" };
    server.args(["--rl.redis-cell", "yes", "--rl.gcra", "yes", "--rl.top-slots", slots]);
    let pattern = format!("{}.%p", out.display());
    let mut command = count::under_callgrind(Path::new(&pattern), &server);
    // Options of callgrind come before the program.
    let mut words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    words.insert(1, "--collect-atstart=no".into());
    words.insert(2, format!("--toggle-collect={COMMAND_FUNCTION}").into());
    command = Command::new("valgrind");
    let mut child = command
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("valgrind can be run");
    let mut connection = connect(&socket);
    let pid: String = redis::cmd("INFO").arg("server").query(&mut connection).expect("INFO");
    let pid = pid.lines().find_map(|line| line.strip_prefix("process_id:")).expect("a pid");
    if let Some(policy) = kind.policy {
        let words: Vec<_> = ["RL.POLICY", "SET"].into_iter().chain(policy.split(' ')).collect();
        redis::cmd(words[0]).arg(&words[1..]).query::<()>(&mut connection).expect("a policy");
    }
    // Both runs prepare the same number of keys, so the preparation is not in the difference. The
    // second call on a key makes the server convert the key's compact string to a plain one, so
    // each key gets two calls here.
    for index in (0..2 * CALLS).chain(0..2 * CALLS) {
        if let Some(before) = &kind.before {
            call(&mut connection, before, index);
        }
    }
    for index in 0..calls {
        call(&mut connection, &kind.call, index);
    }
    // The server closes the connection instead of sending a reply.
    let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").query::<()>(&mut connection);
    child.wait().expect("the server ends");
    count::read(Path::new(&format!("{}.{pid}", out.display())))
}

fn call(connection: &mut Connection, words: &[String], index: u64) {
    let mut command = Cmd::new();
    for word in words {
        let number = format!("{:03}", index % 1_000);
        command.arg(word.replace("KEY", &key_of(index)).replace("NUMBER", &number));
    }
    let reply: redis::Value = command.query(connection).expect("a decision");
    let redis::Value::Array(fields) = reply else { panic!("{reply:?}") };
    assert!(matches!(fields[..5], [redis::Value::Int(0..=1), ..]), "{fields:?}");
}

fn connect(socket: &Path) -> Connection {
    let address = format!("unix://{}", socket.display());
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let connection = Client::open(address.as_str()).and_then(|client| client.get_connection());
        if let Ok(connection) = connection {
            return connection;
        }
        assert!(Instant::now() < deadline, "the server does not start under callgrind");
        std::thread::yield_now();
    }
}
