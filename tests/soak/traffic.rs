//! The calls of a soak: which there are, how they are sent, and what has to be answered.

use redis::Value;
use redis_throttle::limiter::oracle::{
    self, Answer, CellRate, Fixed, Leaky, Leases, Limits, Log, Oracle, Share, Sliding, Source as _,
    Subject, Token,
};

use crate::Counts;
use crate::fleet::Fleet;
use crate::support::algorithms::{FIXED, GCRA, LEAKYBUCKET, SLIDING, SLIDINGLOG, TOKENBUCKET};
use crate::support::{Algorithm, Random, integers};

/// Keys for each algorithm.
const KEYS: usize = 4;

/// A key is deleted and called by other rules after so many calls, or the models get slow.
const CALLS_PER_KEY: u64 = 400;

/// The settings of `rl.sliding-log-slots` that a soak goes through.
const SLOTS: [i128; 3] = [16, 256, 1_024];

/// A script that makes any call.
const CALL: &str = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))";

/// Any of the naive models.
trait Model {
    /// What a call must answer, and whether it repairs.
    fn call(&mut self, limits: &Limits, now: i128, cost: i128) -> (Answer, bool);
    fn peek(&self, limits: &Limits, now: i128, cost: i128) -> Answer;
}

impl<O: Oracle> Model for O {
    fn call(&mut self, limits: &Limits, now: i128, cost: i128) -> (Answer, bool) {
        let repairs = cost > 0 && self.clone().repair(limits, now);
        (oracle::call(self, limits, now, cost).0, repairs)
    }

    fn peek(&self, limits: &Limits, now: i128, cost: i128) -> Answer {
        oracle::peek(self, limits, now, cost)
    }
}

/// One key, the two rules that it is called by, and what it is known to hold.
struct Key {
    name: String,
    algorithm: Algorithm,
    span_us: fn(&Limits) -> i128,
    none: fn() -> Box<dyn Model>,
    rules: [Limits; 2],
    model: Box<dyn Model>,
    calls: u64,
}

impl Key {
    fn new<S: Subject<Model: 'static>>(random: &mut Random, algorithm: Algorithm) -> Self {
        let none: fn() -> Box<dyn Model> = || Box::new(S::Model::default());
        Self {
            name: format!("{}:{}", algorithm.name, random.next()),
            algorithm,
            span_us: S::span_us,
            none,
            rules: [Limits::draw(random), Limits::draw(random)],
            model: none(),
            calls: 0,
        }
    }

    /// The words of a call, PEEK or not.
    fn words(&self, limits: &Limits, cost: i128, peek: bool) -> Vec<String> {
        let Algorithm { name, command, has_rate } = self.algorithm;
        let start = if peek { ["RL.PEEK", &self.name, name] } else { [command, &self.name, ""] };
        let rate = if has_rate { limits.rate.to_string() } else { String::new() };
        let us = limits.period_us;
        let period = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
        let capacity = limits.capacity.to_string();
        let cost = if cost == 1 { String::new() } else { format!("COST {cost}") };
        let aligned = if name == "FIXED" && limits.aligned { "ALIGNED" } else { "" };
        let words = [&start.join(" "), &capacity, &rate, &period, &cost, aligned].join(" ");
        words.split_whitespace().map(str::to_owned).collect()
    }
}

/// A call that is on its way.
struct Sent {
    words: Vec<String>,
    expected: Expected,
}

/// What has to be answered.
enum Expected {
    Five(Answer),
    /// By who renews or releases a lease.
    Live(bool),
}

/// A key of leases, and who is known to hold one.
struct Held {
    name: String,
    leases: Leases,
    /// How many different holders ask.
    holders: u64,
}

/// The sets of holders: small ones, and one that no compact form has room for.
const HOLDERS: [u64; 3] = [4, 30, 400];

impl Held {
    fn new(random: &mut Random, holders: u64) -> Self {
        Self { name: format!("LEASE:{}", random.next()), leases: Leases::default(), holders }
    }

    /// A call, and what it must answer; the list has made it already.
    fn draw(&mut self, random: &mut Random, now_us: i128, counts: &mut Counts) -> Sent {
        let id = format!("h{}", random.below(self.holders));
        let most = i128::from(self.holders);
        let limit = random.between(1, most);
        let ttl_us = match random.below(3) {
            0 => random.between(1_000, 5_000_000),
            1 => random.between(1_000_000, 600_000_000),
            _ => random.between(1_000, 366 * oracle::DAY_US),
        };
        let ttl = format!("{}.{:06}", ttl_us / 1_000_000, ttl_us % 1_000_000);
        let (name, limit_text) = (self.name.as_str(), limit.to_string());
        let (words, expected) = match random.below(8) {
            0 => {
                let live = self.leases.release(id.as_bytes(), now_us);
                (vec!["RL.RELEASE", name, &id], Expected::Live(live))
            }
            1 => {
                let live = self.leases.renew(id.as_bytes(), ttl_us, now_us);
                (vec!["RL.RENEW", name, &id, &ttl], Expected::Live(live))
            }
            2 => {
                let answer = self.leases.clone().lease(id.as_bytes(), limit, ttl_us, now_us);
                let words = vec!["RL.PEEK", name, "LEASE", &id, &limit_text, &ttl];
                (words, Expected::Five(answer))
            }
            _ => {
                let answer = self.leases.lease(id.as_bytes(), limit, ttl_us, now_us);
                (vec!["RL.LEASE", name, &id, &limit_text, &ttl], Expected::Five(answer))
            }
        };
        counts.add("calls about leases", 1);
        Sent { words: words.into_iter().map(str::to_owned).collect(), expected }
    }
}

pub struct Traffic {
    keys: Vec<Key>,
    held: Vec<Held>,
    slots: i128,
}

impl Traffic {
    pub fn new(random: &mut Random) -> Self {
        let mut keys = Vec::new();
        for _ in 0..KEYS {
            keys.push(Key::new::<Fixed>(random, FIXED));
            keys.push(Key::new::<Sliding>(random, SLIDING));
            keys.push(Key::new::<Log>(random, SLIDINGLOG));
            keys.push(Key::new::<Token>(random, TOKENBUCKET));
            keys.push(Key::new::<Leaky>(random, LEAKYBUCKET));
            keys.push(Key::new::<CellRate>(random, GCRA));
        }
        let held = HOLDERS.map(|holders| Held::new(random, holders)).into();
        Self { keys, held, slots: SLOTS[0] }
    }

    pub fn slots(&self) -> i128 {
        self.slots
    }

    pub fn change_slots(&mut self, random: &mut Random) -> i128 {
        self.slots = *random.pick(&SLOTS);
        self.slots
    }

    /// The time that one of the rules is about.
    pub fn some_span_us(&self, random: &mut Random) -> i128 {
        let key = random.pick(&self.keys);
        (key.span_us)(random.pick(&key.rules))
    }

    /// Some calls at one time, in one of the ways that clients make them.
    pub fn batch(
        &mut self,
        random: &mut Random,
        fleet: &mut Fleet,
        counts: &mut Counts,
    ) -> Result<(), String> {
        let calls = random.between(1, 12);
        let sent: Vec<_> = (0..calls).map(|_| self.draw(random, fleet.now_us(), counts)).collect();
        let words = sent.iter().map(|call| call.words.clone());
        let replies = match random.below(4) {
            0 => {
                counts.add("calls in MULTI", sent.len() as u64);
                let edge = |word: &str| vec![word.to_owned()];
                let all: Vec<_> =
                    [edge("MULTI")].into_iter().chain(words).chain([edge("EXEC")]).collect();
                match fleet.client.pipeline(&all).pop() {
                    Some(Value::Array(replies)) => replies,
                    other => return Err(format!("EXEC: {other:?}")),
                }
            }
            1 => {
                counts.add("calls in EVAL", sent.len() as u64);
                fleet.client.pipeline(&words.map(scripted).collect::<Vec<_>>())
            }
            _ => fleet.client.pipeline(&words.collect::<Vec<_>>()),
        };
        for (call, reply) in sent.iter().zip(&replies) {
            compare(call, reply, fleet.now_us(), counts)?;
        }
        self.retire(random, fleet, counts);
        Ok(())
    }

    /// A call, and what it must answer; the model has made it already.
    fn draw(&mut self, random: &mut Random, now_us: i128, counts: &mut Counts) -> Sent {
        if random.below(8) == 0 {
            let index = random.below(self.held.len() as u64) as usize;
            return self.held[index].draw(random, now_us, counts);
        }
        let slots = self.slots;
        let index = random.below(self.keys.len() as u64) as usize;
        let key = &mut self.keys[index];
        key.calls += 1;
        let limits = Limits { slots, ..key.rules[usize::from(random.below(8) == 0)] };
        let cost = Share::draw(random).of(&limits);
        let peek = random.below(8) == 0;
        let words = key.words(&limits, cost, peek);
        let expected = if peek {
            counts.add("calls of PEEK", 1);
            key.model.peek(&limits, now_us, cost)
        } else {
            let (expected, repairs) = key.model.call(&limits, now_us, cost);
            counts.add("repairs", repairs.into());
            expected
        };
        Sent { words, expected: Expected::Five(expected) }
    }

    /// Deletes keys that have been called often enough, and lets others take their place.
    fn retire(&mut self, random: &mut Random, fleet: &mut Fleet, counts: &mut Counts) {
        for key in self.keys.iter_mut().filter(|key| key.calls >= CALLS_PER_KEY) {
            // Half of them go on under other limits.
            if random.below(2) == 0 {
                fleet.client.integer(&format!("DEL {}", key.name));
                key.model = (key.none)();
                counts.add("keys deleted", 1);
            }
            key.rules = [Limits::draw(random), Limits::draw(random)];
            key.calls = 0;
            counts.add("keys with new limits", 1);
        }
    }

    /// Once the replica has received everything, PEEK answers there as on the primary.
    pub fn check_replica(&self, fleet: &mut Fleet, counts: &mut Counts) -> Result<(), String> {
        fleet.wait();
        for key in &self.keys {
            let limits = Limits { slots: self.slots, ..key.rules[0] };
            let words = key.words(&limits, limits.capacity, true);
            let expected = key.model.peek(&limits, fleet.now_us(), limits.capacity);
            let reply = fleet.reader.call(&words);
            let expected = Expected::Five(expected);
            compare(&Sent { words, expected }, &reply, fleet.now_us(), counts)?;
            counts.add("calls of PEEK on the replica", 1);
        }
        for held in &self.held {
            let expected = held.leases.clone().lease(b"new", 1, 1_000_000, fleet.now_us());
            let words: Vec<String> =
                ["RL.PEEK", &held.name, "LEASE", "new", "1", "1"].map(str::to_owned).into();
            let reply = fleet.reader.call(&words);
            let expected = Expected::Five(expected);
            compare(&Sent { words, expected }, &reply, fleet.now_us(), counts)?;
            counts.add("calls of PEEK on the replica", 1);
        }
        Ok(())
    }
}

fn scripted(words: Vec<String>) -> Vec<String> {
    let mut words = words.into_iter();
    let (command, key) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let start = ["EVAL", CALL, "1"].map(str::to_owned);
    start.into_iter().chain([key, command]).chain(words).collect()
}

/// All five integers have to be the model's.
fn compare(sent: &Sent, reply: &Value, now_us: i128, counts: &mut Counts) -> Result<(), String> {
    let answer = match sent.expected {
        Expected::Five(answer) => answer,
        Expected::Live(live) => {
            counts.add("calls", 1);
            let is_right = *reply == Value::Int(live.into());
            let call = sent.words.join(" ");
            let error = format!("{call}\nat {now_us} us: {reply:?}\nexpected {live}");
            return if is_right { Ok(()) } else { Err(error) };
        }
    };
    let Answer { allowed, limit, remaining, retry_after_ms, reset_after_ms } = answer;
    let expected = [allowed, limit, remaining, retry_after_ms, reset_after_ms];
    counts.add("calls", 1);
    counts.add(if allowed == 1 { "calls allowed" } else { "calls denied" }, 1);
    if integers(reply).map(|reply| reply.map(i128::from)) == Some(expected) {
        return Ok(());
    }
    let call = sent.words.join(" ");
    Err(format!("{call}\nat {now_us} us: {reply:?}\nexpected {expected:?}"))
}
