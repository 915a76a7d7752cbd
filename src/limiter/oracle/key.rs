//! A key as a server holds it: bytes, read and written through the codec.

use super::Answer;
use crate::limiter::{Cost, Instant, Rule};
use crate::state::{self, Change};

/// The bytes behind a key, and when their state lapses under the rule that wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// `None` when there is no key.
    pub bytes: Option<Vec<u8>>,
    /// Microseconds.
    pub lapses_at: i128,
}

/// What a call leaves to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// How the bytes change.
    pub change: Change,
    /// When the state lapses, in microseconds.
    pub lapses_at: i128,
    /// How much longer the key may live, in microseconds.
    pub ttl_slack: i128,
}

impl Key {
    /// What a deciding call answers and what it leaves to be stored. Nothing is stored yet.
    pub fn decide(&self, rule: &Rule, now: i128, cost: i128) -> (Answer, Option<Write>) {
        let stored = self.bytes.as_deref().map(|bytes| state::decode(bytes).expect("a state"));
        let outcome = rule.decide(stored, instant(now), units(cost)).expect("same algorithm");
        let write = outcome.next.map(|next| Write {
            change: state::encode(&next.state),
            lapses_at: next.lapses_at.as_us().into(),
            ttl_slack: next.ttl_slack.as_us().into(),
        });
        (outcome.decision.into(), write)
    }

    /// A deciding call: what it answers, and whether it wrote.
    pub fn call(&mut self, rule: &Rule, now: i128, cost: i128) -> (Answer, bool) {
        let (answer, write) = self.decide(rule, now, cost);
        if let Some(write) = &write {
            self.store(write);
        }
        (answer, write.is_some())
    }

    /// What a deciding call would answer.
    pub fn peek(&self, rule: &Rule, now: i128, cost: i128) -> Answer {
        self.decide(rule, now, cost).0
    }

    /// Changes the bytes as the server does.
    pub fn store(&mut self, write: &Write) {
        let bytes = self.bytes.get_or_insert_default();
        match &write.change {
            Change::Whole(whole) => *bytes = whole.as_slice().to_vec(),
            Change::Rewrite(whole) => bytes.clone_from(whole),
            Change::Patch { offset, entry } => overwrite(bytes, *offset, entry),
        }
        self.lapses_at = write.lapses_at;
    }
}

/// `SETRANGE`: writes over what is there and past its end. It cannot shorten, so a patch must
/// reach the end.
pub fn overwrite(bytes: &mut Vec<u8>, offset: usize, patch: &[u8]) {
    let end = offset + patch.len();
    assert!(offset <= bytes.len(), "a patch leaves no gap");
    assert!(end >= bytes.len(), "a patch leaves no old bytes behind it");
    bytes.resize(end, 0);
    bytes[offset..].copy_from_slice(patch);
}

fn instant(us: i128) -> Instant {
    Instant::from_us(us.try_into().expect("a time after 1970"))
}

fn units(cost: i128) -> Cost {
    Cost::new(cost.try_into().expect("no negative cost")).expect("a cost in bounds")
}
