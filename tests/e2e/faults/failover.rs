//! The loss of a primary in the middle of a window. The replica may grant again the permits that it
//! did not receive, and no others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use redis::Value;

use support::{
    ALGORITHMS, Algorithm, BASE_US, Client, Random, Server, eventually, integers, replica_of,
    wait_for_offset,
};

/// Units per key. One unit returns in almost nine hours.
const BUDGET: u64 = 1_000;

fn call(algorithm: Algorithm) -> String {
    algorithm.call(algorithm.name, BUDGET, "366d")
}

/// Makes calls until one is denied, and returns the number of allowed calls.
fn use_up(client: &mut Client, algorithm: Algorithm) -> u64 {
    let call = call(algorithm);
    (0..=BUDGET).take_while(|_| client.allows(&call)).count() as u64
}

#[test]
fn promoted_replica_grants_again_only_the_permits_it_had_not_received() {
    let mut random = Random::new(21);
    for round in 0..3 {
        let primary = Server::setup().with_tcp().start();
        let replica = replica_of(&primary);
        let (mut client, mut promoted) = (primary.client(), replica.client());
        let received = ALGORITHMS.map(|algorithm| {
            let calls = 1 + random.below(BUDGET / 4);
            assert!((0..calls).all(|_| client.allows(&call(algorithm))));
            calls
        });
        assert_eq!(client.integer("WAIT 1 60000"), 1);
        promoted.ok("REPLICAOF NO ONE");
        // The old primary does not know of the promotion and continues to decide, except in the
        // first round.
        for (algorithm, received) in ALGORITHMS.into_iter().zip(received) {
            let lost = if round == 0 { 0 } else { 1 + random.below(BUDGET / 4) };
            assert!((0..lost).all(|_| client.allows(&call(algorithm))));
            let granted = use_up(&mut promoted, algorithm);
            assert_eq!(received + lost + granted, BUDGET + lost, "{}", algorithm.name);
        }
    }
}

/// The permits of one algorithm during a failover.
#[derive(Default)]
struct Permits {
    /// Permits that the primary granted.
    acknowledged: AtomicU64,
    /// Granted permits that WAIT confirmed to be on the replica.
    confirmed: AtomicU64,
}

/// Returns the number of permits of all algorithms that all callers received.
fn total(permits: &[Permits; ALGORITHMS.len()]) -> u64 {
    permits.iter().map(|of| of.acknowledged.load(Relaxed)).sum()
}

/// Makes calls until the primary is gone. With `confirm`, waits for the replica after every call.
/// Otherwise pauses once half of the permits are granted, and continues after the replica is
/// promoted.
fn call_until_it_is_gone(
    mut client: Client,
    permits: &[Permits; ALGORITHMS.len()],
    promoted: &AtomicBool,
    seed: u64,
    confirm: bool,
) {
    let mut random = Random::new(seed);
    loop {
        while !confirm && total(permits) >= 3 * BUDGET && !promoted.load(Relaxed) {
            thread::yield_now();
        }
        let index = random.below(ALGORITHMS.len() as u64) as usize;
        let line = call(ALGORITHMS[index]);
        let Ok(reply) = client.try_call(&line.split(' ').collect::<Vec<_>>()) else { return };
        let allowed = integers(&reply).unwrap_or_else(|| panic!("{line}: {reply:?}"))[0] as u64;
        permits[index].acknowledged.fetch_add(allowed, Relaxed);
        if confirm {
            match client.try_call(&["WAIT", "1", "60000"]) {
                Ok(Value::Int(1)) => permits[index].confirmed.fetch_add(allowed, Relaxed),
                Ok(other) => panic!("WAIT: {other:?}"),
                Err(_) => return,
            };
        }
    }
}

/// Kills a primary during the traffic of four callers, promotes its replica, and uses up the
/// remaining permits there. Returns the number of permits granted twice, and the number of permits
/// that WAIT had confirmed.
///
/// Without `confirm`, the replica is promoted while the primary still decides, so some permits
/// never reach it.
fn fail_over(seed: u64, confirm: bool) -> (u64, u64) {
    const CALLERS: u64 = 4;
    let mut primary = Server::setup().with_tcp().start();
    let replica = replica_of(&primary);
    let permits: [Permits; ALGORITHMS.len()] = std::array::from_fn(|_| Permits::default());
    let promoted = AtomicBool::new(false);
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (client, permits, promoted) = (primary.client(), &permits, &promoted);
            let seed = seed * CALLERS + caller;
            scope.spawn(move || call_until_it_is_gone(client, permits, promoted, seed, confirm));
        }
        eventually("traffic runs", || (total(&permits) >= 300).then_some(()));
        if !confirm {
            replica.client().ok("REPLICAOF NO ONE");
        }
        let before = total(&permits);
        promoted.store(true, Relaxed);
        eventually("traffic goes on", || (total(&permits) >= before + 300).then_some(()));
        primary.crash();
    });
    let mut promoted = replica.client();
    promoted.ok("REPLICAOF NO ONE");
    let (mut granted_twice, mut all_confirmed) = (0, 0);
    for (algorithm, permits) in ALGORITHMS.into_iter().zip(&permits) {
        let (acknowledged, confirmed) =
            (permits.acknowledged.load(Relaxed), permits.confirmed.load(Relaxed));
        let peek = algorithm.peek(algorithm.name, BUDGET, "366d");
        let left = promoted.decide(&format!("{peek} COST 0"))[2] as u64;
        let received = BUDGET - left;
        assert!(received >= confirmed, "{}: {confirmed} were confirmed", algorithm.name);
        assert!(received <= acknowledged + CALLERS, "{}: out of nothing", algorithm.name);
        let granted = use_up(&mut promoted, algorithm);
        assert_eq!(granted, left, "{}: what its state says", algorithm.name);
        let over = (acknowledged + granted).saturating_sub(BUDGET);
        assert!(over <= acknowledged.saturating_sub(received), "{}: {over}", algorithm.name);
        assert!(confirmed + granted <= BUDGET, "{}: confirmed permits again", algorithm.name);
        granted_twice += over;
        all_confirmed += confirmed;
    }
    (granted_twice, all_confirmed)
}

#[test]
fn primary_killed_under_load_has_only_unreplicated_permits_granted_twice() {
    for seed in 1..=3 {
        let (granted_twice, _) = fail_over(seed, false);
        assert!(granted_twice > 0, "there was something to grant twice");
    }
}

#[test]
fn permit_confirmed_by_wait_is_never_granted_again() {
    for seed in 4..=6 {
        let (granted_twice, confirmed) = fail_over(seed, true);
        assert!(confirmed > 300, "{confirmed} permits were confirmed");
        // Each of the four callers may have one permit that WAIT has not confirmed yet.
        assert!(granted_twice <= 4, "{granted_twice} permits");
    }
}

#[test]
fn repeated_role_changes_grant_no_permit_beyond_the_limit() {
    let first = Server::setup().with_tcp().start();
    let second = Server::setup().with_tcp().start();
    let mut allowed = [0; ALGORITHMS.len()];
    let (mut primary, mut replica) = (&first, &second);
    for _ in 0..6 {
        primary.client().ok("REPLICAOF NO ONE");
        replica.client().ok(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        wait_for_offset(primary, replica);
        let mut client = primary.client();
        for (algorithm, allowed) in ALGORITHMS.into_iter().zip(&mut allowed) {
            *allowed += (0..200).filter(|_| client.allows(&call(algorithm))).count() as u64;
        }
        assert_eq!(client.integer("WAIT 1 60000"), 1);
        (primary, replica) = (replica, primary);
    }
    assert_eq!(allowed, [BUDGET; ALGORITHMS.len()], "1,200 calls each");
}

#[test]
fn reservations_are_held_settled_and_expired_on_a_promoted_replica() {
    let mut primary = Server::setup().with_tcp().start();
    let replica = replica_of(&primary);
    let mut client = primary.client();
    client.freeze(BASE_US);
    let rules = [("f", "FIXED 10 366d"), ("q", "QUOTA 10 year ZONE Europe/Berlin")];
    for (key, rule) in rules {
        for (id, ttl, cost) in [("a", "1h", 4), ("b", "2h", 3), ("c", "2h", 2)] {
            let call = format!("RL.RESERVE {key} {id} {ttl} {rule} COST {cost}");
            assert!(client.allows(&call), "{call}");
        }
        assert!(client.allows(&format!("RL.COMMIT {key} c {rule} COST 1")));
    }
    assert_eq!(client.integer("WAIT 1 60000"), 1);
    primary.crash();
    let mut promoted = replica.client();
    promoted.ok("REPLICAOF NO ONE");
    for (key, rule) in rules {
        promoted.freeze(BASE_US);
        // Repeats a commit, because its reply may have been lost: it settles only once.
        assert_eq!(promoted.decide(&format!("RL.COMMIT {key} c {rule} COST 9"))[..3], [1, 10, 2]);
        assert!(!promoted.allows(&format!("RL.PEEK {key} {rule} COST 3")));
        // The first reservation has expired after its hour.
        promoted.freeze(BASE_US + 3_600_000_000);
        assert_eq!(promoted.decide(&format!("RL.COMMIT {key} a {rule}"))[..3], [0, 10, 6]);
        assert_eq!(promoted.decide(&format!("RL.COMMIT {key} b {rule}"))[..3], [1, 10, 6]);
        promoted.freeze(BASE_US + 7_200_000_000);
        assert_eq!(promoted.decide(&format!("RL.COMMIT {key} b {rule}"))[..3], [0, 10, 6]);
    }
}
