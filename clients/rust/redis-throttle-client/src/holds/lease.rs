//! Leases: held during work, released at the end.

use std::sync::{Arc, Weak};

use crate::calls::closing::{Held, Listed};
use crate::calls::steps::Request;
use crate::holds::ending::End;
use crate::holds::hold::{Hold, Pending, random_id};
use crate::rules::{clock, item::Keyed};
use crate::wire::words;
use crate::{Decision, Error, EventKind, Item, Kind, Limiter};

/// A permit. It renews itself until it is released by `release` or by a drop.
///
/// It is not a lock: a process stopped for longer than the ttl does not notice the loss.
#[derive(Debug)]
#[must_use = "a lease that is dropped is given back"]
pub struct Lease {
    hold: Arc<Hold>,
    decision: Decision,
    #[allow(dead_code, reason = "its drop ends the place in the limiter's list")]
    listed: Listed,
}

impl Held for Hold {
    fn give_back(&self) {
        self.end(End::Release);
    }
}

impl Lease {
    pub(crate) fn new(limiter: &Limiter, hold: Hold, decision: Decision) -> Self {
        let hold = Arc::new(hold);
        let held: Weak<Hold> = Arc::downgrade(&hold);
        Self { hold, decision, listed: limiter.0.closing.list(held) }
    }

    /// Returns the decision that granted the permit.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns the holder's name.
    #[must_use]
    pub fn id(&self) -> &str {
        self.hold.id()
    }

    /// Returns true if this process still holds the permit, by its own clock. Always true for a
    /// lease that `on_error` allowed because the server did not decide, until
    /// [`close`](crate::Limiter::close).
    #[must_use]
    pub fn held(&self) -> bool {
        self.hold.held()
    }

    /// Waits until the permit is lost. Stop the work then: another holder may have the permit.
    pub async fn lost(&self) {
        self.hold.lost().await;
    }

    /// Renews the permit for another ttl. Returns false if it has expired: stop the work then.
    /// Leases renew themselves; call this only to learn the result.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server is unavailable, otherwise the same as
    /// [`check`](crate::Limiter::check).
    pub async fn renew(&self) -> Result<bool, Error> {
        self.hold.renew().await
    }

    /// Releases the permit and waits for the reply. Without one, the release is repeated in the
    /// background until the permit expires.
    pub async fn release(self) {
        if let Some(released) = self.hold.end(End::Release) {
            // The task fails if the runtime shuts down; no caller waits then.
            let _ = released.await;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.hold.end(End::Release);
    }
}

impl Limiter {
    /// Takes a permit that renews itself. The permit is released when the returned guard is
    /// released or dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let jobs = Rule::lease("jobs", 1, "30s")?;
    /// let job = limiter.lease(jobs.of("42")).await?;
    /// assert!(job.held());
    /// assert!(limiter.lease(jobs.of("42")).await.is_err());
    /// job.release().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Denied`] with the decision if no permit is free; otherwise the same as
    /// [`check`](Limiter::check).
    pub async fn lease(&self, item: Item<'_>) -> Result<Lease, Error> {
        if item.rule.kind() != Kind::Lease {
            return Err(words::expected_lease(item.rule));
        }
        let items = [item];
        let taken =
            self.take_with_leases(&items, None, |_, _, decision, leases| (decision, leases));
        let (decision, mut leases) = taken.await?;
        leases.pop().ok_or_else(|| Error::Denied(Box::new(decision)))
    }

    /// Checks several rules in one call. Some of them may be leases, each of which is held until
    /// its guard is released or dropped. If the reply never reaches the caller, the leases are
    /// released. Returns what `build` makes of the items, their calls, the decision and the leases.
    pub(crate) async fn take_with_leases<T>(
        &self,
        items: &[Item<'_>],
        tag: Option<&str>,
        build: impl FnOnce(&[Item<'_>], &[Keyed<'_>], Decision, Vec<Lease>) -> T,
    ) -> Result<T, Error> {
        let began = clock::now();
        let random = random_id();
        let mut items = items.to_vec();
        for item in &mut items {
            item.tag = tag.or(item.tag);
            if item.rule.kind() == Kind::Lease {
                item.id.get_or_insert(&random);
            }
        }
        let calls = self.keyed(&items, None)?;
        let mut command = match (&items[..], &calls[..]) {
            ([item], [call]) if item.is_held() => words::lease(call)?,
            ([item], _) => {
                let decision = self.check_within(*item, &self.budget()).await?;
                return Ok(build(&items, &calls, decision, Vec::new()));
            }
            _ => words::check_all(&calls, false)?,
        };
        let pending = Pending::new(self, &items, &calls, &mut command, false);
        let (kind, decided) = if let [call] = &calls[..] {
            let (calls, budget) = (std::slice::from_ref(call), &self.budget());
            let request =
                Request { command: &command, calls, is_all: false, admits: false, began, budget };
            (EventKind::Lease, self.decide(&request, false, false).await)
        } else {
            (EventKind::Check, self.decide_all(&command, &calls, began).await)
        };
        match self.record_all(kind, decided, &items, began) {
            Ok(decision) => {
                let holds = pending.decided(&decision)?.into_iter().filter_map(|(_, hold)| hold);
                let leases = holds.map(|hold| Lease::new(self, hold, decision.clone())).collect();
                Ok(build(&items, &calls, decision, leases))
            }
            Err(error) => {
                pending.refused();
                Err(error)
            }
        }
    }
}
