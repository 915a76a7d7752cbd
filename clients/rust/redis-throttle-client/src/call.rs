//! A call: its rule, its subject and its cost.

use crate::key::Keys;
use crate::{Error, Rule};

/// A call under a rule. Build it with `rule.of("42")`, then `.cost(3)` or `.tag("acme")` if needed.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Call<'a> {
    pub(crate) rule: &'a Rule,
    pub(crate) subject: &'a str,
    pub(crate) cost: u64,
    pub(crate) tag: Option<&'a str>,
    pub(crate) id: Option<&'a str>,
}

impl<'a> Call<'a> {
    /// Creates a call that costs one unit.
    pub fn new(rule: &'a Rule, subject: &'a str) -> Self {
        Self { rule, subject, cost: 1, tag: None, id: None }
    }

    /// Sets the cost: 0 to 10^12 units. 0 takes nothing and returns the status.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Sets the hash tag of the key. Keys with the same tag share a slot of a cluster.
    pub fn tag(mut self, tag: &'a str) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Sets the holder's name for a lease: 1 to 128 bytes. Default: a random name.
    pub fn id(mut self, id: &'a str) -> Self {
        self.id = Some(id);
        self
    }

    pub(crate) fn keyed(&self, keys: &Keys) -> Result<Keyed<'a>, Error> {
        let key = keys.key(self.rule.name(), self.subject, self.tag)?;
        Ok(Keyed { rule: self.rule, key, cost: self.cost, id: self.id })
    }
}

/// A call with its key.
#[derive(Debug, Clone)]
pub(crate) struct Keyed<'a> {
    pub rule: &'a Rule,
    pub key: String,
    pub cost: u64,
    pub id: Option<&'a str>,
}
