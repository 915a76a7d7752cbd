//! A key with reservations in a soak, with a model of its reservations and settlements.

use redis_throttle_engine::oracle::{
    AnyCall, AnySubject, ReservationStep as Step, Reserved, Subject, Verb, WindowModel, act,
    take_step,
};

use crate::Counts;
use crate::key::{Asked, Key, duration};
use crate::support::Random;
use crate::traffic::{CALLS_PER_KEY, Sent, five};

/// A key whose algorithm counts in a window, and its naive model.
pub struct Booked<S: Subject<Model: WindowModel>> {
    subject: AnySubject,
    key: Key,
    model: Reserved<S::Model>,
}

impl<S: Subject<Model: WindowModel>> Booked<S> {
    pub fn new(random: &mut Random, subject: AnySubject) -> Self {
        Self { subject, key: Key::new(random, subject), model: Reserved::default() }
    }

    /// Draws a call and applies it to the model. Returns the call and its expected answer.
    pub fn draw(&mut self, random: &mut Random, now_us: i128, counts: &mut Counts) -> Sent {
        if self.key.calls >= CALLS_PER_KEY {
            *self = Self::new(random, self.subject);
        }
        self.key.calls += 1;
        let asked = self.key.ask(random, 16);
        let limits = asked.limits;
        match AnyCall::draw(random, &limits, S::span_us(&limits)) {
            AnyCall::Plain(verb, cost) => {
                let words = self.key.words(verb, &Asked { cost, ..asked });
                let done = act(&mut self.model, verb, &limits, now_us, cost);
                counts.add("calls beside reservations", 1);
                Sent { words, expected: done.map(|(answer, _)| five(answer)) }
            }
            AnyCall::Step(id, step) => {
                let id = format!("job-{id}");
                let words = self.step_words(&id, step, asked);
                let done = take_step(&mut self.model, id.as_bytes(), step, &limits, now_us);
                counts.add(
                    match (step, done.as_ref().map_or(-1, |(answer, _)| answer.allowed)) {
                        (_, -1) => "reservations refused",
                        (_, 0) => "reservations denied, lapsed or unknown",
                        (Step::Reserve(..), _) => "reservations made",
                        (Step::Commit(_), _) => "reservations settled",
                        (Step::Cancel, _) => "reservations given up",
                    },
                    1,
                );
                Sent { words, expected: done.ok().map(|(answer, _)| five(answer)) }
            }
        }
    }

    fn step_words(&self, id: &str, step: Step, asked: Asked) -> Vec<String> {
        let (name, rule) = (&self.key.name, |cost| self.key.rule(&Asked { cost, ..asked }));
        let line = match step {
            Step::Reserve(ttl_us, cost, leave) => {
                let verb = leave.map_or(Verb::Decide, Verb::Leaving);
                let rule = self.key.rule(&Asked { cost, verb, ..asked });
                format!("RL.RESERVE {name} {id} {} {rule}", duration(ttl_us))
            }
            Step::Commit(None) => format!("RL.COMMIT {name} {id} {}", rule(1)),
            // A rule leaves out a cost of 1, and COMMIT without COST commits the reserved cost.
            Step::Commit(Some(1)) => format!("RL.COMMIT {name} {id} {} COST 1", rule(1)),
            Step::Commit(Some(cost)) => format!("RL.COMMIT {name} {id} {}", rule(cost)),
            Step::Cancel => format!("RL.CANCEL {name} {id} {}", rule(1)),
        };
        line.split(' ').map(str::to_owned).collect()
    }

    /// Returns a peek at this key, and its expected answer.
    pub fn look(&self, now_us: i128) -> Sent {
        let asked = self.key.ask_for_all(16);
        let mut model = self.model.clone();
        let answer = act(&mut model, Verb::Decide, &asked.limits, now_us, asked.cost);
        let words = self.key.look(&asked);
        Sent { words, expected: answer.map(|(answer, _)| five(answer)) }
    }
}
