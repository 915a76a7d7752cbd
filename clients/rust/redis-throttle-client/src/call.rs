//! What is asked: a rule, for whom, and what it costs.

use crate::key::Keys;
use crate::{Error, Rule};

/// A call under a rule: `rule.of("42")`, then `.cost(3)` or `.tag("acme")` where they differ.
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
    /// A call that costs one unit.
    pub fn new(rule: &'a Rule, subject: &'a str) -> Self {
        Self { rule, subject, cost: 1, tag: None, id: None }
    }

    /// What it takes: 0 to 10^12 units. 0 takes nothing and tells how things stand.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// The hash tag of its key: keys of one tag are in one slot of a cluster.
    pub fn tag(mut self, tag: &'a str) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Of a lease: the name of the holder, 1 to 128 bytes. A random one when it is not set.
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
