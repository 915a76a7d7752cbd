//! In a cluster under load, a call by several rules stays whole: its keys move from node to node,
//! a few at a time, and it takes from all of them or from none.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::support::cluster::Cluster;
use crate::support::several::{answer, call};
use crate::support::{Random, eventually};

/// A key, its rule with the cost, and the same in numbers. Nothing comes back within a test.
struct Rule {
    key: &'static str,
    rule: &'static str,
    limit: i64,
    cost: i64,
}

const fn rule(key: &'static str, rule: &'static str, limit: i64, cost: i64) -> Rule {
    Rule { key, rule, limit, cost }
}

/// The first and the last are soon used up, and then deny what the others would allow.
const RULES: [Rule; 8] = [
    rule("{t}:scarce", "GCRA 60 60 366d", 60, 1),
    rule("{t}:fixed", "FIXED 9000 366d COST 3", 9_000, 3),
    rule("{t}:sliding", "SLIDING 9000 366d", 9_000, 1),
    rule("{t}:log", "SLIDINGLOG 9000 366d COST 2", 9_000, 2),
    rule("{t}:token", "TOKENBUCKET 9000 9000 366d", 9_000, 1),
    rule("{t}:leaky", "LEAKYBUCKET 9000 9000 366d COST 5", 9_000, 5),
    rule("{t}:backoff", "BACKOFF 1000000 1s 8s 366d", 1_000_000, 1),
    rule("{t}:odd", "FIXED 99 366d COST 2", 99, 2),
];

const CALLERS: u64 = 3;

/// There and back between the nodes.
const MIGRATIONS: usize = 6;

/// What remained under each rule, as every allowed call was told.
type Granted = [Vec<i64>; RULES.len()];

/// Tells the callers to stop, also when the migration has failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Calls by two to four of the rules, in any order, until told to stop and denied at least once.
fn caller(cluster: &Cluster, slot: i64, seed: u64, stop: &AtomicBool) -> Granted {
    let (mut client, mut random) = (cluster.client(), Random::new(seed));
    let (mut granted, mut was_denied) = (Granted::default(), false);
    while !(stop.load(Relaxed) && was_denied) {
        let mut left: Vec<_> = (0..RULES.len()).collect();
        let number = 2 + random.below(3);
        let drawn = (0..number).map(|_| left.swap_remove(random.below(left.len() as u64) as usize));
        let drawn: Vec<_> = drawn.collect();
        let pairs: Vec<_> = drawn.iter().map(|at| (RULES[*at].key, RULES[*at].rule)).collect();
        let reply = client.call(slot, &call("RL.ALL", &pairs));
        let answer = answer(&reply).unwrap_or_else(|| panic!("{pairs:?}: {reply:?}"));
        let all_allow = answer.rows.iter().all(|row| row[0] == 1);
        assert_eq!(answer.five[0] == 1, all_allow, "{pairs:?}: {answer:?}");
        if all_allow {
            drawn.iter().zip(&answer.rows).for_each(|(at, row)| granted[*at].push(row[2]));
        }
        was_denied |= !all_allow;
    }
    granted
}

/// Lets clients call while `migrate` moves the slot from one node to another and back, and so on.
/// What they were granted is what the keys hold, unit by unit.
fn assert_calls_stay_whole(cluster: &Cluster, migrate: impl Fn(i64, usize, usize)) {
    let (slot, stop) = (cluster.slot("{t}"), AtomicBool::new(false));
    let home = cluster.settled_owner("{t}");
    let mut granted = thread::scope(|scope| {
        let callers = (0..CALLERS).map(|seed| {
            let stop = &stop;
            scope.spawn(move || caller(cluster, slot, seed, stop))
        });
        let callers: Vec<_> = callers.collect();
        let stopping = Stop(&stop);
        let mut at_home = cluster.nodes[home].client();
        eventually("every rule has been called", || {
            let keys = at_home.integer(&format!("CLUSTER COUNTKEYSINSLOT {slot}"));
            (keys == RULES.len() as i64).then_some(())
        });
        for _ in 0..MIGRATIONS {
            let source = cluster.settled_owner("{t}");
            let target = if source == home { (home + 1) % 3 } else { home };
            let moved = || cluster.met.moved.load(Relaxed);
            let before = moved();
            migrate(slot, source, target);
            eventually("somebody is sent to the new owner", || (moved() > before).then_some(()));
        }
        drop(stopping);
        let granted = callers.into_iter().map(|caller| caller.join().expect("no caller fails"));
        granted.fold(Granted::default(), |mut sum, granted| {
            sum.iter_mut().zip(granted).for_each(|(sum, granted)| sum.extend(granted));
            sum
        })
    });
    // The first denies, and so nothing is taken: the rows say what is left.
    let look = RULES.iter().map(|rule| (rule.key, rule.rule));
    let look: Vec<_> = [("{t}:never", "FIXED 1 1 COST 2")].into_iter().chain(look).collect();
    let reply = cluster.client().call(slot, &call("RL.PEEKALL", &look));
    let left = answer(&reply).unwrap_or_else(|| panic!("{reply:?}")).rows;
    for ((rule, seen), left) in RULES.iter().zip(&mut granted).zip(&left[1..]) {
        let Rule { key, limit, cost, .. } = rule;
        let used = cost * seen.len() as i64;
        assert!(0 < used && used <= *limit, "{key}: {used} granted");
        assert_eq!(limit - left[2], used, "{key}: the state and the clients disagree");
        // Each call found what the one before it had left.
        seen.sort_unstable_by(|one, other| other.cmp(one));
        let expected = (1..=seen.len() as i64).map(|call| limit - cost * call);
        assert!(seen.iter().copied().eq(expected), "{key}: {seen:?}");
    }
    for node in &cluster.nodes {
        node.assert_alive();
        assert_eq!(node.client().info_number("rl", "rl_panics"), 0);
    }
    let taken: Vec<_> = granted.iter().map(Vec::len).collect();
    eprintln!("{MIGRATIONS} migrations, {:?}, granted: {taken:?}", cluster.met);
}

#[test]
fn several_rules_take_all_or_nothing_while_their_slot_is_resharded_under_load() {
    let cluster = Cluster::start();
    assert_calls_stay_whole(&cluster, |slot, source, target| {
        cluster.reshard_with_pauses(slot, source, target, |left| match left {
            0 => cluster.met.wait_for(|met| &met.asked),
            _ => cluster.met.wait_for(|met| &met.put_off),
        });
    });
}

#[test]
fn several_rules_take_all_or_nothing_while_their_slot_is_migrated_atomically_under_load() {
    let cluster = Cluster::start();
    if !cluster.can_migrate_atomically() {
        eprintln!("this server knows no atomic migration");
        return;
    }
    assert_calls_stay_whole(&cluster, |_, source, target| {
        cluster.migrate_atomically("{t}", source, target);
    });
}
