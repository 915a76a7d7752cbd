//! The sorted set in which the server stores leases, in every encoding, and sets that the module
//! did not write.

use std::collections::BTreeMap;

use redis::Value;

use support::cluster::Cluster;
use support::{BASE_US, Client, Random, Server, WRONGTYPE, integers, raw_error};

const LEASING: [&str; 6] = [
    "RL.LEASE k a 3 60",
    "RL.LEASE k new 3 60",
    "RL.PEEK k LEASE new 1 60",
    "RL.RENEW k a 60",
    "RL.RELEASE k a",
    "RL.PEEKALL k LEASE-new-3-60",
];

/// Makes the call. A rule of RL.PEEKALL is one argument, so `line` has dashes in place of its
/// spaces.
fn run(client: &mut Client, line: &str) -> Value {
    let spaced = |word: &str| match line.starts_with("RL.PEEKALL") {
        true => word.replace('-', " "),
        false => word.to_owned(),
    };
    client.call(&line.split(' ').map(spaced).collect::<Vec<_>>())
}

/// Asserts that every call that reads the invalid part of the set refuses the key and does not
/// change it. `RL.RENEW` and `RL.RELEASE` read only the mark, their own lease and the last other
/// lease.
fn assert_foreign(client: &mut Client, what: &str) {
    let (before, changes) = (client.snapshot("k"), client.changes());
    let has_mark = client.call(&["ZSCORE", "k", ""]) == Value::BulkString(b"0".to_vec());
    let looks = |call: &&&str| {
        let ends = call.starts_with("RL.RENEW") || call.starts_with("RL.RELEASE");
        !(has_mark && ends && what.contains(" z "))
    };
    for call in LEASING.iter().filter(looks) {
        let error = raw_error(&run(client, call)).unwrap_or_else(|| panic!("{call} on {what}"));
        let expected = WRONGTYPE.replace("WRONGTYPE ", "WRONGTYPE rule 1: ");
        assert!(error == WRONGTYPE || error == expected, "{call} on {what}: {error}");
    }
    let inspected = client.error("RL.INSPECT k");
    assert!(inspected.starts_with("WRONGTYPE"), "{what}: {inspected}");
    assert_eq!(client.snapshot("k"), before, "{what} was touched");
    assert_eq!(client.changes(), changes, "{what} was touched");
}

#[test]
fn foreign_sorted_set_is_refused_and_left_unchanged() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let (ours, later) = ((BASE_US + 1).to_string(), (BASE_US + 2).to_string());
    let half = format!("{}.5", (1_i64 << 51) + 1);
    let (bound, above) = ((1_i64 << 53).to_string(), (1_i64 << 60).to_string());
    let sets: [&[&str]; 14] = [
        // Sets without a mark, or with a mark of another score.
        &["1", "a"],
        &[&ours, "a", &later, "b"],
        &["1", "", &ours, "a"],
        &["-1", "", &ours, "a"],
        &["inf", "", &ours, "a"],
        // Sets with a member before the mark, or with the mark's score.
        &["0", "", "-1", "z", &ours, "a"],
        &["0", "", "-inf", "z", &ours, "a"],
        &["0", "", "0", "z", &ours, "a"],
        // Sets in which a call reads a score that is not an integer in range.
        &["0", "", &half, "a"],
        &["0", "", "0.5", "a"],
        &["0", "", &bound, "a"],
        &["0", "", &above, "a"],
        &["0", "", "inf", "a"],
        &["0", "", "5e-324", "a"],
    ];
    for set in sets {
        for limit in ["128", "0"] {
            client.ok(&format!("CONFIG SET zset-max-listpack-entries {limit}"));
            client.integer("DEL k");
            client.call(&[&["ZADD", "k"], set].concat());
            assert_foreign(&mut client, &format!(" {} ", set.join(" ")));
            client.integer("PEXPIRE k 10000000");
            assert_foreign(&mut client, &format!(" {} that expires", set.join(" ")));
        }
    }
    client.integer("DEL k");
    client.call(&["GEOADD", "k", "13.4", "52.5", ""]);
    assert_foreign(&mut client, "a place");
    for foreign in ["SET k 7", "RPUSH k a", "SADD k a", "HSET k a 1", "XADD k 1-1 a 1"] {
        client.integer("DEL k");
        client.run(foreign);
        assert_foreign(&mut client, foreign);
    }
    server.assert_alive();
}

#[test]
fn removing_a_holder_by_hand_ends_its_lease() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    assert!(client.allows("RL.LEASE k a 2 60s"));
    assert!(client.allows("RL.LEASE k b 2 60s"));
    assert_eq!(client.integer("ZREM k a"), 1);
    assert_eq!(client.integer("RL.RENEW k a 60s"), 0);
    assert_eq!(client.integer("ZREM k b"), 1);
    // Only the mark is left, which is not a lease.
    assert_eq!(support::leases::inspected(&mut client, "k"), (0, vec![]));
    assert_eq!(client.decide("RL.PEEK k LEASE c 2 60s"), [1, 2, 1, 0, 60_000]);
    assert_eq!(client.integer("RL.RELEASE k c"), 0);
    assert_eq!(client.decide("RL.LEASE k c 2 60s"), [1, 2, 1, 0, 60_000]);
    assert_eq!(client.integer("ZCARD k"), 2);
}

#[test]
fn forged_sets_are_decided_on_or_refused_and_never_stop_the_server() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(5);
    client.freeze(BASE_US);
    let (mut decided, mut refused) = (0, 0);
    for round in 0..1_500 {
        client.integer("DEL k");
        let members = random.below(40);
        let mut words = ["ZADD", "k"].map(str::to_owned).to_vec();
        if random.below(6) > 0 || members == 0 {
            words.extend(["0", ""].map(str::to_owned));
        }
        for member in 0..members {
            let score = match random.below(60) {
                0 => "-1".to_owned(),
                1 => "1.5".to_owned(),
                2 => "inf".to_owned(),
                3 => "9007199254740993".to_owned(),
                _ => (BASE_US - 500 + random.below(1_000) as i64).to_string(),
            };
            words.extend([score, format!("m{member}")]);
        }
        client.call(&words);
        for _ in 0..6 {
            let (id, limit) = (random.below(40), 1 + random.below(40));
            let call = match random.below(6) {
                0 => format!("RL.RENEW k m{id} 1s"),
                1 => format!("RL.RELEASE k m{id}"),
                2 => format!("RL.PEEK k LEASE m{id} {limit} 1s"),
                3 => "RL.INSPECT k".to_owned(),
                _ => format!("RL.LEASE k m{id} {limit} 1s"),
            };
            let before = client.snapshot("k");
            let reply = client.run(&call);
            match raw_error(&reply) {
                None => decided += 1,
                Some(error) => {
                    assert!(error.starts_with("WRONGTYPE"), "{round}: {call}: {error}");
                    assert_eq!(client.snapshot("k"), before, "{round}: {call}");
                    refused += 1;
                }
            }
            client.advance_ms(random.below(2) as i64);
        }
        client.freeze(BASE_US);
    }
    assert!(decided > 500 && refused > 500, "{decided} {refused}");
    server.assert_alive();
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
}

/// Computes the reply to a call from a map of holders to expiry times in us.
fn expected(
    held: &mut BTreeMap<u64, i64>,
    (id, limit, ttl_ms): (u64, i64, i64),
    now: i64,
) -> [i64; 5] {
    held.retain(|_, expiry| *expiry > now);
    let mut expiries = held.values().copied().collect::<Vec<_>>();
    expiries.sort_unstable();
    let ms = |expiry: i64| (expiry - now + 999) / 1_000;
    if !held.contains_key(&id) && held.len() as i64 >= limit {
        let retry = expiries[held.len() - limit as usize];
        return [0, limit, 0, ms(retry), ms(*expiries.last().unwrap())];
    }
    held.insert(id, now + ttl_ms * 1_000);
    let last = held.values().max().unwrap();
    [1, limit, (limit - held.len() as i64).max(0), 0, ms(*last)]
}

#[test]
fn small_and_large_lease_sets_agree_with_a_naive_map() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(9);
    // The server stores a few holders in a listpack and many in a skip list. One of the sizes is
    // near the number at which it switches.
    for (ids, limits) in [(6, 1..=5), (60, 10..=50), (160, 100..=150), (900, 1..=800)] {
        client.ok("FLUSHALL");
        let (mut held, mut now) = (BTreeMap::new(), BASE_US);
        for call in 0..4_000 {
            let step = if random.below(40) == 0 { 5_000_000 } else { random.below(3_000) as i64 };
            now += step;
            client.freeze(now);
            let span = (limits.end() - limits.start() + 1) as u64;
            let limit = limits.start() + random.below(span) as i64;
            let (id, ttl_ms) = (random.below(ids), 1 + random.below(1_000) as i64);
            let is_live = held.get(&id).is_some_and(|expiry| *expiry > now);
            match random.below(8) {
                0 => {
                    let released = client.integer(&format!("RL.RELEASE k {id}"));
                    assert_eq!(released, is_live.into(), "{call}: release {id}");
                    held.remove(&id);
                }
                1 => {
                    let renewed = client.integer(&format!("RL.RENEW k {id} {ttl_ms}ms"));
                    assert_eq!(renewed, is_live.into(), "{call}: renew {id}");
                    if is_live {
                        held.insert(id, now + ttl_ms * 1_000);
                    }
                }
                _ => {
                    let request = (id, limit, ttl_ms);
                    let wanted = expected(&mut held, request, now);
                    let peek = format!("RL.PEEK k LEASE {id} {limit} {ttl_ms}ms");
                    assert_eq!(client.decide(&peek), wanted, "{call}: {peek}");
                    let line = format!("RL.LEASE k {id} {limit} {ttl_ms}ms");
                    assert_eq!(client.decide(&line), wanted, "{call}: {line}");
                }
            }
        }
        server.assert_alive();
    }
}

/// A way to send a call to the server.
type Way = Box<dyn FnMut(&mut Client, &str) -> Value>;

#[test]
fn leases_work_in_transactions_scripts_and_functions() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let code = "#!lua name=lib\nredis.register_function('call', function(keys, args) \
                return redis.call(args[1], keys[1], unpack(args, 2)) end)";
    client.call(&["FUNCTION", "LOAD", code]);
    let mut ways: [(&str, Way); 4] = [
        ("plain", Box::new(|client, line| client.run(line))),
        ("EVAL", Box::new(|client, line| client.run_in_script(line))),
        (
            "FCALL",
            Box::new(|client, line| {
                let words = line.split(' ').collect::<Vec<_>>();
                let call = [&["FCALL", "call", "1", words[1], words[0]], &words[2..]].concat();
                client.call(&call)
            }),
        ),
        (
            "MULTI",
            Box::new(|client, line| {
                client.ok("MULTI");
                client.run(line);
                let Value::Array(mut replies) = client.run("EXEC") else { panic!("no EXEC") };
                replies.remove(0)
            }),
        ),
    ];
    for (name, way) in &mut ways {
        client.ok("FLUSHALL");
        client.freeze(BASE_US);
        // Twenty leases expire and thirty do not, so that the module queries the server for a count
        // and for a rank.
        for holder in 0..50 {
            let ttl = if holder < 20 { 10 } else { 60 + holder };
            let reply = way(&mut client, &format!("RL.LEASE k h{holder} 100 {ttl}s"));
            assert_eq!(integers(&reply).expect("a decision")[..3], [1, 100, 99 - holder], "{name}");
        }
        client.advance_ms(10_000);
        let denied = integers(&way(&mut client, "RL.LEASE k new 15 1h"));
        assert_eq!(denied, Some([0, 15, 0, 85_000, 99_000]), "{name}");
        assert_eq!(way(&mut client, "RL.RENEW k h10 60s"), Value::Int(0), "{name}");
        assert_eq!(way(&mut client, "RL.RENEW k h30 60s"), Value::Int(1), "{name}");
        assert_eq!(way(&mut client, "RL.RELEASE k h30"), Value::Int(1), "{name}");
        let allowed = integers(&way(&mut client, "RL.LEASE k new 30 1h"));
        assert_eq!(allowed, Some([1, 30, 0, 0, 3_600_000]), "{name}");
    }
    let script = "return redis.call('RL.PEEK', KEYS[1], 'LEASE', 'x', '15', '1h')";
    let peeked = client.call(&["EVAL_RO", script, "1", "k"]);
    assert_eq!(integers(&peeked).expect("a decision")[..3], [0, 15, 0]);
    let script = "return redis.call('RL.RELEASE', KEYS[1], 'new')";
    assert!(raw_error(&client.call(&["EVAL_RO", script, "1", "k"])).is_some());
    // Two keys in one call: the module queries the server about both sets.
    for key in ["{k}1", "{k}2"] {
        for holder in 0..20 {
            assert!(client.allows(&format!("RL.LEASE {key} h{holder} 100 10s")));
        }
    }
    client.advance_ms(10_000);
    let both = client.call(&["RL.ALL", "{k}1", "LEASE a 1 60", "{k}2", "LEASE a 2 60"]);
    let Value::Array(both) = both else { panic!("no decision") };
    assert_eq!(both[..2], [Value::Int(1), Value::Int(1)]);
    assert_eq!(both.len(), 8);
}

#[test]
fn full_server_renews_and_releases_leases_and_an_evicted_key_has_none() {
    let server = Server::setup().line("maxmemory-policy noeviction").start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for holder in 0..20 {
        assert!(client.allows(&format!("RL.LEASE k h{holder} 20 60s")));
    }
    client.ok("CONFIG SET maxmemory 1");
    assert!(client.error("RL.LEASE k h1 20 60s").starts_with("OOM"));
    assert!(client.error("RL.LEASE other h1 20 60s").starts_with("OOM"));
    assert_eq!(client.decide("RL.PEEK k LEASE new 20 60s")[..3], [0, 20, 0]);
    for holder in 0..20 {
        assert_eq!(client.integer(&format!("RL.RENEW k h{holder} 90s")), 1);
        assert_eq!(client.integer(&format!("RL.RELEASE k h{holder}")), 1);
    }
    assert_eq!(client.integer("EXISTS k"), 0);
    client.ok("CONFIG SET maxmemory 0");
    assert!(client.allows("RL.LEASE k h1 20 60s"));
    // Evicting a key ends its leases. The next RENEW reports to the holder that it has no lease.
    client.ok("CONFIG SET maxmemory-policy allkeys-random");
    client.ok("CONFIG SET maxmemory 1");
    assert_eq!(client.integer("RL.RENEW k h1 60s"), 0);
    server.assert_alive();
}

#[test]
fn lease_needs_no_right_to_the_commands_that_the_module_calls_on_a_set() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for holder in 0..20 {
        assert!(client.allows(&format!("RL.LEASE k h{holder} 100 10s")));
    }
    client.advance_ms(10_000);
    client.ok("ACL SETUSER app reset on nopass ~k -@all +rl.lease");
    let mut app = server.client();
    app.ok("AUTH app any");
    assert_eq!(app.decide("RL.LEASE k a 1 60s")[..3], [1, 1, 0]);
}

#[test]
fn in_a_cluster_the_key_of_a_lease_selects_the_node_whose_replica_serves_peek() {
    let mut cluster = Cluster::start();
    let owner = cluster.settled_owner("k");
    let replica = cluster.add_replica(owner);
    let mut client = cluster.nodes[owner].client();
    client.freeze(BASE_US);
    for holder in 0..50 {
        let ttl = if holder < 20 { 10 } else { 60 };
        assert!(client.allows(&format!("RL.LEASE k h{holder} 100 {ttl}s")));
    }
    client.advance_ms(10_000);
    let denied = [0, 15, 0, 50_000, 50_000];
    assert_eq!(client.decide("RL.LEASE k new 15 60s"), denied);
    assert_eq!(client.integer("RL.RENEW k h49 50s"), 1);
    client.integer("WAIT 1 60000");
    let mut reader = cluster.nodes[replica].client();
    reader.ok("READONLY");
    reader.freeze(BASE_US + 10_000_000);
    assert_eq!(reader.decide("RL.PEEK k LEASE new 15 60s"), denied);
    let other = (0..cluster.nodes.len()).find(|node| *node != owner && *node != replica).unwrap();
    for call in ["RL.LEASE k a 1 1", "RL.RENEW k a 1", "RL.RELEASE k a", "RL.PEEK k LEASE a 1 1"] {
        let error = cluster.nodes[other].client().error(call);
        assert!(error.starts_with("MOVED"), "{call}: {error}");
    }
}

/// A dump by Redis 7.0 of two leases that were taken at [`BASE_US`], for 60 s and for 90 s.
const PAYLOAD: &str = "112d2d000000060080010001856a6f622d3106f400072c2c17650600\
     09856a6f622d3206f480caf52d1765060009ff0a00606fe6d71d3e986c";

#[test]
fn payload_of_redis_7_0_loads_with_its_leases() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let digits = |at: usize| u8::from_str_radix(&PAYLOAD[at..at + 2], 16).expect("digits");
    let payload = (0..PAYLOAD.len()).step_by(2).map(digits).collect::<Vec<_>>();
    client.call(&[&b"RESTORE"[..], b"k", b"86400000", &payload]);
    let held = [("job-1", 60_000), ("job-2", 90_000)].map(|(id, ms)| (id.as_bytes().to_vec(), ms));
    assert_eq!(support::leases::inspected(&mut client, "k"), (2, held.to_vec()));
    assert_eq!(client.decide("RL.LEASE k job-3 2 60s"), [0, 2, 0, 60_000, 90_000]);
    // The same calls still write the same set.
    for again in ["RL.LEASE again job-1 3 60s", "RL.LEASE again job-2 3 90s"] {
        assert!(client.allows(again));
    }
    let both = ["k", "again"].map(|key| client.run(&format!("ZRANGE {key} 0 -1 WITHSCORES")));
    assert_eq!(both[0], both[1]);
}
