//! A key as a server holds it: bytes, read and written through the codec.

use crate::algorithms::{NewState, Rule, State};
use crate::bounds::Cost;
use crate::call::{CallOptions, ChargeError, Mode};
use crate::oracle::reply::{Reply, Verb, Wrote};
use crate::rule_set::Row;
use crate::state::{self, Change};
use crate::time::Instant;

/// The bytes of a key, and the instant at which their state expires under the rule that wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// `None` if there is no key.
    pub bytes: Option<Vec<u8>>,
    /// The instant of expiry, in microseconds.
    pub expires_at: i128,
}

/// The change that a call stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A state.
    Keep {
        /// The change of the bytes.
        change: Change,
        /// The instant at which the state expires, in microseconds.
        expires_at: i128,
        /// The additional time for which the key may live, in microseconds.
        ttl_slack: i128,
    },
    /// Deletes the key.
    Forget,
}

impl Key {
    /// Returns the reply of a deciding call and the change to store. Stores nothing.
    pub fn decide(&self, rule: &Rule, now: i128, cost: i128) -> (Reply, Option<Write>) {
        self.act(Verb::Decide, rule, now, cost).expect("a decision")
    }

    /// Returns the reply of a call and the change to store. Stores nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ChargeError`] if a charge is refused.
    pub fn act(
        &self,
        verb: Verb,
        rule: &Rule,
        now: i128,
        cost: i128,
    ) -> Result<(Reply, Option<Write>), ChargeError> {
        let stored = self.state();
        let (now, cost) = (instant(now), units(cost));
        let outcome = match verb {
            Verb::Charge => rule.charge(stored, now, cost)?,
            Verb::Refund => rule.refund(stored, now, cost).expect("same algorithm"),
            _ => {
                let options = CallOptions { cost, partial: verb.is_partial(), leave: verb.leave() };
                rule.decide_call(Mode::Take, stored, now, options).expect("same algorithm")
            }
        };
        Ok((outcome.decision.into(), Write::of(&outcome.next)))
    }

    /// Returns the reply of a rule that is one of several, and the change to store. Stores
    /// nothing.
    pub fn decide_as(
        &self,
        mode: Mode,
        rule: &Rule,
        now: i128,
        cost: i128,
    ) -> (Row, Option<Write>) {
        let (now, cost) = (instant(now), units(cost));
        let outcome = rule.decide_as(mode, self.state(), now, cost).expect("same algorithm");
        let row = Row { decision: outcome.decision, cost, left_units: 0, force: None };
        (row, Write::of(&outcome.next))
    }

    /// Decodes the state of the key.
    pub(super) fn state(&self) -> Option<State<'_>> {
        self.bytes.as_deref().map(|bytes| state::decode(bytes).expect("a state"))
    }

    /// Makes a call and stores its change; returns the reply and the kind of change.
    ///
    /// # Errors
    ///
    /// Returns [`ChargeError`] if a charge is refused; nothing is stored then.
    pub fn carry_out(
        &mut self,
        verb: Verb,
        rule: &Rule,
        now: i128,
        cost: i128,
    ) -> Result<(Reply, Wrote), ChargeError> {
        let (reply, write) = self.act(verb, rule, now, cost)?;
        if let Some(write) = &write {
            self.store(write);
        }
        Ok((reply, Wrote::of(write.as_ref())))
    }

    /// Makes a deciding call; returns the reply, and true if it wrote.
    pub fn call(&mut self, rule: &Rule, now: i128, cost: i128) -> (Reply, bool) {
        let (reply, wrote) = self.carry_out(Verb::Decide, rule, now, cost).expect("a decision");
        (reply, wrote != Wrote::Nothing)
    }

    /// Returns the reply that a deciding call would give.
    pub fn peek(&self, rule: &Rule, now: i128, cost: i128) -> Reply {
        self.decide(rule, now, cost).0
    }

    /// Changes the bytes as the server does.
    pub fn store(&mut self, write: &Write) {
        let Write::Keep { change, expires_at, .. } = write else {
            *self = Self::default();
            return;
        };
        let bytes = self.bytes.get_or_insert_default();
        change.apply(bytes);
        self.expires_at = *expires_at;
    }
}

impl Write {
    /// Returns the change to store for an outcome; `None` if there is none.
    pub fn of(next: &crate::decision::StateWrite<NewState<'_>>) -> Option<Self> {
        match next {
            crate::decision::StateWrite::Nothing => None,
            crate::decision::StateWrite::Forget => Some(Self::Forget),
            crate::decision::StateWrite::Keep(next) => Some(Self::Keep {
                change: state::encode(&next.state),
                expires_at: next.expires_at.as_us().into(),
                ttl_slack: next.ttl_slack.as_us().into(),
            }),
        }
    }
}

impl Wrote {
    /// Returns the kind of a change.
    pub const fn of(write: Option<&Write>) -> Self {
        match write {
            None => Self::Nothing,
            Some(Write::Keep { .. }) => Self::State,
            Some(Write::Forget) => Self::Deletion,
        }
    }
}

fn instant(us: i128) -> Instant {
    Instant::from_us(us.try_into().expect("a time after 1970"))
}

fn units(cost: i128) -> Cost {
    Cost::new(cost.try_into().expect("no negative cost")).expect("a cost in bounds")
}
