//! The reservations of a fake server.

use redis::Value;
use redis_throttle_engine::algorithms::Rule;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::reservation::{
    HoldRequest, ReservationRequest, ReservationVerb, RuleSource, reservation,
};
use redis_throttle_engine::reservations::window::Hold;
use redis_throttle_engine::rule_set::Force;

use super::commands::{Call, SLOTS, array};
use super::keys::Effect;
use super::refused::Refused;

/// A reservation that is to be made.
pub(super) struct Reserving<'a> {
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

/// Returns the rule of a reservation. The fake has no policies, so only a default rule applies.
fn rule_of(source: RuleSource<'_>) -> Result<(Rule, Option<Force>), Refused> {
    let usage = match source {
        RuleSource::Call(rule) => return Ok((rule, None)),
        RuleSource::Policy(usage) => usage,
    };
    let rule = usage.default.ok_or(Refused::NoPolicy)?.with_slots(SLOTS);
    let rule = usage.request(rule)?.rule;
    if rule.is_reservable() {
        return Ok((rule, Some(Force::Enforced)));
    }
    Err(GrammarError::PolicyNotReservable.into())
}

impl Call<'_> {
    /// Commits or cancels a reservation.
    pub fn settle_reservation(
        &mut self,
        key: &[u8],
        args: &[&[u8]],
        verb: ReservationVerb,
    ) -> Result<Value, Refused> {
        let ReservationRequest { id, source, step } = reservation(verb, args, SLOTS)?;
        let (rule, _) = rule_of(source)?;
        let outcome = rule.take_step(self.keys.state(key, self.now)?, self.now, id, step)?;
        let (decision, effect) = (outcome.decision, Effect::of(&outcome.next));
        self.store(key, effect);
        Ok(array(&decision.integers()))
    }
}
