//! Calls of several rules: in one command, or one after the other.

use redis::Value;

use crate::call::Keyed;
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
    /// If a later rule denies, the units taken so far are refunded. Until then other callers cannot
    /// use them, and they stay taken if a refund gets no answer. So the limits err on the strict
    /// side, by at most the cost of each denied call.
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check), after the units taken so far are refunded.
    pub async fn check_each(&self, calls: &[Call<'_>]) -> Result<Decision, Error> {
        for call in self.keyed(calls, None)? {
            protocol::check(&call, false)?;
        }
        let mut rows: Vec<Decision> = Vec::with_capacity(calls.len());
        for call in calls {
            match self.check(*call).await {
                Ok(decision) => rows.push(decision),
                Err(error) => {
                    self.undo(calls, &rows).await;
                    return Err(error);
                }
            }
            if rows.last().is_some_and(|row| !row.allowed) {
                self.undo(calls, &rows).await;
                return Ok(Decision::of_rows(rows.len() - 1, rows));
            }
        }
        let scarcest = (0..rows.len()).min_by_key(|at| rows[*at].remaining);
        let at = scarcest.ok_or_else(|| Error::invalid("calls", "expected at least 1 call"))?;
        Ok(Decision::of_rows(at, rows))
    }

    async fn undo(&self, calls: &[Call<'_>], rows: &[Decision]) {
        for (call, row) in calls.iter().zip(rows) {
            if row.allowed && !row.degraded {
                // Without an answer the units stay taken. The limit is then too strict, never too
                // lenient.
                let _ = self.refund(*call).await;
            }
        }
    }
}
