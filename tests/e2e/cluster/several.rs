//! In a cluster under load, a call with several rules stays atomic: while its keys move between
//! nodes, a few at a time, the call takes units of all of them or of none.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use support::cluster::Cluster;
use support::several::{call, decision_of};
use support::{ALGORITHMS, Random, eventually};

/// A key, its rule as text with the cost, and the limit and cost as numbers. No unit returns during
/// a test.
struct Rule {
    key: String,
    rule: String,
    limit: i64,
    cost: i64,
}

/// Returns a rule of each algorithm that has a cost and a period, and of `BACKOFF`. The first and
/// the last rule run out early, and then deny calls that the others would allow.
fn rules() -> Vec<Rule> {
    let rule = |name: &str, rule: String, limit, cost| {
        let rule = if cost > 1 { format!("{rule} COST {cost}") } else { rule };
        Rule { key: format!("{{t}}:{name}"), rule, limit, cost }
    };
    let ample = ALGORITHMS.iter().zip([3, 1, 2, 1, 5].into_iter().cycle());
    let ample = ample.map(|(algorithm, cost)| {
        let arguments = algorithm.arguments(9_000, "366d");
        rule(algorithm.name, format!("{} {arguments}", algorithm.name), 9_000, cost)
    });
    let backoff = rule("BACKOFF", "BACKOFF 1000000 1s 8s 366d".to_owned(), 1_000_000, 1);
    let scarce = rule("scarce", "GCRA 60 60 366d".to_owned(), 60, 1);
    let odd = rule("odd", "FIXED 99 366d".to_owned(), 99, 2);
    [scarce].into_iter().chain(ample).chain([backoff, odd]).collect()
}

const CALLERS: u64 = 3;

/// The number of moves, alternately to another node and back.
const MIGRATIONS: usize = 6;

/// The remaining units that each allowed call reported, by rule.
type Granted = Vec<Vec<i64>>;

/// Stops the callers when it is dropped, even if the migration has failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Makes calls with two to four of the rules in random order, until `stop` is set and at least one
/// call was denied.
fn caller(cluster: &Cluster, rules: &[Rule], slot: i64, seed: u64, stop: &AtomicBool) -> Granted {
    let (mut client, mut random) = (cluster.client(), Random::new(seed));
    let (mut granted, mut was_denied) = (vec![Vec::new(); rules.len()], false);
    while !(stop.load(Relaxed) && was_denied) {
        let mut left: Vec<_> = (0..rules.len()).collect();
        let number = 2 + random.below(3);
        let drawn = (0..number).map(|_| left.swap_remove(random.below(left.len() as u64) as usize));
        let drawn: Vec<_> = drawn.collect();
        let pairs = drawn.iter().map(|at| (&*rules[*at].key, &*rules[*at].rule));
        let pairs: Vec<_> = pairs.collect();
        let reply = client.call(slot, &call("RL.ALL", &pairs));
        let decision = decision_of(&reply).unwrap_or_else(|| panic!("{pairs:?}: {reply:?}"));
        let all_allow = decision.rows.iter().all(|row| row[0] == 1);
        assert_eq!(decision.five[0] == 1, all_allow, "{pairs:?}: {decision:?}");
        if all_allow {
            drawn.iter().zip(&decision.rows).for_each(|(at, row)| granted[*at].push(row[2]));
        }
        was_denied |= !all_allow;
    }
    granted
}

/// Lets clients call while `migrate` moves the slot between two nodes. Asserts that the units
/// granted to the clients are exactly the units used in the keys.
fn assert_calls_stay_whole(cluster: &Cluster, migrate: impl Fn(i64, usize, usize)) {
    let (slot, stop) = (cluster.slot("{t}"), AtomicBool::new(false));
    let rules = &rules();
    let home = cluster.settled_owner("{t}");
    let mut granted = thread::scope(|scope| {
        let callers = (0..CALLERS).map(|seed| {
            let stop = &stop;
            scope.spawn(move || caller(cluster, rules, slot, seed, stop))
        });
        let callers: Vec<_> = callers.collect();
        let stopping = Stop(&stop);
        let mut at_home = cluster.nodes[home].client();
        eventually("every rule has been called", || {
            let keys = at_home.integer(&format!("CLUSTER COUNTKEYSINSLOT {slot}"));
            (keys == rules.len() as i64).then_some(())
        });
        for _ in 0..MIGRATIONS {
            let source = cluster.settled_owner("{t}");
            let target = if source == home { (home + 1) % 3 } else { home };
            let moved = || cluster.met.moved.load(Relaxed);
            let before = moved();
            migrate(slot, source, target);
            eventually("a client is redirected to the new owner", || {
                (moved() > before).then_some(())
            });
        }
        drop(stopping);
        let granted = callers.into_iter().map(|caller| caller.join().expect("no caller fails"));
        granted.fold(vec![Vec::new(); rules.len()], |mut sum, granted| {
            sum.iter_mut().zip(granted).for_each(|(sum, granted)| sum.extend(granted));
            sum
        })
    });
    // The first rule denies, so the call takes nothing and its rows show the remaining units.
    let look = rules.iter().map(|rule| (&*rule.key, &*rule.rule));
    let look: Vec<_> = [("{t}:never", "FIXED 1 1 COST 2")].into_iter().chain(look).collect();
    let reply = cluster.client().call(slot, &call("RL.PEEKALL", &look));
    let left = decision_of(&reply).unwrap_or_else(|| panic!("{reply:?}")).rows;
    for ((rule, seen), left) in rules.iter().zip(&mut granted).zip(&left[1..]) {
        let Rule { key, limit, cost, .. } = rule;
        let used = cost * seen.len() as i64;
        assert!(0 < used && used <= *limit, "{key}: {used} granted");
        assert_eq!(limit - left[2], used, "{key}: the state and the clients disagree");
        // Each allowed call reported the previous remainder minus its cost.
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
            0 => cluster.met.wait_for(|met| &met.ask),
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
