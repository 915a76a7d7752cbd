//! The fake server compared with a real server, on the same schedules.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Value;
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{
    Admission, Backend, Command, Connection, Decision, Dial, Lease, Limiter, Options, QuotaUnit,
    Reply, Rule,
};
use tokio::time::{Instant, advance};

use crate::limiter;
use crate::server::{Server, backend};

/// Returns the fields that must be equal on both servers. The source differs.
fn compared(decision: &Decision) -> (bool, u64, u64, Duration, Duration, String) {
    let Decision { allowed, limit, remaining, retry_after, reset_after, rule, .. } = decision;
    (*allowed, *limit, *remaining, *retry_after, *reset_after, rule.to_string())
}

fn span_after(step: usize) -> Duration {
    Duration::from_millis([1, 700, 1, 250, 1, 2500, 1, 1, 6000][step % 9])
}

async fn schedule(limiter: &Limiter, rule: &Rule, step: usize) -> Decision {
    let cost = [1, 2, 1, 3, 1, 0, 1, 5][step % 8];
    match step % 7 {
        3 => limiter.peek(rule.of("42").cost(cost)).await,
        5 => limiter.refund(rule.of("42").cost(cost.max(1))).await,
        6 => limiter.charge(rule.of("42").cost(cost.max(1))).await,
        _ => limiter.check(rule.of("42").cost(cost)).await,
    }
    .unwrap()
}

#[tokio::test]
async fn fake_server_decides_as_the_module_does() {
    let server = Server::start().await;
    let real = limiter(&server);
    let rules = [
        Rule::gcra("api", 6, 10, "60s").unwrap(),
        Rule::gcra("odd", 5, 7, "1s").unwrap(),
        Rule::token_bucket("tb", 5, 2, "1s").unwrap(),
        Rule::token_bucket("slow", 10, 3, "7s").unwrap(),
        Rule::leaky_bucket("lb", 4, 3, "1s").unwrap(),
        Rule::fixed("fx", 5, "10s").unwrap(),
        Rule::fixed("al", 5, "10s").unwrap().aligned().unwrap(),
        Rule::sliding("sl", 5, "10s").unwrap(),
        Rule::sliding_log("sg", 5, "10s").unwrap(),
    ];
    for rule in rules {
        // The fake goes first: a paused clock advances by itself while a task waits for a socket.
        tokio::time::pause();
        let imitated = FakeServer::new().limiter();
        let mut imitations = Vec::new();
        for step in 0..120 {
            imitations.push(schedule(&imitated, &rule, step).await);
            tokio::time::advance(span_after(step)).await;
        }
        tokio::time::resume();
        server.freeze().await;
        for (step, imitation) in imitations.iter().enumerate() {
            let decision = schedule(&real, &rule, step).await;
            assert_eq!(compared(imitation), compared(&decision), "{rule:?}, {step}");
            server.advance(span_after(step)).await;
        }
    }
}

/// The start of a fake's clock.
const FAKE_START_US: i64 = 1_704_067_200_000_000;

/// A command received by a fake, and its reply; `None` if its caller did not wait for it.
struct Exchange {
    at: Duration,
    words: Vec<String>,
    reply: Option<Result<Value, String>>,
}

/// A connection that records the exchanges of a fake.
#[derive(Clone)]
struct Recorder {
    fake: FakeServer,
    began: Instant,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
}

impl Connection for Recorder {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        Box::pin(async move {
            // The fake runs the command at once, so the exchanges are in its order.
            let index = {
                let mut exchanges = self.exchanges.lock().unwrap();
                let words = command.words().iter().map(|word| word.to_string()).collect();
                exchanges.push(Exchange { at: self.began.elapsed(), words, reply: None });
                exchanges.len() - 1
            };
            let reply = self.fake.send(command).await;
            let recorded = reply.clone().map_err(|error| error.to_string());
            if let Some(exchange) = self.exchanges.lock().unwrap().get_mut(index) {
                exchange.reply = Some(recorded);
            }
            reply
        })
    }
}

/// Returns a dialler that opens this connection each time.
fn over(recorder: &Recorder) -> impl Dial {
    let recorder = recorder.clone();
    move || std::future::ready(Ok(recorder.clone()))
}

/// Splitmix64: the same seed gives the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap() % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

fn every_kind_of_rule() -> Vec<Rule> {
    let gcra = |name| Rule::gcra(name, 6, 10, "60s").unwrap();
    let quota = |name, unit| Rule::quota(name, 3, unit).unwrap();
    vec![
        gcra("api"),
        Rule::token_bucket("tb", 10, 3, "7s").unwrap(),
        Rule::leaky_bucket("lb", 4, 3, "1s").unwrap(),
        Rule::fixed("fx", 5, "10s").unwrap(),
        Rule::fixed("al", 5, "1m").unwrap().aligned().unwrap(),
        Rule::sliding("sl", 9, "10s").unwrap(),
        Rule::sliding_log("sg", 5, "10s").unwrap(),
        Rule::backoff("bo", 2, "1s", "15m", "1d").unwrap(),
        quota("day", QuotaUnit::Day).zone("Europe/Berlin").unwrap(),
        quota("month", QuotaUnit::Month).start(2).unwrap(),
        Rule::policy("default").unwrap().default(gcra("of-default")).unwrap(),
        Rule::policy("none").unwrap(),
        // The same key under three algorithms.
        Rule::fixed("both", 5, "30d").unwrap(),
        Rule::gcra("both", 5, 1, "30d").unwrap(),
        Rule::policy("both").unwrap().default(Rule::sliding("x", 5, "30d").unwrap()).unwrap(),
    ]
}

/// Settles an admission, or leaves it unsettled, and ends it.
async fn end_at_random(admitted: Admission, rules: [&Rule; 2], random: &mut Random) {
    for rule in rules {
        if random.below(2) == 0 {
            admitted.settle(rule, random.pick(&[0, 1, 2, 9])).unwrap();
        }
    }
    admitted.finish().await;
}

/// Runs calls of every kind. The recorder stores their replies.
async fn run_at_random(recorder: &Recorder, random: &mut Random) {
    let limiter = Limiter::new(over(recorder));
    let options = Options::default().prefetch(3);
    let prefetching = Limiter::with_options(over(recorder), options).unwrap();
    let rules = every_kind_of_rule();
    let jobs = Rule::lease("jobs", 2, "10s").unwrap();
    let mut leases: Vec<Lease> = Vec::new();
    let (held, by_default) = (Rule::fixed("held", 9, "10s").unwrap(), Rule::policy("use").unwrap());
    let by_default = by_default.default(Rule::quota("x", 9, QuotaUnit::Day).unwrap()).unwrap();
    let mut admissions: Vec<Admission> = Vec::new();
    for _ in 0..600 {
        let rule = &rules[random.below(rules.len())];
        let cost = random.pick(&[1, 1, 1, 2, 3, 0, 7, 1_000_000_000_000]);
        let cost = if rule.takes_cost() { cost } else { 1 };
        let item = rule.of(random.pick(&["a", "b"])).cost(cost);
        let leaving = if rule.takes_cost() { item.leave(random.pick(&[0, 1, 3])) } else { item };
        let part = if rule.takes_cost() && cost > 0 { leaving.partial() } else { leaving };
        let lease = jobs.of("a").id(random.pick(&["i", "j", "k", "l"]));
        match random.below(22) {
            0..=3 => drop(limiter.check(item).await),
            4 => drop(limiter.check(part).await),
            5 => drop(limiter.peek(leaving).await),
            6 => drop(limiter.charge(item).await),
            7 | 8 => drop(limiter.refund(item).await),
            9 => drop(limiter.forget(item).await),
            10 => drop(prefetching.check(item.cost(1)).await),
            11 | 12 => {
                let others = [rules[random.below(4)].of("c"), rules[4 + random.below(8)].of("c")];
                let items = [item, others[0], others[1]];
                drop(limiter.check_all(&items, None).await);
            }
            13 => leases.extend(limiter.lease(lease).await),
            14 => leases.extend(
                limiter
                    .check_with_leases(&[item, lease], None)
                    .await
                    .map_or(vec![], |it| it.leases),
            ),
            15 => drop(limiter.block(item, random.pick(&["1s", "10s", "61s"])).await),
            16 => drop(limiter.block(jobs.of("a"), "5s").await),
            17 => {
                let items =
                    [leaving, rules[random.below(4)].of("c"), held.of("a").reserve(1).id("p")];
                drop(limiter.peek_all(&items, None).await);
            }
            18 => {
                let held = held.of("a").reserve(random.pick(&[0, 1, 2, 4])).ttl("7s");
                let other = by_default.of("a").reserve(random.pick(&[1, 3])).leave_percent(10);
                let items = [item, held, other, jobs.of("a")];
                admissions.extend(limiter.admit(&items, None).await);
            }
            19 if !admissions.is_empty() => {
                let admitted = admissions.swap_remove(random.below(admissions.len()));
                end_at_random(admitted, [&held, &by_default], random).await;
            }
            _ if leases.is_empty() => {}
            _ if random.below(2) == 0 => drop(leases[0].renew().await),
            _ => leases.swap_remove(random.below(leases.len())).release().await,
        }
        let ms = random.pick(&[0, 0, 0, 1, 250, 999, 1_000, 4_000, 10_000, 61_000, 30_000_000]);
        advance(Duration::from_millis(ms) + Duration::from_micros(random.pick(&[0, 0, 1]))).await;
    }
}

#[tokio::test]
async fn fake_server_sends_the_replies_of_the_module_on_random_schedules() {
    if backend() != Backend::Module {
        return;
    }
    let server = Server::start().await;
    let mut connection = server.connect().await;
    let mut commands = std::collections::BTreeMap::new();
    for seed in 0..5 {
        tokio::time::pause();
        let recorder =
            Recorder { fake: FakeServer::new(), began: Instant::now(), exchanges: Arc::default() };
        run_at_random(&recorder, &mut Random(seed)).await;
        tokio::time::resume();
        let exchanges = std::mem::take(&mut *recorder.exchanges.lock().unwrap());
        server.run(&["FLUSHALL"]).await;
        for (at, exchange) in exchanges.iter().enumerate() {
            let now_us = FAKE_START_US + i64::try_from(exchange.at.as_micros()).unwrap();
            server.freeze_at(now_us).await;
            let mut command = redis::cmd(&exchange.words[0]);
            command.arg(&exchange.words[1..]);
            let reply: Result<Value, _> = command.query_async(&mut connection).await;
            let reply = reply.map_err(|error| error.to_string());
            let context = (seed, at, exchange.at, &exchange.words);
            // On the server, keys expire by the real clock, so DEL may find a key that has expired
            // in the fake.
            if let Some(recorded) = exchange.reply.as_ref().filter(|_| exchange.words[0] != "DEL") {
                assert_eq!(*recorded, reply, "{context:?}");
            }
            *commands.entry(exchange.words[0].clone()).or_insert(0) += 1;
        }
    }
    // The comparison covers every command that a limiter sends, each many times.
    assert!(commands.len() == 22 && commands.values().all(|count| *count > 9), "{commands:?}");
}
