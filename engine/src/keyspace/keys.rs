//! The keys. Each expires when the module would let it expire.

use std::collections::HashMap;
use std::convert::Infallible;

use crate::algorithms::{NewState, State};
use crate::ban::{Ban, LiveBan};
use crate::decision::StateWrite;
use crate::leases::{Grant, Holders};
use crate::state::{self, Change};
use crate::time::{Instant, Span};

/// The error for a command on a key that holds a value of another type.
#[derive(Debug, Clone, Copy)]
pub struct WrongType;

#[derive(Debug, Default)]
pub struct Keys {
    by_name: HashMap<Vec<u8>, Key>,
    /// An estimate of the memory of all keys.
    bytes: usize,
}

/// The memory of a key or a holder next to its name and its bytes, estimated.
const OVERHEAD_BYTES: usize = 96;

#[derive(Debug)]
struct Key {
    value: Value,
    expire_at_ms: u64,
}

#[derive(Debug)]
enum Value {
    /// The bytes of a state.
    State(Vec<u8>),
    /// The expiry of each holder's lease.
    Holders(HashMap<Vec<u8>, Instant>),
}

/// The change that a command makes to its key.
#[derive(Debug)]
pub enum Effect {
    Keep { change: Change, expires_at: Instant, ttl_slack: Span },
    Delete,
    Hold { id: Vec<u8>, grant: Grant },
    Release { id: Vec<u8> },
}

impl Effect {
    /// Encodes the change of a state; `None` if the state does not change.
    pub fn of(next: &StateWrite<NewState<'_>>) -> Option<Self> {
        match next {
            StateWrite::Nothing => None,
            StateWrite::Forget => Some(Self::Delete),
            StateWrite::Keep(next) => Some(Self::Keep {
                change: state::encode(&next.state),
                expires_at: next.expires_at,
                ttl_slack: next.ttl_slack,
            }),
        }
    }

    /// Encodes a ban, for a key that holds nothing.
    pub fn of_ban(ban: &Ban) -> Self {
        let next = ban.next();
        let (expires_at, ttl_slack) = (next.expires_at, next.ttl_slack);
        Self::Keep { change: state::encode_ban(&next.state), expires_at, ttl_slack }
    }
}

impl Key {
    fn is_live(&self, now: Instant) -> bool {
        now.as_us() / 1000 <= self.expire_at_ms && !self.was_banned(now)
    }

    /// Returns an estimate of the memory of this key.
    fn bytes(&self, name: &[u8]) -> usize {
        let value = match &self.value {
            Value::State(bytes) => bytes.len(),
            Value::Holders(all) => all.keys().map(|id| id.len() + OVERHEAD_BYTES).sum(),
        };
        name.len() + value + OVERHEAD_BYTES
    }

    /// Returns true if the key holds a ban that has ended, which counts as nothing.
    fn was_banned(&self, now: Instant) -> bool {
        let Value::State(bytes) = &self.value else { return false };
        let ban = state::decode(bytes).ok().and_then(|state| state.ban());
        ban.is_some_and(|ban| ban.at(now).is_none())
    }

    /// Sets the expiry to `relaxed`, unless the current one is between `needed` and `latest`.
    fn expire(&mut self, needed: Instant, relaxed: Instant, latest: Instant) {
        let serves = needed.as_ms_ceil()..=latest.as_ms_ceil();
        if !serves.contains(&self.expire_at_ms) {
            self.expire_at_ms = relaxed.as_ms_ceil();
        }
    }
}

impl Keys {
    /// Removes a key; returns true if it was there.
    pub fn delete(&mut self, name: &[u8], now: Instant) -> bool {
        let was_there = self.exists(name, now);
        self.remove(name);
        was_there
    }

    /// Returns true if a key exists.
    pub fn exists(&self, name: &[u8], now: Instant) -> bool {
        self.live(name, now).is_some()
    }

    /// Returns the time until a key expires, in milliseconds; `None` if there is no such key.
    pub fn ttl_ms(&self, name: &[u8], now: Instant) -> Option<u64> {
        let key = self.live(name, now)?;
        Some(key.expire_at_ms.saturating_sub(now.as_us() / 1000))
    }

    /// Removes the keys that have expired.
    pub fn sweep(&mut self, now: Instant) {
        self.by_name.retain(|_, key| key.is_live(now));
        self.bytes = self.by_name.iter().map(|(name, key)| key.bytes(name)).sum();
    }

    /// Returns an estimate of the memory of all keys, expired ones included.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove(&mut self, name: &[u8]) {
        self.bytes -= self.bytes_of(name);
        self.by_name.remove(name);
    }

    fn bytes_of(&self, name: &[u8]) -> usize {
        self.by_name.get(name).map_or(0, |key| key.bytes(name))
    }

    fn live(&self, name: &[u8], now: Instant) -> Option<&Key> {
        self.by_name.get(name).filter(|key| key.is_live(now))
    }

    /// Returns the state of a key.
    pub fn state(&self, name: &[u8], now: Instant) -> Result<Option<State<'_>>, WrongType> {
        match self.live(name, now).map(|key| &key.value) {
            None => Ok(None),
            Some(Value::State(bytes)) => state::decode(bytes).map(Some).map_err(|_| WrongType),
            Some(Value::Holders(_)) => Err(WrongType),
        }
    }

    /// Returns the ban of a key, if it has one.
    pub fn ban(&self, name: &[u8], now: Instant) -> Option<LiveBan> {
        self.state(name, now).ok()??.ban()?.at(now)
    }

    /// Returns the live holders of a key, for a decision about the holder `me`.
    pub fn holders<'a>(
        &'a self,
        name: &[u8],
        me: &'a [u8],
        now: Instant,
    ) -> Result<LiveHolders<'a>, WrongType> {
        let mut live = match self.live(name, now).map(|key| &key.value) {
            None => Vec::new(),
            Some(Value::State(_)) => return Err(WrongType),
            Some(Value::Holders(all)) => {
                let live = all.iter().filter(|(_, expiry)| **expiry > now);
                live.map(|(id, expiry)| (*expiry, id.as_slice())).collect()
            }
        };
        live.sort_unstable();
        Ok(LiveHolders { live, me })
    }

    /// Applies the effect of a command.
    pub fn store(&mut self, name: &[u8], effect: Effect, now: Instant) {
        if !self.exists(name, now) {
            self.remove(name);
        }
        self.bytes -= self.bytes_of(name);
        self.apply(name, effect, now);
        self.bytes += self.bytes_of(name);
    }

    fn apply(&mut self, name: &[u8], effect: Effect, now: Instant) {
        let new = |value| Key { value, expire_at_ms: 0 };
        match effect {
            Effect::Keep { change, expires_at, ttl_slack } => {
                let key = self.by_name.entry(name.to_vec());
                let key = key.or_insert_with(|| new(Value::State(Vec::new())));
                if let Value::State(bytes) = &mut key.value {
                    change.apply(bytes);
                }
                let relaxed = expires_at.after(ttl_slack);
                key.expire(expires_at, relaxed, relaxed);
            }
            Effect::Delete => {
                self.by_name.remove(name);
            }
            Effect::Hold { id, grant } => {
                let key = self.by_name.entry(name.to_vec());
                let key = key.or_insert_with(|| new(Value::Holders(HashMap::new())));
                if let Value::Holders(holders) = &mut key.value {
                    holders.retain(|_, expiry| *expiry > now);
                    holders.insert(id, grant.expires_at);
                }
                let last = grant.last_expiry;
                let left = last.since(now);
                key.expire(last, last.after(left.eighth()), last.after(left));
            }
            Effect::Release { id } => {
                let Some(Key { value: Value::Holders(holders), .. }) = self.by_name.get_mut(name)
                else {
                    return;
                };
                holders.remove(&id);
                if holders.is_empty() {
                    self.by_name.remove(name);
                }
            }
        }
    }
}

/// The live holders of leases, in the order of their expiry, for a decision about the holder `me`.
pub struct LiveHolders<'a> {
    live: Vec<(Instant, &'a [u8])>,
    me: &'a [u8],
}

impl Holders for LiveHolders<'_> {
    type Error = Infallible;

    fn live(&mut self) -> Result<u64, Infallible> {
        Ok(self.live.len() as u64)
    }

    fn mine(&mut self) -> Result<Option<Instant>, Infallible> {
        Ok(self.live.iter().find(|(_, id)| *id == self.me).map(|(expiry, _)| *expiry))
    }

    fn last_of_others(&mut self) -> Result<Option<Instant>, Infallible> {
        Ok(self.live.iter().rev().find(|(_, id)| *id != self.me).map(|(expiry, _)| *expiry))
    }

    fn expiry_at_rank(&mut self, rank: u64) -> Result<Option<Instant>, Infallible> {
        let rank = usize::try_from(rank).unwrap_or(usize::MAX);
        Ok(self.live.get(rank).map(|(expiry, _)| *expiry))
    }
}
