//! The calls that clients repeat after a denial.

use crate::rules::Reply;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The behaviour of a client whose call is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retries {
    /// The client gives up.
    None,
    /// The client calls again after `retry_after_ms`, unless that is never.
    Obey,
    /// The client calls again every [`HAMMER_MS`].
    Hammer,
}

/// The largest number of attempts of one call.
pub const ATTEMPTS_MAX: u8 = 10;

/// The gap between the attempts of a client that hammers.
pub const HAMMER_MS: u64 = 100;

/// A call: the first attempt or a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The instant, in microseconds after the start of the time line.
    pub at_us: u64,
    /// The key, counted from 0.
    pub key: u8,
    /// The attempt, counted from 1.
    pub attempt: u8,
}

/// The retries to come, the next one first.
pub struct RetryQueue {
    behaviour: Retries,
    /// The instant, the order of the denials, the key and the attempt.
    waiting: BinaryHeap<Reverse<(u64, usize, u8, u8)>>,
    /// The end of the time line. A retry at or after it is left out.
    end_us: u64,
    left: usize,
    truncated: bool,
}

impl RetryQueue {
    /// Creates a queue for at most `most` retries.
    pub fn new(behaviour: Retries, end_us: u64, most: usize) -> Self {
        let waiting = BinaryHeap::new();
        Self { behaviour, waiting, end_us, left: most, truncated: false }
    }

    /// Removes and returns the next retry if it is not after `until_us`, or in any case if there is
    /// no such instant.
    pub fn pop_until(&mut self, until_us: Option<u64>) -> Option<Retry> {
        let Reverse((at_us, _, key, attempt)) = *self.waiting.peek()?;
        if until_us.is_some_and(|until_us| at_us > until_us) {
            return None;
        }
        self.waiting.pop();
        Some(Retry { at_us, key, attempt })
    }

    /// Adds the retry of a call if its client makes one.
    pub fn push_after(&mut self, call: &Retry, reply: &Reply) {
        let [allowed, .., retry_after_ms, _] = reply.integers;
        if allowed != 0 || call.attempt >= ATTEMPTS_MAX {
            return;
        }
        let wait_ms = match self.behaviour {
            Retries::None => return,
            Retries::Obey => match u64::try_from(retry_after_ms) {
                Ok(wait_ms) => wait_ms.max(1),
                // Never.
                Err(_) => return,
            },
            Retries::Hammer => HAMMER_MS,
        };
        let at_us = call.at_us.saturating_add(wait_ms.saturating_mul(1_000));
        if at_us >= self.end_us {
            return;
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.truncated = true;
            return;
        };
        self.left = left;
        // `left` falls with each retry, so of equal instants the earlier denial comes first.
        self.waiting.push(Reverse((at_us, usize::MAX - left, call.key, call.attempt + 1)));
    }

    /// Returns true if a retry was left out.
    pub const fn is_truncated(&self) -> bool {
        self.truncated
    }
}
