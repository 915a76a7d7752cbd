//! Admissions on a real server: the call of a language model, cancelled anywhere, and with lost
//! replies.

use std::collections::{BTreeSet, HashMap};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use redis::Value;
use redis_throttle_client::{Admission, Backend, Decision, Error, Limiter, QuotaUnit, Rule};

use crate::proxy::losing;
use crate::server::{Server, backend, until};
use crate::{limiter, ms, patient};

const ESTIMATE: u64 = 1800;
const USED: u64 = 2000;

/// The ttl of leases and reservations. No test takes that long, so only ends free what is held.
const TTL: &str = "10m";

/// The rules of an application that calls a language model.
struct Rules {
    rpm: Rule,
    tpm: Rule,
    month: Rule,
    runs: Rule,
}

impl Rules {
    fn new() -> Self {
        Self {
            rpm: Rule::gcra("rpm", 100, 100, "1m").unwrap(),
            tpm: Rule::fixed("tpm", 90_000, "1h").unwrap(),
            month: Rule::quota("month", 1_000_000, QuotaUnit::Month).unwrap(),
            runs: Rule::lease("runs", 3, TTL).unwrap(),
        }
    }

    async fn admit(&self, limiter: &Limiter, tenant: &str) -> Result<Admission, Error> {
        let items = [
            self.rpm.of(tenant),
            self.tpm.of(tenant).cost(ESTIMATE),
            self.month.of(tenant).reserve(ESTIMATE).ttl(TTL),
            self.runs.of(tenant),
        ];
        limiter.admit(&items, None).await
    }

    /// Calls the model, which takes a moment, and settles its units.
    async fn run(&self, limiter: &Limiter, tenant: &str, settled: &AtomicUsize) {
        let admitted = self.admit(limiter, tenant).await.expect("admitted");
        tokio::time::sleep(ms(1)).await;
        admitted.settle(&self.tpm, USED).unwrap();
        admitted.settle(&self.month, USED).unwrap();
        settled.fetch_add(1, Ordering::Relaxed);
        admitted.finish().await;
    }
}

/// Returns the stored state of a key, as numbers; empty without one.
async fn state(server: &Server, key: &str) -> HashMap<String, u64> {
    let stored: Option<HashMap<String, Value>> = server.query(&["RL.INSPECT", key]).await.unwrap();
    let number = |(name, value): (String, Value)| {
        redis::from_redis_value::<u64>(value).ok().map(|number| (name, number))
    };
    stored.into_iter().flatten().filter_map(number).collect()
}

async fn number(server: &Server, key: &str, field: &str) -> u64 {
    state(server, key).await.get(field).copied().unwrap_or(0)
}

/// Waits until the server holds nothing for a tenant.
async fn until_nothing_is_held(server: &Server, tenant: &str, rules: &Rules) {
    let free = Limiter::with_options(server.client(), patient()).unwrap();
    until("nothing is held", async || {
        let runs = free.peek_all(&[rules.runs.of(tenant).id("other")], None).await.unwrap();
        let open = number(server, &format!("rl:month:{tenant}"), "reservations_open").await;
        (runs.rows[0].remaining, open) == (2, 0)
    })
    .await;
}

async fn used(server: &Server, tenant: &str) -> [u64; 2] {
    let [month, tpm] = ["month", "tpm"].map(|rule| format!("rl:{rule}:{tenant}"));
    [number(server, &month, "used").await, number(server, &tpm, "used").await]
}

#[tokio::test]
async fn call_of_a_model_takes_what_it_used() {
    if backend() != Backend::Module {
        return;
    }
    let (server, rules) = (Server::start().await, Rules::new());
    let limiter = limiter(&server);
    let admitted = rules.admit(&limiter, "t").await.unwrap();
    assert_eq!((admitted.decision().rows.len(), admitted.held()), (4, true));
    assert_eq!(number(&server, "rl:month:t", "reserved").await, ESTIMATE);
    admitted.settle(&rules.tpm, USED).unwrap();
    // One unit: the server would take the estimate for a commit without a cost.
    admitted.settle(rules.month.of("t"), 1).unwrap();
    admitted.finish().await;
    assert!(!admitted.held());
    assert_eq!(used(&server, "t").await, [1, USED]);
    until_nothing_is_held(&server, "t", &rules).await;
    // The second is dropped before it settles anything.
    drop(rules.admit(&limiter, "t").await.unwrap());
    until_nothing_is_held(&server, "t", &rules).await;
    assert_eq!(used(&server, "t").await, [1, USED + ESTIMATE]);
    assert_eq!(limiter.counters().unsettled, 0);
}

/// Drops a future some time after it waits for the n-th time. Returns true if it has ended before.
async fn ends_before(waits: usize, pause: Duration, future: impl Future<Output = ()>) -> bool {
    let (mut future, mut waited) = (Box::pin(future), 0);
    let ended = poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => {
            waited += 1;
            if waited == waits { Poll::Ready(false) } else { Poll::Pending }
        }
    })
    .await;
    if !ended {
        // The driver sends a command in a task of its own, unless the future is gone by then.
        tokio::time::sleep(pause).await;
    }
    ended
}

#[tokio::test]
async fn admission_cancelled_at_any_await_is_ended() {
    if backend() != Backend::Module {
        return;
    }
    let (server, rules) = (Server::start().await, Rules::new());
    for (run, pause) in [("at-once", ms(0)), ("in-flight", ms(20))] {
        let mut outcomes = BTreeSet::new();
        for waits in 1.. {
            // A new limiter, so that the first waits are those of its dial.
            let (limiter, tenant) = (limiter(&server), format!("{run}-{waits}"));
            let settled = AtomicUsize::new(0);
            let ended = ends_before(waits, pause, rules.run(&limiter, &tenant, &settled)).await;
            // On the same connection: what was sent before has run.
            limiter.ready().await.unwrap();
            until_nothing_is_held(&server, &tenant, &rules).await;
            let is_settled = settled.load(Ordering::Relaxed) == 1;
            let wanted: &[_] = if is_settled { &[[USED, USED]] } else { &[[0, 0], [0, ESTIMATE]] };
            let mut found = used(&server, &tenant).await;
            until("the units are settled", async || {
                found = used(&server, &tenant).await;
                assert!(found.iter().all(|units| *units <= USED), "{tenant}: {found:?}");
                wanted.contains(&found)
            })
            .await;
            outcomes.insert(found);
            if ended {
                break;
            }
        }
        // Cancelled before the call, after it, and after the units were settled.
        assert_eq!(outcomes, BTreeSet::from([[0, 0], [0, ESTIMATE], [USED, USED]]), "{run}");
    }
}

#[tokio::test]
async fn lost_replies_change_no_units() {
    if backend() != Backend::Module {
        return;
    }
    let (server, rules) = (Server::start().await, Rules::new());
    // The call, and its three ends.
    for nth in 0..5 {
        let commands = Arc::new(AtomicUsize::new(0));
        let drops = move || {
            let commands = commands.clone();
            move |request: &str| {
                let found = request.matches("\nRL.").count();
                let before = commands.fetch_add(found, Ordering::Relaxed);
                (before..before + found).contains(&nth)
            }
        };
        let client = redis::Client::open(losing(server.port, drops).await).unwrap();
        let limiter = Limiter::with_options(client, patient()).unwrap();
        let (tenant, settled) = (format!("t{nth}"), AtomicUsize::new(0));
        rules.run(&limiter, &tenant, &settled).await;
        until_nothing_is_held(&server, &tenant, &rules).await;
        // Without a reply to the call, the units of plain rules are not known to be taken.
        let tpm = if nth == 0 { ESTIMATE } else { USED };
        assert_eq!(used(&server, &tenant).await, [USED, tpm], "{nth}");
    }
}

#[tokio::test]
async fn leases_and_reservations_outlive_their_ttl_while_the_work_lasts() {
    if backend() != Backend::Module {
        return;
    }
    let server = Server::start().await;
    server.freeze().await;
    let limiter = limiter(&server);
    // Both are renewed each second. A busy machine may be two seconds late.
    let (day, runs) = (Rule::fixed("day", 10, "1d").unwrap(), Rule::lease("runs", 1, "3s"));
    let runs = runs.unwrap();
    let items = [day.of("t").reserve(4).ttl("3s"), runs.of("t")];
    let admitted = limiter.admit(&items, None).await.unwrap();
    let renewals = async || (server.calls("rl.reserve").await, server.calls("rl.renew").await);
    for _ in 0..4 {
        server.advance(ms(2000)).await;
        let before = renewals().await;
        until("both are renewed", async || {
            let now = renewals().await;
            now.0 > before.0 && now.1 > before.1
        })
        .await;
        assert_eq!(limiter.peek(day.of("t").cost(0)).await.unwrap().remaining, 6);
        assert!(limiter.lease(runs.of("t")).await.is_err() && admitted.held());
    }
    admitted.finish().await;
    assert_eq!(limiter.peek(day.of("t").cost(0)).await.unwrap().remaining, 10);
    limiter.lease(runs.of("t")).await.unwrap().release().await;
}

fn denial(result: Result<impl Sized, Error>) -> Decision {
    match result {
        Err(Error::Denied(decision)) => *decision,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is not denied"),
    }
}

#[tokio::test]
async fn windows_quotas_and_policies_reserve_units() {
    let server = Server::start().await;
    let limiter = limiter(&server);
    let day = Rule::fixed("day", 10, "1d").unwrap();
    if backend() != Backend::Module {
        let error = limiter.reserve(day.of("t").cost(4)).await.unwrap_err();
        assert!(error.to_string().contains("needs the redis-throttle module"), "{error}");
        return;
    }
    server.run(&["RL.POLICY", "SET", "plan", "QUOTA", "10", "day"]).await;
    for rule in [
        day.clone(),
        Rule::quota("week", 10, QuotaUnit::Week).unwrap(),
        Rule::policy("plan").unwrap(),
        Rule::policy("none").unwrap().default(day.clone()).unwrap(),
    ] {
        let left = async || limiter.peek(rule.of("t").cost(0)).await.unwrap().remaining;
        let held = limiter.reserve(rule.of("t").cost(8)).await.unwrap();
        assert_eq!((left().await, held.held()), (2, true), "{rule:?}");
        let denied = denial(limiter.reserve(rule.of("t").cost(8)).await);
        assert_eq!((&*denied.rule, denied.remaining), (rule.name(), 2), "{rule:?}");
        held.commit(3).await.unwrap();
        assert!(matches!(held.commit(3).await, Err(Error::InvalidArgument { .. })));
        assert_eq!((left().await, held.held()), (7, false), "{rule:?}");
        let held = limiter.reserve(rule.of("t").cost(7)).await.unwrap();
        assert_eq!(left().await, 0, "{rule:?}");
        held.cancel().await;
        assert_eq!(left().await, 7, "{rule:?}");
    }
}
