//! Takes leases, alone or in one call with other rules.

use redis::Value;
use uuid::Uuid;

use crate::call::Keyed;
use crate::connection::Sent;
use crate::lease::{Asked, Holder};
use crate::{Call, Decision, Error, EventKind, Kind, Lease, Limiter, clock, protocol};

impl Limiter {
    /// Takes a permit that renews itself. The permit is released when the returned guard is
    /// released or dropped.
    ///
    /// # Errors
    /// [`Error::Denied`] with the decision if no permit is free; otherwise the same as
    /// [`check`](Limiter::check).
    pub async fn lease(&self, call: Call<'_>) -> Result<Lease, Error> {
        if call.rule.kind() != Kind::Lease {
            return Err(protocol::expected_lease(call.rule));
        }
        let (decision, mut leases) = self.check_with_leases(&[call], None).await?;
        leases.pop().ok_or_else(|| Error::Denied(Box::new(decision)))
    }

    /// Checks several rules in one call. Some of them may be leases. Middleware uses this method.
    /// Each lease is held until its guard is released or dropped. If the answer never reaches the
    /// caller, the leases are released.
    ///
    /// # Errors
    /// The same as [`check_all`](Limiter::check_all).
    #[doc(hidden)]
    pub async fn check_with_leases(
        &self,
        calls: &[Call<'_>],
        tag: Option<&str>,
    ) -> Result<(Decision, Vec<Lease>), Error> {
        let began = clock::now();
        let random = Uuid::new_v4().simple().to_string();
        let mut calls = calls.to_vec();
        for call in &mut calls {
            call.tag = tag.or(call.tag);
            if call.rule.kind() == Kind::Lease {
                call.id.get_or_insert(&random);
            }
        }
        let keyed = self.keyed(&calls, None)?;
        let mut command = match (&calls[..], &keyed[..]) {
            ([call], [keyed]) if call.rule.kind() == Kind::Lease => protocol::lease(keyed)?,
            ([call], _) => return Ok((self.check(*call).await?, Vec::new())),
            _ => protocol::check_all(&keyed, false)?,
        };
        let sent = command.record();
        let asked: Vec<_> = keyed.iter().filter_map(|call| self.asked(call, &sent)).collect();
        let read = |reply: &Value| match &keyed[..] {
            [lease] => protocol::decision(lease, reply),
            all => protocol::decision_all(all, reply),
        };
        let decided = self.decide(&command, &keyed, began, read).await;
        let deciding = decided.as_ref().map_or(0, |decision| decision.deciding);
        let kind = if calls.len() == 1 { EventKind::Lease } else { EventKind::Check };
        match self.told(kind, decided, &calls[deciding], began) {
            Ok(decision) => {
                let leases = asked.into_iter().filter_map(|asked| asked.decided(&decision));
                let leases = leases.collect();
                Ok((decision, leases))
            }
            Err(error) => {
                asked.into_iter().for_each(Asked::refused);
                Err(error)
            }
        }
    }

    /// Returns a guard for the permit that a lease is about to request; `None` for other rules. The
    /// guard releases the permit if the answer never reaches the caller.
    fn asked(&self, call: &Keyed<'_>, sent: &Sent) -> Option<Asked> {
        let id = call.id.filter(|_| call.rule.kind() == Kind::Lease)?.to_owned();
        let (rule, key) = (call.rule.clone(), call.key.clone());
        Some(Asked::new(Holder { limiter: self.clone(), rule, key, id }, sent.clone()))
    }
}
