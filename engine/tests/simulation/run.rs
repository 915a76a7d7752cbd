//! One run: its events, and the checks after each call.

use std::collections::BTreeMap;
use std::fmt;

use redis_throttle_engine::oracle::{
    self, CLOCK_MAX_US, Key, Limits, Reply, Share, Source, Step, Subject, Verb, Wrote, act,
    check_retry, div_ceil,
};

use crate::cluster::{Cluster, Node};
use crate::random::Random;

/// The start of a run, by a correct clock.
const START_US: i128 = 1_800_000_000_000_000;

/// The number of events in a run.
const EVENTS: usize = 100;

/// The number of times that each kind of event happened.
#[derive(Default)]
pub struct Counts(BTreeMap<&'static str, u64>);

/// A call that was allowed.
struct Admission {
    number: u64,
    at_us: i128,
    cost: i128,
    /// The number of additional bursts that earlier changes of the clock had made possible.
    bursts: i128,
    /// Whether the server that had recorded it was lost.
    is_lost: bool,
}

pub struct Run<S: Subject> {
    random: Random,
    /// Usually one rule. In some runs two rules share the key. The documented bounds hold for one
    /// rule only, so such a run checks no bounds, and only compares replies with the model.
    rules: Vec<Limits>,
    cluster: Cluster<S::Model>,
    /// The true time, as a correct clock shows it.
    time_us: i128,
    admissions: Vec<Admission>,
    bursts: i128,
    was_set_back: bool,
    /// Whether the run also has charges and refunds. The documented bounds do not cover them, so
    /// such a run checks no bounds, and only compares replies with the model.
    settles: bool,
    pub counts: Counts,
}

fn clock<M>(node: &Node<M>, time_us: i128) -> i128 {
    (time_us + node.clock_offset_us).clamp(0, CLOCK_MAX_US)
}

impl<S: Subject> Run<S> {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // The first numbers of neighbouring seeds are similar, so they are skipped.
        for _ in 0..16 {
            random.number();
        }
        let settles = random.below(3) == 0;
        let rules = if random.below(4) == 0 { 2 } else { 1 };
        let rules = (0..rules).map(|_| Limits::draw(&mut random)).collect();
        Self {
            random,
            rules,
            cluster: Cluster::default(),
            time_us: START_US,
            admissions: Vec::new(),
            bursts: 0,
            was_set_back: false,
            settles,
            counts: Counts::default(),
        }
    }

    pub fn play(&mut self) -> Result<(), String> {
        self.counts.hit("runs");
        for _ in 0..EVENTS {
            self.pass_time();
            match self.random.below(60) {
                0..36 => self.call()?,
                36..44 => self.replicate(),
                44..46 => self.sync_a_disk(),
                46..50 => self.set_a_clock()?,
                50 => self.restart_primary(),
                51 => self.restart_replica(),
                52 => self.promote(),
                53 => self.cut(),
                54 => self.cluster.synchronise(),
                55..58 => self.peek_on_the_replica()?,
                _ => self.expire()?,
            }
        }
        Ok(())
    }

    /// Moves the time. Calls come in bursts: usually no time passes between two events.
    fn pass_time(&mut self) {
        if self.random.below(3) == 0 {
            let span_us = S::span_us(&self.rules[0]);
            self.time_us += Step::draw_good(&mut self.random).us(span_us).max(0);
        }
    }

    fn now(&self) -> i128 {
        clock(&self.cluster.primary, self.time_us)
    }

    /// Makes a call on the primary. Compares the reply with the model's, and checks every bound.
    fn call(&mut self) -> Result<(), String> {
        self.expire()?;
        let rule = self.random.below(self.rules.len() as u64) as usize;
        let limits = self.rules[rule];
        let cost = S::cost(Share::draw(&mut self.random).of(&limits));
        let verb = if self.settles { Verb::draw(&mut self.random) } else { Verb::Decide };
        let verb = S::verb(verb);
        let now = self.now();
        let copy = &self.cluster.primary.memory;
        let mut model = copy.model.clone();
        let expected = act(&mut model, verb, &limits, now, cost);
        let done = copy.key.act(verb, &S::rule(&limits), now, cost).ok();
        let call_text = format!("{verb:?} {cost} at {now} of {limits:?}");
        let actual = done.as_ref().map(|(reply, write)| (*reply, Wrote::of(write.as_ref())));
        if actual != expected {
            return Err(format!("{call_text}: {actual:?}; expected {expected:?}"));
        }
        let Some((reply, write)) = done else {
            self.counts.hit("charges refused");
            return Ok(());
        };
        let decides = verb.decides();
        let takes = decides && reply.allowed > 0 && cost > 0;
        self.counts.hit(match verb {
            Verb::Charge if reply.allowed > 0 => "charged",
            Verb::Charge => "charged into debt",
            Verb::Refund => "refunded",
            _ if reply.allowed == 0 => "denied",
            _ if verb.is_partial() => "granted in part",
            Verb::Leaving(_) => "allowed, with units left",
            _ => "allowed",
        });
        if let Some(write) = write {
            if !takes && decides {
                self.counts.hit("repairs while denied");
            }
            if actual.is_some_and(|(_, wrote)| wrote == Wrote::Deletion) {
                self.counts.hit("keys refunded to nothing");
            }
            let knows = copy.knows + u64::from(takes);
            // Numbers continue from the last allowed call, even if that was lost with a server.
            let number = self.admissions.last().map_or(0, |last| last.number) + 1;
            let knows = if takes { number } else { knows };
            self.cluster.commit(&write, model, knows);
            if takes {
                let (at_us, bursts) = (self.time_us, self.bursts);
                let admission = Admission { number, at_us, cost, bursts, is_lost: false };
                self.admissions.push(admission);
            }
        }
        let key = &self.cluster.primary.memory.key;
        check_retry(key, verb, &S::rule(&limits), now, cost, reply)
            .and_then(|()| self.check_wait(&limits, cost, reply))
            .and_then(|()| if takes { self.check_admissions() } else { Ok(()) })
            .map_err(|said| format!("{call_text}: {reply:?}: {said}"))
    }

    /// Checks that a wait is longer than under a steady clock only if a clock was set back, and by
    /// at most one span.
    fn check_wait(&mut self, limits: &Limits, cost: i128, reply: Reply) -> Result<(), String> {
        if self.settles || self.rules.len() > 1 || cost > limits.capacity {
            return Ok(());
        }
        let longest_us = S::longest_wait_us(limits, cost);
        let added_us = if self.was_set_back { S::span_us(limits) } else { 0 };
        let most_ms = div_ceil(longest_us + added_us, 1_000);
        if reply.retry_after_ms > div_ceil(longest_us, 1_000) {
            self.counts.hit("waits prolonged by a set clock");
        }
        (reply.retry_after_ms <= most_ms)
            .then_some(())
            .ok_or_else(|| format!("a wait of more than {most_ms} ms"))
    }

    /// Checks every stretch of true time up to the last call. Such a stretch allows no more than
    /// under a correct clock, plus one burst for each time the clock was set, plus the calls that
    /// the server never received.
    fn check_admissions(&mut self) -> Result<(), String> {
        let [limits] = self.rules[..] else { return Ok(()) };
        if self.settles {
            return Ok(());
        }
        let Some(last) = self.admissions.last() else { return Ok(()) };
        let (mut sum, mut lost) = (0, 0);
        let (mut beyond_steps, mut beyond_good) = (false, false);
        for first in self.admissions.iter().rev() {
            sum += first.cost;
            lost += if first.is_lost { first.cost } else { 0 };
            let Some(good) = S::most(&limits, last.at_us - first.at_us) else { break };
            let with_bursts = good + (last.bursts - first.bursts) * limits.capacity;
            beyond_good |= sum > good;
            beyond_steps |= sum > with_bursts;
            if sum > with_bursts + lost {
                let from = first.at_us;
                return Err(format!(
                    "{sum} units since {from}, more than {with_bursts} and {lost} lost"
                ));
            }
        }
        if beyond_steps {
            self.counts.hit("over-admitted by lost calls");
        } else if beyond_good {
            self.counts.hit("over-admitted by set clocks");
        }
        Ok(())
    }

    fn replicate(&mut self) {
        let writes = self.random.between(1, 4) as usize;
        let arrived = self.cluster.replicate(writes);
        self.counts.add_to("writes replicated", arrived as u64);
    }

    fn sync_a_disk(&mut self) {
        let primary = self.random.below(2) == 0;
        let Cluster { primary: first, replica: second, .. } = &mut self.cluster;
        let node = if primary { first } else { second };
        node.disk = node.memory.clone();
        self.counts.hit("disks synced");
    }

    /// Sets the clock of a server. For the primary, checks the waits under the new time at once.
    fn set_a_clock(&mut self) -> Result<(), String> {
        let step_us = Step::draw_set(&mut self.random).us(S::span_us(&self.rules[0]));
        if self.random.below(4) == 0 {
            self.cluster.replica.clock_offset_us += step_us;
            self.counts.hit("clocks set on a replica");
            return Ok(());
        }
        let before = self.now();
        self.cluster.primary.clock_offset_us += step_us;
        self.clock_has_moved(before);
        let [limits] = self.rules[..] else { return Ok(()) };
        let copy = &self.cluster.primary.memory;
        let key = if copy.is_expired(self.now()) { Key::default() } else { copy.key.clone() };
        for cost in [1, limits.capacity].map(S::cost) {
            let reply = key.peek(&S::rule(&limits), self.now(), cost);
            self.check_wait(&limits, cost, reply)
                .map_err(|said| format!("{reply:?} when set from {before} {limits:?}: {said}"))?;
        }
        Ok(())
    }

    /// Records a jump of the deciding clock from `before`: the clock was set, or a server with
    /// another clock took over.
    fn clock_has_moved(&mut self, before: i128) {
        let now = self.now();
        self.was_set_back |= now < before;
        if now != before {
            self.bursts += S::bursts(&self.rules[0], now > before);
        }
        match now - before {
            0 => {}
            1.. => self.counts.hit("clocks set forward"),
            _ => self.counts.hit("clocks set back"),
        }
    }

    fn restart_primary(&mut self) {
        self.cluster.restart_primary();
        self.counts.hit("restarts of a primary");
        self.forget_what_is_not_known();
    }

    fn restart_replica(&mut self) {
        self.cluster.restart_replica();
        self.counts.hit("restarts of a replica");
    }

    fn cut(&mut self) {
        self.cluster.cut();
        self.counts.hit("links cut");
    }

    fn promote(&mut self) {
        let before = self.now();
        self.cluster.promote();
        self.counts.hit("promotions");
        self.clock_has_moved(before);
        self.forget_what_is_not_known();
    }

    /// Marks the calls as lost that the copy in service does not include.
    fn forget_what_is_not_known(&mut self) {
        let knows = self.cluster.primary.memory.knows;
        for admission in self.admissions.iter_mut().filter(|one| one.number > knows) {
            if !std::mem::replace(&mut admission.is_lost, true) {
                self.counts.hit("allowed calls lost");
            }
        }
    }

    /// Checks that `RL.PEEK` on the replica replies from its own copy and clock.
    fn peek_on_the_replica(&mut self) -> Result<(), String> {
        let rule = self.random.below(self.rules.len() as u64) as usize;
        let limits = self.rules[rule];
        let cost = S::cost(Share::draw(&mut self.random).of(&limits));
        let now = clock(&self.cluster.replica, self.time_us);
        let copy = &self.cluster.replica.memory;
        let none = (Key::default(), S::Model::default());
        let (key, model) =
            if copy.is_expired(now) { &none } else { &(copy.key.clone(), copy.model.clone()) };
        let expected = oracle::peek(model, &limits, now, cost);
        let reply = key.peek(&S::rule(&limits), now, cost);
        self.counts.hit("looks at a replica");
        (reply == expected).then_some(()).ok_or_else(|| {
            format!("replica, cost {cost} at {now} of {limits:?}: {reply:?}, not {expected:?}")
        })
    }

    /// Deletes an expired key as the server does, and checks that it no longer counts.
    fn expire(&mut self) -> Result<(), String> {
        let now = self.now();
        let copy = &self.cluster.primary.memory;
        if !copy.is_expired(now) {
            return Ok(());
        }
        if let [limits] = self.rules[..] {
            let reply = copy.key.peek(&S::rule(&limits), now, 0);
            if reply.reset_after_ms != 0 || reply.remaining != reply.limit {
                return Err(format!("expired at {now} under {limits:?}, with {reply:?}"));
            }
        }
        self.cluster.delete();
        self.counts.hit("keys expired");
        Ok(())
    }
}

/// The events that must happen in a simulation for its result to mean something.
const MUST_HAPPEN: [&str; 20] = [
    "allowed",
    "allowed calls lost",
    "charged",
    "charged into debt",
    "clocks set back",
    "clocks set forward",
    "clocks set on a replica",
    "denied",
    "disks synced",
    "keys expired",
    "keys refunded to nothing",
    "links cut",
    "looks at a replica",
    "over-admitted by lost calls",
    "over-admitted by set clocks",
    "promotions",
    "refunded",
    "repairs while denied",
    "restarts of a primary",
    "waits prolonged by a set clock",
];

impl Counts {
    fn hit(&mut self, name: &'static str) {
        self.add_to(name, 1);
    }

    fn add_to(&mut self, name: &'static str, number: u64) {
        *self.0.entry(name).or_default() += number;
    }

    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(name, number)| self.add_to(name, *number));
    }

    /// Fails if one of the events in [`MUST_HAPPEN`] never happened. Checks nothing after fewer
    /// than 500 runs.
    pub fn check_that_all_happened(&self) {
        if self.0.get("runs").is_some_and(|runs| *runs >= 500) {
            for name in MUST_HAPPEN {
                assert!(self.0.contains_key(name), "never: {name}");
            }
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, number)| write!(out, "\n  {name:<30} {number:>9}"))
    }
}
