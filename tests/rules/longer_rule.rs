//! A rule that gets longer, on the real clock. A key lives only as long as the rule of its last
//! write needs. The longer rule therefore takes effect with the first call that it allows.

use support::{Algorithm, Server, algorithms, eventually};

/// The period of the shorter rule, in which even a busy machine can make a call.
const SHORT: &str = "3s";
/// The period of the longer rule, which does not end during the test.
const LONG: &str = "366d";
const LIMIT: u64 = 100;

/// All algorithms but GCRA, whose stored instant means the same under every rule.
const ALGORITHMS: [Algorithm; 5] = [
    algorithms::FIXED,
    algorithms::SLIDING,
    algorithms::SLIDINGLOG,
    algorithms::TOKENBUCKET,
    algorithms::LEAKYBUCKET,
];

#[test]
fn longer_rule_takes_effect_once_the_state_of_the_shorter_rule_has_expired() {
    let server = Server::start();
    let mut client = server.client();
    let all = LIMIT.to_string();
    for algorithm in ALGORITHMS {
        let call = |period| algorithm.call(algorithm.name, LIMIT, period);
        assert!(client.allows(&format!("{} COST {all}", call(SHORT))), "{}", algorithm.name);
    }
    for algorithm in ALGORITHMS {
        let longer = algorithm.call(algorithm.name, LIMIT, LONG);
        let (denied, expires_at_ms) = (client.decide(&longer), client.snapshot(algorithm.name).1);
        // While the state exists, the longer rule applies its own period to it, and denies.
        assert_eq!((denied[0], denied[2]), (0, 0), "{longer}: {denied:?}");
        // The reported wait is an upper bound: the key expires earlier, at the time that its last
        // write set.
        let now_ms = client.server_time_us() / 1_000;
        assert!(denied[3] > expires_at_ms - now_ms, "{longer}: {denied:?}");
    }
    for algorithm in ALGORITHMS {
        let longer = algorithm.call(algorithm.name, LIMIT, LONG);
        eventually("the shorter rule's state has expired", || client.allows(&longer).then_some(()));
        // The call starts one new allowance, which the longer rule limits until its end.
        let rest = format!("{longer} COST {}", LIMIT - 1);
        assert!(client.allows(&rest), "{rest}");
        assert!(!client.allows(&longer), "{longer}");
        let lives_ms = client.integer(&format!("PTTL {}", algorithm.name));
        assert!(lives_ms > 300 * 86_400_000, "{longer}: {lives_ms}");
    }
}

#[test]
fn gcra_stores_an_instant_that_means_the_same_under_a_longer_rule() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.allows("RL.GCRA k 100 100 2s COST 100"));
    // The longer rule tolerates more than this debt, so it does not deny because of the shorter
    // rule.
    let longer = client.decide("RL.PEEK k GCRA 100 100 3600");
    assert_eq!((longer[0], longer[3]), (1, 0), "{longer:?}");
    // After the key has expired, GCRA decides as before, minus the debt that has been paid since.
    let before = client.decide("RL.PEEK k GCRA 100 100 3600 COST 0")[4];
    eventually("the key expires", || (client.integer("EXISTS k") == 0).then_some(()));
    let after = client.decide("RL.PEEK k GCRA 100 100 3600 COST 0");
    assert!(before <= 2_000 && after[4] == 0, "{before} ms owed, then {after:?}");
}
