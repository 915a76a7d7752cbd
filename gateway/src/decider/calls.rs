//! Plans the calls of a request.

use crate::config::{COST_MAX, Limit};
use crate::matching::{Call, Demand};

use super::descriptors::{DescriptorHits, Hits};

/// A rule to check, for all descriptors that meet it with the same subject.
#[derive(Debug)]
pub(super) struct Check<'a> {
    pub call: &'a Call<'a>,
    /// The places of the descriptors.
    pub rows: Vec<usize>,
    units: u64,
}

impl Check<'_> {
    /// Returns the units to take; 0 to check that one would pass.
    pub fn cost(&self) -> u64 {
        // A rule that counts one at a time counts equal descriptors of a request as one.
        if self.call.rule.takes_cost() { self.units.min(COST_MAX) } else { 1 }
    }
}

/// The kind of a call that goes alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Charge,
    Refund,
    /// Checks a rule without costs, which has no `LEAVE`.
    Peek,
}

/// A call that goes alone.
#[derive(Debug)]
pub(super) struct Change<'a> {
    pub call: &'a Call<'a>,
    /// The place of the descriptor.
    pub row: usize,
    pub units: u64,
    pub kind: Kind,
}

/// The calls of a request.
#[derive(Debug, Default)]
pub(super) struct Planned<'a> {
    pub checks: Vec<Check<'a>>,
    /// The checks of limits in shadow mode.
    pub shadows: Vec<Check<'a>>,
    pub changes: Vec<Change<'a>>,
}

impl<'a> Planned<'a> {
    pub fn of(descriptors: &'a [DescriptorHits<'_>]) -> Self {
        let mut planned = Self::default();
        for (row, descriptor) in descriptors.iter().enumerate() {
            let Some(found) = &descriptor.found else { continue };
            let Demand::Call(call) = &found.demand else { continue };
            planned.add(row, call, &found.limit, descriptor.hits);
        }
        planned
    }

    /// Returns the number of rows that reach the server.
    pub fn len(&self) -> usize {
        self.checks.len() + self.shadows.len() + self.changes.len()
    }

    fn add(&mut self, row: usize, call: &'a Call<'a>, limit: &Limit, hits: Hits) {
        // More than any limit has: such a check is denied.
        let units = |hits: u64| hits.saturating_mul(limit.cost).min(COST_MAX);
        let change = |hits, kind| Change { call, row, units: units(hits), kind };
        match hits {
            Hits::Given(0) | Hits::Back(0) if !call.rule.takes_cost() => {
                self.changes.push(Change { call, row, units: 1, kind: Kind::Peek });
            }
            Hits::Back(0) => self.check(row, call, limit, 0),
            Hits::Back(hits) => self.changes.push(change(hits, Kind::Refund)),
            Hits::Given(hits @ 1..) if limit.reported => {
                self.changes.push(change(hits, Kind::Charge));
            }
            Hits::Given(hits) => self.check(row, call, limit, units(hits)),
            Hits::Unset => self.check(row, call, limit, units(1)),
        }
    }

    /// Adds units to the check of the same rule and subject, or a new one.
    fn check(&mut self, row: usize, call: &'a Call<'a>, limit: &Limit, units: u64) {
        let checks = if limit.shadow { &mut self.shadows } else { &mut self.checks };
        let is_same = |check: &&mut Check<'_>| {
            check.call.rule.name() == call.rule.name() && check.call.subject == call.subject
        };
        match checks.iter_mut().find(is_same) {
            Some(check) => {
                check.units = check.units.saturating_add(units);
                check.rows.push(row);
            }
            None => checks.push(Check { call, rows: vec![row], units }),
        }
    }
}
