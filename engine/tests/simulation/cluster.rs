//! The servers of a run: their memory, their disks, and the writes in transit.
//!
//! Next to the bytes, every copy holds the naive model at the time they were written, and the
//! number of calls that had been allowed by then. Whichever copy serves in the end, the expected
//! replies and the calls that it never received are therefore known.

use std::collections::VecDeque;

use redis_throttle_engine::oracle::{Key, Write};
use redis_throttle_engine::state::Change;

/// The effect of a call that a primary sends, as the server replicates it.
#[derive(Clone, Debug)]
pub enum Effect {
    /// `SET key bytes PXAT ms`, or with KEEPTTL
    Set { bytes: Vec<u8>, expire_at_ms: Option<i128> },
    /// `SETRANGE key offset patch`
    SetRange { offset: usize, patch: Vec<u8> },
    /// `PEXPIREAT key ms`
    ExpireAt { expire_at_ms: i128 },
    /// `DEL key`
    Delete,
}

/// One copy of the key.
#[derive(Clone, Default)]
pub struct Copy<M> {
    pub key: Key,
    pub expire_at_ms: i128,
    pub model: M,
    /// The number of the last allowed call that the copy includes.
    pub knows: u64,
}

/// A server: two copies, and the offset of its clock.
#[derive(Clone, Default)]
pub struct Node<M> {
    pub memory: Copy<M>,
    /// The copy that remains after a crash.
    pub disk: Copy<M>,
    pub clock_offset_us: i128,
}

/// The effects sent for one call, and the data of the copy after them.
struct Sent<M> {
    effects: Vec<Effect>,
    expires_at: i128,
    model: M,
    knows: u64,
}

/// A primary and its replica.
#[derive(Default)]
pub struct Cluster<M> {
    pub primary: Node<M>,
    pub replica: Node<M>,
    link: VecDeque<Sent<M>>,
    /// Whether the link is cut: nothing is sent until the replica has copied everything again.
    is_cut: bool,
}

fn ms_ceil(us: i128) -> i128 {
    (us + 999).div_euclid(1_000)
}

impl<M> Copy<M> {
    /// Returns true if the server treats the key as expired.
    pub fn is_expired(&self, now: i128) -> bool {
        self.key.bytes.is_some() && now.div_euclid(1_000) > self.expire_at_ms
    }

    /// Returns the effects of a write on this copy: the whole value or a patch, and a new expiry
    /// only if the current one is out of the range that the write allows.
    fn effects(&self, write: &Write) -> Vec<Effect> {
        let Write::Keep { change, expires_at, ttl_slack } = write else {
            return vec![Effect::Delete];
        };
        let needed_ms = ms_ceil(*expires_at);
        let relaxed_ms = ms_ceil(*expires_at + *ttl_slack);
        let serves = (needed_ms..=relaxed_ms).contains(&self.expire_at_ms);
        let expire_at_ms = (self.key.bytes.is_none() || !serves).then_some(relaxed_ms);
        let set = |bytes| vec![Effect::Set { bytes, expire_at_ms }];
        let set_range = |offset: &usize, patch: &[u8]| {
            let mut effects = vec![Effect::SetRange { offset: *offset, patch: patch.to_vec() }];
            effects.extend(expire_at_ms.map(|expire_at_ms| Effect::ExpireAt { expire_at_ms }));
            effects
        };
        match change {
            Change::Whole(whole) => set(whole.as_slice().to_vec()),
            Change::Rewrite(whole) => set(whole.clone()),
            Change::Patch { offset, entry } => set_range(offset, entry),
            Change::Tail { offset, entries } => set_range(offset, entries),
        }
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Set { bytes, expire_at_ms } => {
                self.key.bytes = Some(bytes);
                self.expire_at_ms = expire_at_ms.unwrap_or(self.expire_at_ms);
            }
            Effect::SetRange { offset, patch } => {
                let bytes = self.key.bytes.as_mut().expect("a key to patch");
                Change::Tail { offset, entries: patch }.apply(bytes);
            }
            Effect::ExpireAt { expire_at_ms } => self.expire_at_ms = expire_at_ms,
            Effect::Delete => self.key.bytes = None,
        }
    }
}

impl<M: Clone + Default> Cluster<M> {
    /// Applies the effects of a decision to the primary, and sends them.
    pub fn commit(&mut self, write: &Write, model: M, knows: u64) {
        let effects = self.primary.memory.effects(write);
        let expires_at = match write {
            Write::Keep { expires_at, .. } => *expires_at,
            Write::Forget => 0,
        };
        self.send(Sent { effects, expires_at, model, knows });
    }

    /// Deletes the key, which has expired, on the primary, and sends the deletion.
    pub fn delete(&mut self) {
        let Copy { key, knows, .. } = &self.primary.memory;
        let (expires_at, knows) = (key.expires_at, *knows);
        self.send(Sent { effects: vec![Effect::Delete], expires_at, model: M::default(), knows });
    }

    fn send(&mut self, sent: Sent<M>) {
        self.primary.memory.receive(&sent);
        if !self.is_cut {
            self.link.push_back(sent);
        }
    }

    /// Delivers up to `writes` of the writes in transit to the replica; returns their number.
    pub fn replicate(&mut self, writes: usize) -> usize {
        let arriving = writes.min(self.link.len());
        for sent in self.link.drain(..arriving) {
            self.replica.memory.receive(&sent);
        }
        arriving
    }

    /// Loses the writes in transit, and cuts the link.
    pub fn cut(&mut self) {
        self.link.clear();
        self.is_cut = true;
    }

    /// Copies the whole primary to the replica, and to its disk.
    pub fn synchronise(&mut self) {
        self.link.clear();
        self.is_cut = false;
        self.replica.memory = self.primary.memory.clone();
        self.replica.disk = self.primary.memory.clone();
    }

    /// Restarts the primary with the content of its disk, which the replica then copies.
    pub fn restart_primary(&mut self) {
        self.primary.memory = self.primary.disk.clone();
        self.synchronise();
    }

    /// Restarts the replica with the content of its disk, which is all it has until it can copy the
    /// primary.
    pub fn restart_replica(&mut self) {
        self.replica.memory = self.replica.disk.clone();
        self.cut();
    }

    /// Loses the primary and the writes in transit. The replica takes its place, and the former
    /// primary comes back as its replica.
    pub fn promote(&mut self) {
        std::mem::swap(&mut self.primary, &mut self.replica);
        self.synchronise();
    }
}

impl<M: Clone> Copy<M> {
    fn receive(&mut self, sent: &Sent<M>) {
        sent.effects.iter().cloned().for_each(|effect| self.apply(effect));
        self.key.expires_at = sent.expires_at;
        self.model = sent.model.clone();
        self.knows = sent.knows;
    }
}
