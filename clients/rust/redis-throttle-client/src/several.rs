//! Calls of several rules: in one command, or one after the other.

use redis::Value;

use crate::call::Keyed;
use crate::taken::Taken;
use crate::{Call, Decision, Error, EventKind, Limiter, clock, protocol};

impl Limiter {
    /// Decides several rules at once. The call takes from all of them or from none. `rows` holds
    /// each rule's decision.
    ///
    /// In a cluster, all keys need one hash tag, `tag`. A lease among the rules needs an
    /// [`id`](Call::id), and the caller must release it.
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check). Also [`Error::InvalidArgument`] for no calls, more
    /// than 16, or a repeated key.
    pub async fn check_all(
        &self,
        calls: &[Call<'_>],
        tag: Option<&str>,
    ) -> Result<Decision, Error> {
        let began = clock::now();
        let keyed = self.keyed(calls, tag)?;
        let command = protocol::check_all(&keyed, false)?;
        let read = |reply: &Value| protocol::decision_all(&keyed, reply);
        let decided = self.decide(&command, &keyed, began, read).await;
        let deciding = decided.as_ref().map_or(0, |decision| decision.deciding);
        self.told(EventKind::Check, decided, &calls[deciding], began)
    }

    pub(crate) fn keyed<'a>(
        &self,
        calls: &[Call<'a>],
        tag: Option<&'a str>,
    ) -> Result<Vec<Keyed<'a>>, Error> {
        let tagged = |call: &Call<'a>| Call { tag: tag.or(call.tag), ..*call };
        calls.iter().map(|call| self.keyed_call(&tagged(call))).collect()
    }

    /// Decides several rules one after the other, for keys in different slots.
    ///
    /// If a later rule denies, or the future is dropped, the units taken so far are refunded. Until
    /// then other callers cannot use them, and they stay taken if a refund gets no answer. So the
    /// limits err on the strict side, by at most the cost of each denied call. If all rules allow,
    /// the one that allows the fewest further calls of its cost decides.
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check), after the units taken so far are refunded. Also
    /// [`Error::InvalidArgument`] for no calls, a lease or a backoff.
    pub async fn check_each(&self, calls: &[Call<'_>]) -> Result<Decision, Error> {
        if calls.is_empty() {
            return Err(Error::invalid("calls", "expected at least 1 call"));
        }
        for call in self.keyed(calls, None)? {
            protocol::refundable(call.rule)?;
            protocol::check(&call, false)?;
        }
        let mut taken = Taken::new(self);
        let mut rows: Vec<Decision> = Vec::with_capacity(calls.len());
        for call in calls {
            let row = match self.check(*call).await {
                Ok(row) => row,
                Err(error) => {
                    taken.give_back().await;
                    return Err(error);
                }
            };
            let allowed = row.allowed;
            if allowed && !row.degraded {
                taken.add(call);
            }
            rows.push(row);
            if !allowed {
                taken.give_back().await;
                return Ok(Decision::of_rows(rows.len() - 1, rows));
            }
        }
        taken.keep();
        let calls_left = |at: &usize| {
            let remaining = rows[*at].remaining;
            (remaining.checked_div(calls[*at].cost).unwrap_or(u64::MAX), remaining)
        };
        let fewest = (0..rows.len()).min_by_key(calls_left).unwrap_or_default();
        Ok(Decision::of_rows(fewest, rows))
    }
}
