//! The stored states of all keys under one rule: the bytes that a server would hold.
//!
//! A state of fixed size has a slot of its largest size, behind a byte for its length. A window log
//! grows, and has memory of its own.

use super::chunked::Chunked;
use super::failure::Failure;
use crate::rules::Write;
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::state::Change;

/// The most bytes of all window logs of a rule together.
pub const LOGS_LEN_MAX: usize = 1 << 30;

/// The states of all keys under one rule.
#[derive(Debug)]
pub struct States {
    kind: Kind,
    /// Memory for a change that does not replace the whole state.
    whole: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    Slots(Chunked<u8>),
    Logs { logs: Vec<Vec<u8>>, len: usize, longest: usize },
}

/// Returns the largest number of bytes of a state without debt; `None` if it has no bound.
pub const fn len_max(algorithm: Algorithm) -> Option<usize> {
    match algorithm {
        Algorithm::Gcra => Some(12),
        Algorithm::Backoff => Some(16),
        Algorithm::FixedWindow | Algorithm::CalendarQuota => Some(20),
        Algorithm::SlidingWindow | Algorithm::TokenBucket | Algorithm::LeakyBucket => Some(29),
        Algorithm::SlidingLog => None,
    }
}

impl States {
    /// Creates the states of keys under rules of these algorithms. A key has one rule.
    pub fn new(algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        let longest = algorithms
            .into_iter()
            .map(len_max)
            .try_fold(0, |longest, len| len.map(|len| len.max(longest)));
        let kind = match longest {
            Some(len) => Kind::Slots(Chunked::new(1 + len)),
            None => Kind::Logs { logs: Vec::new(), len: 0, longest: 0 },
        };
        Self { kind, whole: Vec::new() }
    }

    /// Decides a call on the state of a key, and stores the change.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the window logs need too much memory, or the error of `decide`.
    #[inline]
    pub fn decide<T>(
        &mut self,
        key: u32,
        decide: impl FnOnce(&[u8]) -> Result<(T, Option<Write>), Failure>,
    ) -> Result<T, Failure> {
        match &mut self.kind {
            Kind::Slots(slots) => {
                let Some((len, slot)) = slots.record_mut(key).split_first_mut() else {
                    return Err(too_long());
                };
                let stored = slot.get(..usize::from(*len)).unwrap_or_default();
                let (decision, write) = decide(stored)?;
                match write {
                    None => {}
                    Some(Write::Delete) => *len = 0,
                    Some(Write::Keep(Change::Whole(array))) => {
                        *len = put(slot, array.as_slice())?;
                    }
                    Some(Write::Keep(change)) => {
                        self.whole.clear();
                        self.whole.extend_from_slice(stored);
                        change.apply(&mut self.whole);
                        *len = put(slot, &self.whole)?;
                    }
                }
                Ok(decision)
            }
            Kind::Logs { logs, len, longest } => {
                let log = log_mut(logs, key);
                let (decision, write) = decide(log)?;
                let before = log.capacity();
                match write {
                    None => {}
                    Some(Write::Delete) => log.clear(),
                    Some(Write::Keep(change)) => change.apply(log),
                }
                *longest = (*longest).max(log.len());
                *len = (*len + log.capacity()).saturating_sub(before);
                if *len > LOGS_LEN_MAX { Err(logs_too_long()) } else { Ok(decision) }
            }
        }
    }

    /// Returns the state of a key; empty if there is none.
    pub fn get(&self, key: u32) -> &[u8] {
        match &self.kind {
            Kind::Slots(slots) => {
                let (len, slot) = slots.record(key).split_first().unwrap_or((&0, &[]));
                slot.get(..usize::from(*len)).unwrap_or_default()
            }
            Kind::Logs { logs, .. } => logs.get(key as usize).map_or(&[], Vec::as_slice),
        }
    }

    /// Stores the state of a key; none if there are no bytes.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the window logs need too much memory.
    pub fn set(&mut self, key: u32, state: &[u8]) -> Result<(), Failure> {
        match &mut self.kind {
            Kind::Slots(slots) => {
                let Some((len, slot)) = slots.record_mut(key).split_first_mut() else {
                    return Err(too_long());
                };
                *len = put(slot, state)?;
                Ok(())
            }
            Kind::Logs { logs, len, longest } => {
                let log = log_mut(logs, key);
                let before = log.capacity();
                log.clear();
                log.extend_from_slice(state);
                *longest = (*longest).max(log.len());
                *len = (*len + log.capacity()).saturating_sub(before);
                if *len > LOGS_LEN_MAX { Err(logs_too_long()) } else { Ok(()) }
            }
        }
    }

    /// Returns the length of the longest window log that a key ever had; `None` without logs.
    pub const fn longest_log_len(&self) -> Option<usize> {
        match self.kind {
            Kind::Slots(_) => None,
            Kind::Logs { longest, .. } => Some(longest),
        }
    }
}

/// Returns the log of a key, which exists from then on.
fn log_mut(logs: &mut Vec<Vec<u8>>, key: u32) -> &mut Vec<u8> {
    let key = key as usize;
    if logs.len() <= key {
        logs.resize_with(key + 1, Vec::new);
    }
    &mut logs[key]
}

/// Copies a state into its slot, and returns its length.
#[inline]
fn put(slot: &mut [u8], state: &[u8]) -> Result<u8, Failure> {
    let place = slot.get_mut(..state.len()).ok_or_else(too_long)?;
    place.copy_from_slice(state);
    u8::try_from(state.len()).map_err(|_| too_long())
}

/// A defect of this program: the table of lengths is wrong.
#[cold]
fn too_long() -> Failure {
    Failure::usage("a state is longer than its algorithm allows: please report this")
}

#[cold]
fn logs_too_long() -> Failure {
    Failure::usage(format!(
        "the window logs of SLIDINGLOG need more than {LOGS_LEN_MAX} bytes: try SLIDING, a smaller \
         limit, fewer SLOTS, or fewer lines with --where"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_log_is_remembered_after_it_is_deleted() {
        let mut states = States::new([Algorithm::SlidingLog]);
        for state in [&[1_u8; 40][..], &[1; 90], &[1; 8], &[]] {
            states.set(3, state).unwrap();
        }
        assert_eq!(states.longest_log_len(), Some(90));
        assert_eq!(States::new([Algorithm::Gcra]).longest_log_len(), None);
    }
}
