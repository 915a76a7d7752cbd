//! A key with reservations in a soak, with a model of its reservations and settlements.

use redis::Value;
use redis_throttle_engine::oracle::{
    AnyCall, AnySubject, Hold, Reply, ReservationStep as Step, Reserved, Subject, Verb, Windows,
    act, take_step,
};

use crate::Counts;
use crate::key::{Key, Request, duration};
use crate::traffic::{CALLS_PER_KEY, Sent, five};
use support::Random;

/// A key and a rule that allows no call.
const NEVER: [&str; 2] = ["never", "FIXED 1 60 COST 2"];

/// The form of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A command of its own.
    Alone,
    /// The only rule of `RL.ALL`.
    InAll,
    /// A rule of `RL.ALL` before one that denies the call.
    InVain,
}

impl Form {
    fn draw(random: &mut Random, step: Step) -> Self {
        match step {
            Step::Reserve(hold) if hold.is_vain => Self::InVain,
            Step::Reserve(_) if random.below(2) == 0 => Self::InAll,
            _ => Self::Alone,
        }
    }

    /// Returns the reply that contains the reply of the step.
    fn reply(self, reply: Reply) -> Value {
        let never =
            Reply { allowed: 0, limit: 1, remaining: 1, retry_after_ms: -1, reset_after_ms: 0 };
        // The first rule with the longest wait decides.
        let (head, rule, rows) = match self {
            Self::Alone => return five(reply),
            Self::InAll => (reply, 1, vec![reply]),
            Self::InVain if reply.retry_after_ms < 0 => (reply, 1, vec![reply, never]),
            Self::InVain => (never, 2, vec![reply, never]),
        };
        let Value::Array(mut fields) = five(head) else { unreachable!("an array") };
        fields.push(Value::Int(rule));
        fields.extend(rows.into_iter().map(five));
        Value::Array(fields)
    }
}

/// A key whose algorithm counts in a window, and its naive model.
pub struct Booked<S: Subject + Windows> {
    subject: AnySubject,
    key: Key,
    model: Reserved<S>,
}

impl<S: Subject + Windows> Booked<S> {
    pub fn new(random: &mut Random, subject: AnySubject) -> Self {
        Self { subject, key: Key::new(random, subject), model: Reserved::default() }
    }

    /// Draws a call and applies it to the model. Returns the call and its expected reply.
    pub fn draw(&mut self, random: &mut Random, now_us: i128, counts: &mut Counts) -> Sent {
        if self.key.calls >= CALLS_PER_KEY {
            *self = Self::new(random, self.subject);
        }
        self.key.calls += 1;
        let request = self.key.draw_request(random, 16);
        let limits = request.limits;
        match AnyCall::draw(random, &limits, S::span_us(&limits)) {
            AnyCall::Plain(verb, cost) => {
                let words = self.key.words(verb, &Request { cost, ..request });
                let done = act(&mut self.model, verb, &limits, now_us, cost);
                counts.add("calls next to reservations", 1);
                Sent { words, expected: done.map(|(reply, _)| five(reply)) }
            }
            AnyCall::Step(id, step) => {
                let id = format!("job-{id}");
                let form = Form::draw(random, step);
                // The soak has no policies in shadow mode for reservations.
                let step = match step {
                    Step::Reserve(hold) => Step::Reserve(Hold { is_shadow: false, ..hold }),
                    step => step,
                };
                let words = self.step_words(&id, step, form, request);
                let done = take_step(&mut self.model, id.as_bytes(), step, &limits, now_us);
                counts.add(
                    match (step, done.as_ref().map_or(-1, |(reply, _)| reply.allowed)) {
                        (_, -1) => "reservations refused",
                        (_, 0) => "reservations denied, expired or unknown",
                        (Step::Reserve(..), _) => "reservations opened",
                        (Step::Commit(_), _) => "reservations settled",
                        (Step::Cancel, _) => "reservations given up",
                    },
                    1,
                );
                if form != Form::Alone {
                    counts.add("reservations in ALL", 1);
                }
                Sent { words, expected: done.ok().map(|(reply, _)| form.reply(reply)) }
            }
        }
    }

    fn step_words(&self, id: &str, step: Step, form: Form, request: Request) -> Vec<String> {
        let (name, rule) = (&self.key.name, |cost| self.key.rule(&Request { cost, ..request }));
        let line = match step {
            Step::Reserve(Hold { ttl_us, cost, leave, .. }) => {
                let verb = leave.map_or(Verb::Decide, Verb::Leaving);
                let rule = self.key.rule(&Request { cost, verb, ..request });
                let words = format!("{id} {} {rule}", duration(ttl_us));
                let of_all = ["RL.ALL".to_owned(), name.clone(), format!("RESERVE {words}")];
                match form {
                    Form::Alone => format!("RL.RESERVE {name} {words}"),
                    Form::InAll => return of_all.to_vec(),
                    Form::InVain => {
                        let never = NEVER.map(str::to_owned);
                        return of_all.into_iter().chain(never).collect();
                    }
                }
            }
            Step::Commit(None) => format!("RL.COMMIT {name} {id} {}", rule(1)),
            // A rule leaves out a cost of 1, and COMMIT without COST commits the reserved cost.
            Step::Commit(Some(1)) => format!("RL.COMMIT {name} {id} {} COST 1", rule(1)),
            Step::Commit(Some(cost)) => format!("RL.COMMIT {name} {id} {}", rule(cost)),
            Step::Cancel => format!("RL.CANCEL {name} {id} {}", rule(1)),
        };
        line.split(' ').map(str::to_owned).collect()
    }

    /// Returns a peek at this key, and its expected reply.
    pub fn look(&self, now_us: i128) -> Sent {
        let request = self.key.full_request(16);
        let mut model = self.model.clone();
        let reply = act(&mut model, Verb::Decide, &request.limits, now_us, request.cost);
        let words = self.key.look(&request);
        Sent { words, expected: reply.map(|(reply, _)| five(reply)) }
    }
}
