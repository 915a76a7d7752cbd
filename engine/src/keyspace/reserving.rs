//! The rule and the units of a reservation.

use crate::algorithms::Rule;
use crate::bounds::Slots;
use crate::grammar::error::GrammarError;
use crate::grammar::reservation::{HoldRequest, RuleSource};
use crate::reservations::window::Hold;
use crate::rule_set::Force;

use super::refused::Refused;

/// A reservation to make.
pub struct Reserving<'a> {
    pub rule: Rule,
    pub id: &'a [u8],
    pub hold: Hold,
    /// Set only for the default rule of a policy.
    pub force: Option<Force>,
}

impl<'a> Reserving<'a> {
    pub fn new(request: HoldRequest<'a>) -> Result<Self, Refused> {
        let (rule, force) = rule_of(request.source)?;
        Ok(Self { rule, id: request.id, hold: request.hold, force })
    }
}

/// Returns the rule of a reservation. There are no policies, so only a default rule applies.
pub fn rule_of(source: RuleSource<'_>) -> Result<(Rule, Option<Force>), Refused> {
    let usage = match source {
        RuleSource::Call(rule) => return Ok((rule, None)),
        RuleSource::Policy(usage) => usage,
    };
    let rule = usage.default.ok_or(Refused::NoPolicy)?.with_slots(Slots::DEFAULT);
    let rule = usage.request(rule)?.rule;
    if rule.is_reservable() {
        return Ok((rule, Some(Force::Enforced)));
    }
    Err(GrammarError::PolicyNotReservable.into())
}
