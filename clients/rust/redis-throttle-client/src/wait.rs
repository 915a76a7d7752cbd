//! Waits for a decision: sleeps and checks again.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::{Call, Decision, Error, Limiter, Rule, Source, clock};

impl Limiter {
    /// Checks the call, then sleeps for the decision's `retry_after`. After a denial, checks again.
    /// If a sleep would end later than `max_wait` from the start, returns a denial instead. If the
    /// future is dropped while it waits for its place in a leaky bucket, the place is refunded.
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check).
    pub async fn wait(&self, call: Call<'_>, max_wait: Duration) -> Result<Decision, Error> {
        let began = clock::now();
        loop {
            let decision = self.check(call).await?;
            let is_unknown = decision.source == Source::Error;
            if decision.retry_after.is_zero() || is_unknown || decision.never() {
                return Ok(decision);
            }
            if (clock::now() - began).saturating_add(decision.retry_after) > max_wait {
                return self.too_late(call, decision).await;
            }
            let has_place = decision.allowed && !decision.degraded;
            let place = has_place.then(|| Place::new(self, call));
            tokio::time::sleep(decision.retry_after).await;
            if let Some(place) = place {
                place.taken();
            }
            if decision.allowed {
                return Ok(decision);
            }
        }
    }

    /// Turns a decision whose wait is too long into a denial. If the call was allowed, its place in
    /// the leaky bucket is refunded.
    async fn too_late(&self, call: Call<'_>, decision: Decision) -> Result<Decision, Error> {
        if decision.allowed && !decision.degraded {
            match self.refund(call).await {
                Err(error) if error.is_rejection() => return Err(error),
                _ => {}
            }
        }
        Ok(Decision { allowed: false, granted: 0, ..decision })
    }
}

/// A place in a leaky bucket whose turn has not come. It is refunded if it is dropped.
struct Place(Option<Refund>);

struct Refund {
    limiter: Limiter,
    rule: Rule,
    subject: String,
    cost: u64,
    tag: Option<String>,
}

impl Place {
    fn new(limiter: &Limiter, call: Call<'_>) -> Self {
        Self(Some(Refund {
            limiter: limiter.clone(),
            rule: call.rule.clone(),
            subject: call.subject.to_owned(),
            cost: call.cost,
            tag: call.tag.map(str::to_owned),
        }))
    }

    /// Ends the wait: the caller acts, and the place is not refunded.
    fn taken(mut self) {
        self.0 = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (Some(refund), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        runtime.spawn(async move {
            let call = Call { tag: refund.tag.as_deref(), ..refund.rule.of(&refund.subject) };
            // Without an answer the place stays taken. The limit is then too strict, never too
            // lenient.
            let _ = refund.limiter.refund(call.cost(refund.cost)).await;
        });
    }
}
