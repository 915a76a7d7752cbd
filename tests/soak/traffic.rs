//! The calls of a soak: their forms, how they are sent, and their expected replies.

use redis::Value;
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::oracle::{
    AnyOracle, AnySubject, Banned, Fixed, Limits, Part, Quotas, Reply, Source as _, Verb, Wrote,
    act_all,
};

use crate::Counts;
use crate::fleet::Fleet;
use crate::held::{HOLDERS, Held};
use crate::key::{Key, Request, duration};
use crate::named::Named;
use crate::reserved::Booked;
use support::{Random, raw_error};

/// The number of keys for each algorithm.
const KEYS: usize = 4;

/// The maximum number of rules in a call.
const RULES_MAX: usize = 16;

/// The number of calls after which a key gets new limits, and may be deleted. A longer history
/// would make the models slow.
pub const CALLS_PER_KEY: u64 = 400;

/// The values of `rl.sliding-log-slots` between which a soak changes.
const SLOTS: [i128; 3] = [16, 256, 1_024];

/// A script that makes any call.
const CALL: &str = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))";

/// A call, and the reply that is expected.
pub struct Sent {
    pub words: Vec<String>,
    /// The expected reply; `None` if the server must refuse the call.
    pub expected: Option<Value>,
}

pub struct Traffic {
    keys: Vec<Key>,
    held: [Held; HOLDERS.len()],
    windows: Booked<Fixed>,
    quotas: Booked<Quotas>,
    named: Named,
    slots: i128,
}

impl Traffic {
    pub fn new(random: &mut Random) -> Self {
        let subjects = AnySubject::ALL.into_iter().flat_map(|subject| [subject; KEYS]);
        let keys = subjects.map(|subject| Key::new(random, subject)).collect();
        let held = HOLDERS.map(|holders| Held::new(random, holders));
        let [windows, quotas] =
            [Algorithm::FixedWindow, Algorithm::CalendarQuota].map(AnySubject::of);
        let windows = Booked::new(random, windows);
        let quotas = Booked::new(random, quotas);
        let named = Named::new(random);
        Self { keys, held, windows, quotas, named, slots: SLOTS[0] }
    }

    pub fn slots(&self) -> i128 {
        self.slots
    }

    pub fn change_slots(&mut self, random: &mut Random) -> i128 {
        self.slots = *random.pick(&SLOTS);
        self.slots
    }

    /// Returns the time span of one of the rules.
    pub fn some_span_us(&self, random: &mut Random) -> i128 {
        let key = random.pick(&self.keys);
        (key.subject.span_us)(random.pick(&key.rules))
    }

    /// Makes some calls at one instant: as a pipeline, in a transaction, or from scripts.
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
        self.named.retire(random, fleet);
        Ok(())
    }

    /// Draws a call and applies it to the models. Returns the call and its expected reply.
    fn draw(&mut self, random: &mut Random, now_us: i128, counts: &mut Counts) -> Sent {
        match random.below(13) {
            0 => self.draw_peek(random, now_us, counts),
            8 => {
                let at = random.below(self.held.len() as u64) as usize;
                self.held[at].draw(random, now_us, counts)
            }
            9 => self.windows.draw(random, now_us, counts),
            10 => self.quotas.draw(random, now_us, counts),
            11.. => self.named.draw(random, self.slots, now_us, counts),
            1..3 => self.draw_several(random, now_us, counts),
            _ if random.below(24) == 0 => self.draw_ban(random, now_us, counts),
            _ => self.draw_single(random, now_us, counts),
        }
    }

    /// Draws a ban of a key. A short one leaves more calls of the key to be decided.
    fn draw_ban(&mut self, random: &mut Random, now_us: i128, counts: &mut Counts) -> Sent {
        let index = random.below(self.keys.len() as u64) as usize;
        let key = &mut self.keys[index];
        let duration_us = match random.below(8) {
            0 => random.between(1_000, 600_000_000),
            _ => random.between(1_000, 2_000_000),
        };
        key.model = Box::new(Banned::new(now_us, duration_us, (key.subject.none)()));
        counts.add("keys banned", 1);
        let words = ["RL.BLOCK".to_owned(), key.name.clone(), duration(duration_us)];
        Sent { words: words.into(), expected: Some(Value::Okay) }
    }

    fn draw_peek(&self, random: &mut Random, now_us: i128, counts: &mut Counts) -> Sent {
        let key = random.pick(&self.keys);
        let request = key.draw_request(random, self.slots);
        let verb = deciding(key, random);
        let request = Request { verb, ..request };
        counts.add("calls of PEEK", 1);
        counts.add("calls of PEEK with PARTIAL", verb.is_partial().into());
        look(key, &request, now_us)
    }

    /// Draws a call on one key, in any form.
    fn draw_single(&mut self, random: &mut Random, now_us: i128, counts: &mut Counts) -> Sent {
        let slots = self.slots;
        let index = random.below(self.keys.len() as u64) as usize;
        let key = &mut self.keys[index];
        key.calls += 1;
        let request = key.draw_request(random, slots);
        let verb = (key.subject.verb)(Verb::draw(random));
        let request = Request { verb, ..request };
        let words = key.words(verb, &request);
        let done = key.model.act(verb, &request.limits, now_us, request.cost);
        counts.add("calls of BACKOFF", key.counts_delays().into());
        counts.add(
            match (verb, done.map(|(reply, wrote)| (reply.allowed, wrote))) {
                (_, None) => "calls of CHARGE refused",
                (Verb::Charge, Some((0, _))) => "calls of CHARGE in debt",
                (Verb::Charge, _) => "calls of CHARGE",
                (Verb::Refund, Some((_, Wrote::Deletion))) => "calls of REFUND to nothing",
                (Verb::Refund, _) => "calls of REFUND",
                (_, Some((0, Wrote::State))) => "repairs while denied",
                (_, Some((0, _))) if verb.leave().is_some() => "calls denied to leave units",
                (_, Some((1.., _))) if verb.leave().is_some() => "calls that left units",
                (Verb::Partly, Some((1.., _))) if request.cost > 0 => "calls granted in part",
                _ => "calls decided",
            },
            1,
        );
        Sent { words, expected: done.map(|(reply, _)| five(reply)) }
    }

    /// Draws a call with several rules, mostly with few.
    fn draw_several(&mut self, random: &mut Random, now_us: i128, counts: &mut Counts) -> Sent {
        let most = if random.below(8) == 0 { RULES_MAX } else { 4 };
        let mut left: Vec<_> = (0..self.keys.len()).collect();
        let chosen = (0..=random.below(most as u64))
            .map(|_| left.swap_remove(random.below(left.len() as u64) as usize));
        let chosen: Vec<_> = chosen.collect();
        let requests =
            chosen.iter().map(|at| self.keys[*at].draw_request(random, self.slots)).collect();
        if random.below(4) == 0 {
            counts.add("calls of PEEKALL", 1);
            return self.several("RL.PEEKALL", &chosen, requests, now_us).0;
        }
        let (sent, models) = self.several("RL.ALL", &chosen, requests, now_us);
        let allowed = matches!(&sent.expected, Some(Value::Array(all)) if all[0] != Value::Int(0));
        counts.add(if allowed { "calls of ALL allowed" } else { "calls of ALL denied" }, 1);
        for (at, model) in chosen.into_iter().zip(models) {
            self.keys[at].model = model;
            self.keys[at].calls += 1;
        }
        sent
    }

    /// Applies a call with several rules to the models. Returns the call and its expected reply.
    fn several(
        &self,
        command: &str,
        chosen: &[usize],
        requests: Vec<Request>,
        now_us: i128,
    ) -> (Sent, Vec<Box<dyn AnyOracle>>) {
        let keys = || chosen.iter().map(|at| &self.keys[*at]).zip(&requests);
        let parts: Vec<Part<'_>> =
            keys().map(|(key, request)| (&*key.model, request.limits, request.cost)).collect();
        let (together, models) = act_all(&parts, now_us);
        let pairs = keys().flat_map(|(key, request)| [key.name.clone(), key.rule(request)]);
        let words = [command.to_owned()].into_iter().chain(pairs).collect();
        let number = Value::Int(together.rule as i64);
        let rows = together.rows.iter().map(|row| five(*row));
        let fields = integers(together.reply()).into_iter().chain([number]).chain(rows);
        (Sent { words, expected: Some(Value::Array(fields.collect())) }, models)
    }

    /// Gives new limits to keys that have had their maximum of calls, and deletes half of them.
    fn retire(&mut self, random: &mut Random, fleet: &mut Fleet, counts: &mut Counts) {
        for key in self.keys.iter_mut().filter(|key| key.calls >= CALLS_PER_KEY) {
            // The other half keep their state under the new limits.
            if random.below(2) == 0 {
                fleet.client.integer(&format!("DEL {}", key.name));
                key.model = (key.subject.none)();
                counts.add("keys deleted", 1);
            }
            key.rules = [Limits::draw(random), Limits::draw(random)];
            key.calls = 0;
            counts.add("keys with new limits", 1);
        }
    }

    /// Sets the policies on the primary and resets their statistics.
    pub fn begin_statistics(&mut self, fleet: &mut Fleet) {
        self.named.begin(fleet);
    }

    /// Checks that the primary's statistics agree with the calls of its clients.
    pub fn check_statistics(&self, fleet: &mut Fleet, counts: &mut Counts) -> Result<(), String> {
        self.named.check(fleet, counts)
    }

    /// Checks that PEEK and PEEKALL return the same on the replica as on the primary, once the
    /// replica has received all writes.
    pub fn check_replica(&self, fleet: &mut Fleet, counts: &mut Counts) -> Result<(), String> {
        fleet.wait();
        let now_us = fleet.now_us();
        let mut sent: Vec<_> =
            self.keys.iter().map(|key| look(key, &key.full_request(self.slots), now_us)).collect();
        let places: Vec<_> = (0..self.keys.len()).collect();
        for chosen in places.chunks(RULES_MAX) {
            let requests =
                chosen.iter().map(|at| self.keys[*at].full_request(self.slots)).collect();
            sent.push(self.several("RL.PEEKALL", chosen, requests, now_us).0);
        }
        sent.extend(self.held.iter().map(|held| held.look(now_us)));
        sent.extend([self.windows.look(now_us), self.quotas.look(now_us)]);
        for sent in sent {
            let reply = fleet.reader.call(&sent.words);
            compare(&sent, &reply, now_us, counts)?;
            counts.add("calls on the replica", 1);
        }
        Ok(())
    }
}

/// Draws a verb that decides.
fn deciding(key: &Key, random: &mut Random) -> Verb {
    let verb = (key.subject.verb)(Verb::draw(random));
    if verb.decides() { verb } else { Verb::Decide }
}

/// Returns a peek at a key, which does not change the key's model.
fn look(key: &Key, request: &Request, now_us: i128) -> Sent {
    let reply = key.model.copy().act(request.verb, &request.limits, now_us, request.cost);
    Sent { words: key.look(request), expected: reply.map(|(reply, _)| five(reply)) }
}

fn integers(reply: Reply) -> [Value; 5] {
    let Reply { allowed, limit, remaining, retry_after_ms, reset_after_ms } = reply;
    [allowed, limit, remaining, retry_after_ms, reset_after_ms]
        .map(|number| Value::Int(number.try_into().expect("a number of 64 bits")))
}

/// Returns a reply as an array of five integers.
pub fn five(reply: Reply) -> Value {
    Value::Array(integers(reply).into())
}

fn scripted(words: Vec<String>) -> Vec<String> {
    let mut words = words.into_iter();
    let (command, key) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let start = ["EVAL", CALL, "1"].map(str::to_owned);
    start.into_iter().chain([key, command]).chain(words).collect()
}

/// Compares every number of a reply with the model's.
fn compare(sent: &Sent, reply: &Value, now_us: i128, counts: &mut Counts) -> Result<(), String> {
    counts.add("calls", 1);
    let refusals = ["ERR invalid cost: ", "invalid id: already committed"];
    let refused =
        || raw_error(reply).is_some_and(|error| refusals.iter().any(|text| error.contains(text)));
    if sent.expected.as_ref().map_or_else(refused, |expected| expected == reply) {
        return Ok(());
    }
    let (call, expected) = (sent.words.join(" "), &sent.expected);
    Err(format!("{call}\nat {now_us} us: {reply:?}\nexpected {expected:?}"))
}
