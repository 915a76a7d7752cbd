//! A key of leases in a soak, with a model of its holders.

use redis::Value;
use redis_throttle_engine::oracle::{DAY_US, Leases, Reply, Source as _};

use crate::Counts;
use crate::traffic::{Sent, five};
use support::Random;

/// The number of different holders of each key: a few, and more than a compact encoding can hold.
pub const HOLDERS: [u64; 3] = [4, 30, 400];

/// A key of leases, and its naive model.
pub struct Held {
    pub name: String,
    pub leases: Leases,
    holders: u64,
}

impl Held {
    pub fn new(random: &mut Random, holders: u64) -> Self {
        Self { name: format!("LEASE:{}", random.number()), leases: Leases::default(), holders }
    }

    /// Draws a call and applies it to the model. Returns the call and its expected reply.
    pub fn draw(&mut self, random: &mut Random, now_us: i128, counts: &mut Counts) -> Sent {
        let id = format!("h{}", random.below(self.holders));
        let limit = random.between(1, i128::from(self.holders));
        let ttl_us = match random.below(3) {
            0 => random.between(1_000, 5_000_000),
            1 => random.between(1_000_000, 600_000_000),
            _ => random.between(1_000, 366 * DAY_US),
        };
        let ttl = format!("{}.{:06}", ttl_us / 1_000_000, ttl_us % 1_000_000);
        let (name, limit_text) = (self.name.as_str(), limit.to_string());
        let left = if random.below(4) == 0 { random.between(0, limit) } else { 0 };
        let left_text = left.to_string();
        let (words, expected) = match random.below(8) {
            0 => {
                let live = self.leases.release(id.as_bytes(), now_us);
                (vec!["RL.RELEASE", name, &id], Value::Int(live.into()))
            }
            1 => {
                let live = self.leases.renew(id.as_bytes(), ttl_us, now_us);
                (vec!["RL.RENEW", name, &id, &ttl], Value::Int(live.into()))
            }
            2 => {
                let reply = self.leases.clone().lease(id.as_bytes(), limit, left, ttl_us, now_us);
                let words = ["RL.PEEK", name, "LEASE", &id, &limit_text, &ttl, "LEAVE", &left_text];
                (words.to_vec(), five(reply))
            }
            _ => {
                let reply = self.leases.lease(id.as_bytes(), limit, left, ttl_us, now_us);
                let words = ["RL.LEASE", name, &id, &limit_text, &ttl, "LEAVE", &left_text];
                (words.to_vec(), five(reply))
            }
        };
        counts.add("calls about leases", 1);
        let words = words.into_iter().map(str::to_owned).collect();
        Sent { words, expected: Some(expected) }
    }

    /// Returns a peek at this key for a new holder, and its expected reply.
    pub fn look(&self, now_us: i128) -> Sent {
        let reply: Reply = self.leases.clone().lease(b"new", 1, 0, 1_000_000, now_us);
        let words = ["RL.PEEK", &self.name, "LEASE", "new", "1", "1"].map(str::to_owned).into();
        Sent { words, expected: Some(five(reply)) }
    }
}
