//! The library on replicas, after a restart, in a cluster, and after FUNCTION FLUSH.

use redis::{PushKind, Value};

use crate::library::{FORMS, Form, Library, Request, script, source};
use support::cluster::Cluster;
use support::{Client, Server, integers, raw_error, replica_of, text, wait_for_offset};

/// Calls of each kind, in an order in which every call stores a state.
pub const CALLS: [&str; 16] = [
    "GCRA g 6 10 60",
    "GCRA g 6 10 60 COST 2",
    "FIXED f 6 60",
    "FIXED f 6 60 ALIGNED",
    "SLIDING s 6 60 COST 3",
    "SLIDINGLOG l 6 60",
    "SLIDINGLOG l 6 60 COST 2",
    "TOKENBUCKET t 6 10 60",
    "LEAKYBUCKET q 6 10 60",
    "BACKOFF b 3 1s 8s 1h",
    "CHARGE t TOKENBUCKET 6 10 60 COST 20",
    "REFUND g GCRA 6 10 60",
    "LEASE h job-1 3 60",
    "LEASE h job-2 3 60",
    "RENEW h job-1 90",
    "RELEASE h job-2",
];

/// Returns a call with several rules, on keys of one slot.
fn all(verb: &str) -> Request {
    Request::several(verb, &[("{7}:u", "GCRA 6 10 60"), ("{7}:t", "FIXED 8 60 COST 4")])
}

pub fn call_all(client: &mut Client, library: &Library, form: Form) {
    let each = CALLS.iter().map(|line| Request::line(line)).chain([all("ALL")]);
    for request in each.collect::<Vec<_>>() {
        let reply = client.call(&request.call(form, library));
        let allowed = match &reply {
            Value::Array(fields) => matches!(fields[0], Value::Int(0..=1)),
            reply => *reply == Value::Int(1),
        };
        assert!(allowed, "{request:?}: {reply:?}");
    }
}

pub fn plain() -> Server {
    Server::setup().without_module().with_tcp().start()
}

#[test]
fn replica_receives_the_library_and_equal_bytes_and_no_calls() {
    let primary = plain();
    let mut client = primary.client();
    let library = Library::load(&mut client);
    let replica = replica_of(&primary);
    let mut stream = primary.replication_stream();
    stream.effects(&mut client);
    for form in [Form::Function, Form::Script] {
        client.ok("FLUSHALL");
        call_all(&mut client, &library, form);
        wait_for_offset(&primary, &replica);
        let contents = client.contents();
        assert_eq!(contents.len(), 10, "{contents:?}");
        assert!(contents.iter().all(|(_, _, expiry_ms)| *expiry_ms > 0), "{contents:?}");
        assert_eq!(replica.client().contents(), contents);
        for effect in stream.effects(&mut client) {
            let words = effect.iter().map(|word| word.to_ascii_uppercase()).collect::<Vec<_>>();
            let has = |name: &[u8]| words.iter().any(|word| word == name);
            let is_call = words[0].starts_with(b"FCALL") || words[0].starts_with(b"EVAL");
            assert!(!is_call, "{words:?}");
            assert!(!has(b"PX") && !has(b"EX") && !has(b"PEXPIRE"), "relative: {words:?}");
        }
    }
    let names = text_of_functions(&mut replica.client());
    assert!(names.contains("redis_throttle"), "{names}");
}

fn text_of_functions(client: &mut Client) -> String {
    format!("{:?}", client.run("FUNCTION LIST"))
}

#[test]
fn states_and_library_survive_a_restart_with_a_snapshot() {
    let mut server = plain();
    let mut client = server.client();
    let library = Library::load(&mut client);
    call_all(&mut client, &library, Form::Function);
    let before = client.contents();
    client.ok("SAVE");
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.contents(), before);
    let reply = client.run("FCALL rl_peek 1 g GCRA 6 10 60");
    assert_eq!(integers(&reply).expect("a decision")[1], 6);
}

#[test]
fn states_and_library_survive_a_power_cut_with_the_append_only_file() {
    for preamble in ["yes", "no"] {
        let setup = Server::setup().without_module().line("appendonly yes");
        let setup = setup.line("appendfsync always");
        let setup = setup.line(&format!("aof-use-rdb-preamble {preamble}"));
        let mut server = setup.start();
        let mut client = server.client();
        let library = Library::load(&mut client);
        call_all(&mut client, &library, Form::Function);
        let of_script = CALLS.map(|line| line.replacen(' ', " script:", 1));
        for line in &of_script {
            client.call(&Request::line(line).call(Form::Script, &library));
        }
        let before = client.contents();
        server.start_again();
        let mut client = server.client();
        assert_eq!(client.contents(), before, "preamble {preamble}");
        assert!(text_of_functions(&mut client).contains("redis_throttle"));
    }
}

#[test]
fn cluster_routes_by_the_keys_and_refuses_keys_of_different_slots() {
    let cluster = Cluster::start();
    let mut sha = None;
    for node in &cluster.nodes {
        sha = Some(Library::load(&mut node.client()));
    }
    let library = sha.expect("a node");
    let mut client = cluster.client();
    for form in FORMS {
        let name = format!("{{{form:?}}}");
        let (user, tenant) = (format!("{name}:u"), format!("{name}:t"));
        let rules = [(&*user, "GCRA 6 10 60"), (&*tenant, "FIXED 8 60 COST 4")];
        let call = Request::several("ALL", &rules).call(form, &library);
        let words = call.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>();
        let words = words.iter().map(AsRef::as_ref).collect::<Vec<_>>();
        for expected in [4, 0] {
            let Value::Array(fields) = client.call(cluster.slot(&user), &words) else {
                panic!("no decision")
            };
            assert_eq!(fields[..3], [1, 8, expected].map(Value::Int), "{form:?}");
        }
        let apart = [("a", "GCRA 6 10 60"), ("b", "GCRA 6 10 60")];
        let call = Request::several("ALL", &apart).call(form, &library);
        for node in &cluster.nodes {
            let refused = raw_error(&node.client().call(&call)).expect("an error");
            assert!(refused.starts_with("CROSSSLOT "), "{form:?}: {refused}");
        }
        let stray = cluster.nodes.iter().filter(|node| {
            let call = Request::line("GCRA k 6 10 60").call(form, &library);
            raw_error(&node.client().call(&call)).is_some_and(|e| e.starts_with("MOVED "))
        });
        assert_eq!(stray.count(), 2, "{form:?}");
    }
}

#[test]
fn flushing_keys_keeps_functions_and_flushing_functions_keeps_keys() {
    let (server, other) = (plain(), plain());
    let mut client = server.client();
    let library = Library::load(&mut client);
    let call = "FCALL rl_gcra 1 user:42 6 10 60";
    client.decide(call);
    client.ok("FLUSHALL");
    assert_eq!(client.decide(call)[2], 5);
    let dump = client.bytes("FUNCTION DUMP");
    client.ok("FUNCTION FLUSH");
    assert!(client.error(call).starts_with("ERR Function not found"));
    assert_eq!(client.integer("EXISTS user:42"), 1);
    let restore = [b"FUNCTION", &b"RESTORE"[..], &dump];
    assert_eq!(client.call(&restore), Value::Okay);
    assert_eq!(client.decide(call)[2], 4, "it goes on where it was");
    assert_eq!(other.client().call(&restore), Value::Okay);
    assert_eq!(other.client().decide(call)[2], 5);
    let loaded = client.call(&["FUNCTION", "LOAD", "REPLACE", &source()]);
    assert_eq!(text(&loaded), "redis_throttle");
    assert_eq!(client.decide(call)[2], 3);
    client.ok("SCRIPT FLUSH");
    let scripted = Request::line("GCRA user:42 6 10 60").call(Form::Script, &library);
    let missing = raw_error(&client.call(&scripted)).expect("an error");
    assert!(missing.starts_with("NOSCRIPT"), "{missing}");
    let loaded = client.call(&["SCRIPT", "LOAD", &script()]);
    assert!(raw_error(&loaded).is_none(), "{loaded:?}");
    assert_eq!(integers(&client.call(&scripted)).expect("a decision")[2], 2);
}

#[test]
fn resp3_gets_the_same_integers() {
    let server = Server::start();
    let library = Library::load(&mut server.client());
    let mut client = server.client3();
    for form in [Form::Function, Form::Script] {
        let request = Request::line("GCRA g 6 10 60").with_suffix(&format!("{form:?}"));
        let reply = integers(&client.call(&request.call(form, &library)));
        assert_eq!(reply, Some([1, 6, 5, 0, 6_000]));
        let request = all("ALL").with_suffix(&format!("{form:?}"));
        let rows = [[1, 6, 5, 0, 6_000], [1, 8, 4, 0, 60_000]];
        let row = |row: [i64; 5]| Value::Array(row.map(Value::Int).to_vec());
        let five = [1, 8, 4, 0, 60_000, 2].map(Value::Int);
        let expected = [five.to_vec(), rows.map(row).to_vec()].concat();
        assert_eq!(client.call(&request.call(form, &library)), Value::Array(expected));
    }
}

#[test]
fn library_has_the_version_of_the_package() {
    let server = plain();
    let mut client = server.client();
    Library::load(&mut client);
    let version = text(&client.run("FCALL_RO rl_version 0"));
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn clock_is_read_once_per_call() {
    let server = plain();
    let mut client = server.client();
    let library = Library::load(&mut client);
    let denying = [("{7}:u", "GCRA 6 10 60"), ("{7}:h", "LEASE a 1 60"), ("{7}:t", "FIXED 1 60")];
    let of_several =
        [all("ALL"), Request::several("ALL", &denying), Request::several("ALL", &denying)];
    let requests = CALLS.iter().map(|line| Request::line(line)).chain(of_several);
    for (request, form) in requests.flat_map(|request| {
        [Form::Function, Form::Script]
            .map(|form| (request.with_suffix(&format!(":{form:?}")), form))
    }) {
        client.ok("CONFIG RESETSTAT");
        let reply = client.call(&request.call(form, &library));
        assert!(raw_error(&reply).is_none(), "{request:?}: {reply:?}");
        let statistics = client.info("commandstats");
        let of_clock = statistics.get("cmdstat_time").expect("it is read");
        assert!(of_clock.starts_with("calls=1,"), "{request:?}: {of_clock}");
    }
}

/// A call, the keyspace events of the module's command, and the events of the function, as the
/// library's header lists them.
const EVENTS: [(&str, &[&str], &[&str]); 15] = [
    ("GCRA g 60 10 60", &["set"], &["set", "expire"]),
    // The expiry of the key is still sufficient, so it is not set again.
    ("GCRA g 60 10 60", &["set"], &["set"]),
    ("REFUND g GCRA 60 10 60 COST 9", &["del"], &["del"]),
    ("FIXED f 1 60", &["set"], &["set", "expire"]),
    ("FIXED f 1 60", &[], &[]),
    ("SLIDINGLOG l 6 60", &["set"], &["set", "expire"]),
    ("SLIDINGLOG l 6 60", &["set"], &["setrange"]),
    ("SLIDINGLOG l 6 1d", &["set"], &["setrange", "expire"]),
    ("PEEK l SLIDINGLOG 6 1d", &[], &[]),
    ("LEASE h job-1 3 60", &["zadd", "expire"], &["zadd", "expire"]),
    ("LEASE h job-2 3 59", &["zadd"], &["zadd"]),
    ("RELEASE h job-2", &["zrem"], &["zrem"]),
    ("LEASE h job-3 3 1d", &["zadd", "expire"], &["zadd", "expire"]),
    ("RELEASE h job-3", &["zrem", "expire"], &["zrem", "expire"]),
    ("RELEASE h job-1", &["del"], &["del"]),
];

#[test]
fn keyspace_events_are_those_of_the_commands_that_a_function_calls() {
    let server = Server::setup().line("notify-keyspace-events KA").start();
    let mut client = server.client();
    let library = Library::load(&mut client);
    let mut listener = server.client3();
    listener.subscribe("__keyspace@0__:*");
    for (line, of_module, of_library) in EVENTS {
        for (form, expected) in
            [(Form::Module, of_module), (Form::Function, of_library), (Form::Script, of_library)]
        {
            let request = Request::line(line).with_suffix(&format!(":{form:?}"));
            let reply = client.call(&request.call(form, &library));
            assert!(raw_error(&reply).is_none(), "{line}: {reply:?}");
            let pushed = listener.pushed().into_iter();
            let messages = pushed.filter(|push| push.kind == PushKind::PMessage);
            let events = messages.map(|push| text(&push.data[2])).collect::<Vec<_>>();
            assert_eq!(events, expected, "{line} by {form:?}");
        }
    }
}

/// One second. A server replies BUSY after five seconds by default, and operators then kill
/// scripts.
const BUSY_MS: &str = "1000";

#[test]
fn longest_calls_do_not_make_a_server_busy() {
    let server = plain();
    let mut client = server.client();
    let library = Library::load(&mut client);
    client.ok(&format!("CONFIG SET busy-reply-threshold {BUSY_MS}"));
    let keys = (0..16).map(|number| format!("log-{number}")).collect::<Vec<_>>();
    let of_each = |rule: &'static str| {
        let rules = keys.iter().map(|key| (key.as_str(), rule)).collect::<Vec<_>>();
        Request::several("ALL", &rules).call(Form::Function, &library)
    };
    let calls = (0..600).map(|_| of_each("SLIDINGLOG 1024 1h")).collect::<Vec<_>>();
    for reply in client.pipeline(&calls) {
        assert!(matches!(&reply, Value::Array(rows) if rows[0] == Value::Int(1)), "{reply:?}");
    }
    // Under a rule with coarser instants, the call rewrites every entry.
    let coarse = client.call(&of_each("SLIDINGLOG 100000 1d"));
    assert!(matches!(&coarse, Value::Array(rows) if rows[0] == Value::Int(1)), "{coarse:?}");
    let holders = (0..10_000).map(|number| {
        Request::line(&format!("LEASE jobs job-{number} 10000 1ms")).call(Form::Function, &library)
    });
    client.pipeline(&holders.collect::<Vec<_>>());
    let lease =
        client.call(&Request::line("LEASE jobs last 10000 60").call(Form::Function, &library));
    assert!(integers(&lease).is_some_and(|five| five[0] == 1), "{lease:?}");
    assert!(!server.log().contains("Slow script"), "{}", server.log());
    server.assert_alive();
}

/// The length in bytes of a long word, and of a longer text of many words.
const LONG: usize = 2 << 20;
const LONGER: usize = 16 << 20;

#[test]
fn long_argument_is_not_read_beyond_its_valid_length() {
    let server = Server::start();
    let mut client = server.client();
    let library = Library::load(&mut client);
    client.ok(&format!("CONFIG SET busy-reply-threshold {BUSY_MS}"));
    let zeros = [vec![b'0'; LONG], b"7".to_vec()].concat();
    let words = b"7 ".repeat(LONGER / 2);
    let long = [zeros, vec![b'7'; LONG], vec![b'x'; LONG], vec![b' '; LONG], words];
    let bytes = |text: &str| text.as_bytes().to_vec();
    for word in &long {
        let start = word[..3].escape_ascii();
        let of_one = [
            ("GCRA", vec![word.clone(), bytes("10"), bytes("60")]),
            ("FIXED", vec![bytes("6"), word.clone()]),
            ("FIXED", vec![bytes("6"), bytes("60"), word.clone()]),
            ("FIXED", vec![bytes("6"), bytes("60"), bytes("COST"), word.clone()]),
            ("PEEK", vec![word.clone(), bytes("6"), bytes("60")]),
            ("LEASE", vec![word.clone(), bytes("6"), bytes("60")]),
        ];
        let rules = [
            word.clone(),
            [b"FIXED ", &word[..], b" 60"].concat(),
            [b"FIXED 6 60 ", &word[..]].concat(),
        ];
        let of_several = rules.map(|rule| ("ALL", vec![rule]));
        for (verb, arguments) in of_one.into_iter().chain(of_several) {
            let replies = FORMS.map(|form| {
                let keys = vec![bytes("{7}")];
                let request = Request { verb: bytes(verb), keys, arguments: arguments.clone() };
                client.ok("FLUSHALL");
                let reply = client.call(&request.call(form, &library));
                raw_error(&reply).unwrap_or_else(|| format!("{reply:?}"))
            });
            assert!(
                replies.iter().all(|reply| *reply == replies[0]),
                "{verb} {start}: {replies:?}"
            );
        }
        let request = Request { verb: word.clone(), ..Request::line("GCRA k 6 10 60") };
        let refused = raw_error(&client.call(&request.call(Form::Script, &library)));
        assert!(refused.is_some_and(|error| error.starts_with("ERR unknown ")), "{start}");
    }
    assert!(!server.log().contains("Slow script"), "{}", server.log());
    server.assert_alive();
}
