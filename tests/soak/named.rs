//! Keys of policies in a soak, with models of their state and statistics.
//!
//! Half of the keys have their rule from the `DEFAULT` of each call, and half from a policy in
//! shadow mode. No other client calls these keys, so the models know the state, whether the key
//! exists, and the counts of each policy.

use std::collections::BTreeMap;

use redis::Value;
use redis_throttle_engine::bounds::Leave;
use redis_throttle_engine::oracle::{AnySubject, Limits, Share, Verb, Wrote};

use crate::Counts;
use crate::fleet::Fleet;
use crate::key::{Key, Request, leave_text};
use crate::traffic::{CALLS_PER_KEY, Sent, five};
use support::Random;
use support::statistics::{Stats, listed};

/// The keys, and the statistics that the primary should have.
pub struct Named {
    keys: Vec<Use>,
    seen: BTreeMap<String, Stats>,
}

struct Use {
    policy: String,
    is_shadow: bool,
    key: Key,
    /// Whether the key exists, so that the next call is not the first.
    is_there: bool,
}

impl Use {
    fn new(random: &mut Random, subject: AnySubject, is_shadow: bool) -> Self {
        let key = Key::new(random, subject);
        let kind = if is_shadow { "shadow" } else { "default" };
        let policy = format!("{kind}/{}", key.name.split(':').next().unwrap_or_default());
        Self { policy, is_shadow, key, is_there: false }
    }

    fn request(&self, slots: i128) -> Request {
        let limits = self.key.limits(0, slots);
        Request { limits, cost: 1, verb: Verb::Decide }
    }

    /// Sets the policy on a server that has lost it or has another definition of it.
    fn set(&self, fleet: &mut Fleet) {
        if self.is_shadow {
            let rule = self.key.rule(&self.request(1_024));
            fleet.client.ok(&format!("RL.POLICY SET {} SHADOW {rule}", self.policy));
        }
    }
}

impl Named {
    pub fn new(random: &mut Random) -> Self {
        let subjects = AnySubject::ALL
            .into_iter()
            .flat_map(|subject| [false, true].map(|is_shadow| (subject, is_shadow)));
        let keys = subjects.map(|(subject, is_shadow)| Use::new(random, subject, is_shadow));
        Self { keys: keys.collect(), seen: BTreeMap::new() }
    }

    /// Sets the policies and resets the statistics on the primary, which may be another server or
    /// may have lost them.
    pub fn begin(&mut self, fleet: &mut Fleet) {
        self.keys.iter().for_each(|named| named.set(fleet));
        fleet.client.ok("RL.POLICY RESETSTAT");
        self.seen.clear();
    }

    /// Draws a call and applies it to the model. Returns the call and its expected reply.
    pub fn draw(
        &mut self,
        random: &mut Random,
        slots: i128,
        now_us: i128,
        counts: &mut Counts,
    ) -> Sent {
        let at = random.below(self.keys.len() as u64) as usize;
        let named = &mut self.keys[at];
        named.key.calls += 1;
        let request = named.request(slots);
        let plain = named.key.counts_delays();
        let cost = if plain { 1 } else { Share::draw(random).of(&request.limits) };
        let partial = !plain && cost > 0 && random.below(4) == 0;
        let leave = (!plain && random.below(4) == 0).then(|| Leave::draw(random));
        let mut words = vec!["RL.USE".to_owned(), named.key.name.clone(), named.policy.clone()];
        if !plain {
            words.extend(["COST".to_owned(), cost.to_string()]);
            words.extend(partial.then(|| "PARTIAL".to_owned()));
            if let Some(leave) = leave {
                words.extend(["LEAVE".to_owned(), leave_text(leave)]);
            }
        }
        if !named.is_shadow {
            words.push("DEFAULT".to_owned());
            words.extend(named.key.rule(&request).split(' ').map(str::to_owned));
        }
        let verb = match (partial, leave) {
            (false, None) => Verb::Decide,
            (true, None) => Verb::Partly,
            (false, Some(leave)) => Verb::Leaving(leave),
            (true, Some(leave)) => Verb::PartlyLeaving(leave),
        };
        let done = named.key.model.act(verb, &request.limits, now_us, cost);
        let (reply, wrote) = done.expect("nothing keeps a call of USE from a decision");
        let five = five(reply);
        let Value::Array(mut fields) = five else { unreachable!("an array") };
        fields.extend([fields[0].clone(), fields[3].clone()]);
        if named.is_shadow {
            let full = if partial { cost } else { 1 };
            fields[0] = Value::Int(full.try_into().expect("a number of 64 bits"));
            fields[3] = Value::Int(0);
        }
        let first = wrote == Wrote::State && !named.is_there;
        named.is_there |= wrote == Wrote::State;
        let outcome = match (reply.allowed > 0, named.is_shadow) {
            (true, _) => "calls of USE allowed",
            (false, true) => "calls of USE denied in shadow mode",
            (false, false) => "calls of USE denied",
        };
        counts.add(outcome, 1);
        if cost > 0 {
            let stats = self.seen.entry(named.policy.clone()).or_default();
            stats.created += u64::from(first);
            if reply.allowed > 0 {
                let taken = if partial { reply.allowed } else { cost };
                stats.allowed += 1;
                stats.units += u64::try_from(taken).expect("units");
                stats.near_limit += u64::from(reply.remaining * 100 < reply.limit * 20);
            } else if named.is_shadow {
                stats.shadow_denied += 1;
            } else {
                stats.denied += 1;
                stats.last_denied_us = now_us.try_into().expect("a time after 1970");
            }
        }
        Sent { words, expected: Some(Value::Array(fields)) }
    }

    /// Deletes keys that have had their maximum of calls, and gives them new limits, in their
    /// policies too.
    pub fn retire(&mut self, random: &mut Random, fleet: &mut Fleet) {
        for named in self.keys.iter_mut().filter(|named| named.key.calls >= CALLS_PER_KEY) {
            fleet.client.integer(&format!("DEL {}", named.key.name));
            named.key.model = (named.key.subject.none)();
            named.key.rules[0] = Limits::draw(random);
            named.key.calls = 0;
            named.is_there = false;
            named.set(fleet);
        }
    }

    /// Checks that the primary's statistics are the sum of the replies that its clients received.
    pub fn check(&self, fleet: &mut Fleet, counts: &mut Counts) -> Result<(), String> {
        let counted = listed(&mut fleet.client, "RL.POLICY STATS").into_iter();
        let touched = counted.filter(|(_, stats)| *stats != Stats::default());
        let counted: BTreeMap<_, _> = touched.collect();
        counts.add("statistics compared", counted.len() as u64);
        match counted == self.seen {
            true => Ok(()),
            false => Err(format!("statistics: {counted:#?}\nclients saw {:#?}", self.seen)),
        }
    }
}
