//! Admissions: several items that are held while work lasts, and settled at its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::sync::SetOnce;
use tokio::task::JoinHandle;

use crate::calls::closing::{Held, Listed};
use crate::calls::steps::Request;
use crate::holds::ending::{End, Ending};
use crate::holds::hold::{Hold, Pending, random_id};
use crate::rules::clock;
use crate::rules::item::{COST_MAX, Owned};
use crate::wire::words;
use crate::{Decision, Error, EventKind, Item, Kind, Limiter, Rule, Source};

/// A rule of an admission, or one of its items if several have one rule.
pub trait RuleOrItem: sealed::Sealed {
    #[doc(hidden)]
    fn rule(&self) -> &Rule;
    #[doc(hidden)]
    fn subject(&self) -> Option<&str>;
}

mod sealed {
    #[allow(unnameable_types, reason = "a sealed trait is not named")]
    pub trait Sealed {}
    impl Sealed for &crate::Rule {}
    impl Sealed for crate::Item<'_> {}
}

impl RuleOrItem for &Rule {
    fn rule(&self) -> &Rule {
        self
    }

    fn subject(&self) -> Option<&str> {
        None
    }
}

impl RuleOrItem for Item<'_> {
    fn rule(&self) -> &Rule {
        self.rule
    }

    fn subject(&self) -> Option<&str> {
        Some(self.subject)
    }
}

/// The items that one call has taken, as long as work lasts. Leases and reservations renew
/// themselves. A finish or a drop ends the admission: it sends what the work took.
#[derive(Debug)]
#[must_use = "an admission that is dropped is finished"]
pub struct Admission {
    admitted: Arc<Admitted>,
    #[allow(dead_code, reason = "its drop ends the place in the limiter's list")]
    listed: Listed,
}

/// An admission, which also ends when its limiter is closed.
#[derive(Debug)]
struct Admitted {
    limiter: Limiter,
    id: String,
    decision: Decision,
    parts: Vec<Part>,
    notes: Mutex<Notes>,
    /// Set when the first try of each end is over.
    finished: Arc<SetOnce<()>>,
}

/// An item of an admission.
#[derive(Debug)]
struct Part {
    item: Owned,
    hold: Option<Hold>,
    /// Whether the server decided.
    by_server: bool,
    took_units: bool,
}

/// The units that the work took, for each item.
#[derive(Debug)]
struct Notes {
    settled: Vec<Option<u64>>,
    ended: bool,
}

impl Admission {
    pub(crate) fn new(
        limiter: &Limiter,
        id: &str,
        decision: Decision,
        items: Vec<(Owned, Option<Hold>)>,
    ) -> Self {
        let part = |((item, hold), row): ((Owned, Option<Hold>), &Decision)| {
            let by_server = row.source == Source::Server;
            Part { item, hold, by_server, took_units: row.took_units() }
        };
        let parts: Vec<_> = items.into_iter().zip(&decision.rows).map(part).collect();
        let settled = vec![None; parts.len()];
        let admitted = Arc::new(Admitted {
            limiter: limiter.whole(),
            id: id.to_owned(),
            decision,
            parts,
            notes: Mutex::new(Notes { settled, ended: false }),
            finished: Arc::default(),
        });
        let held: Weak<Admitted> = Arc::downgrade(&admitted);
        Self { admitted, listed: limiter.0.closing.list(held) }
    }

    /// Returns the decision that admitted the work. It has a row for each item.
    pub fn decision(&self) -> &Decision {
        &self.admitted.decision
    }

    /// Returns the name of its leases and reservations.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.admitted.id
    }

    /// Returns true if this process still holds all leases and reservations, by its own clock, and
    /// the admission has not ended. Always true before the end if `on_error` allowed it.
    #[must_use]
    pub fn held(&self) -> bool {
        let mut holds = self.admitted.parts.iter().filter_map(|part| part.hold.as_ref());
        !self.admitted.notes().ended && holds.all(Hold::held)
    }

    /// Notes the units that the work took under a rule, to be sent at the end: 0 to 10^12. The last
    /// call wins. If two items have one rule, pass the item.
    ///
    /// An item that is not settled keeps its estimate, and a reservation is cancelled.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let tokens = Rule::gcra("tokens", 9000, 9000, "1m")?;
    /// let admitted = limiter.admit(&[tokens.of("42").cost(500)], None).await?;
    /// admitted.settle(&tokens, 420)?;
    /// admitted.finish().await;
    /// assert_eq!(limiter.peek(tokens.of("42").cost(0)).await?.remaining, 8580);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a lease, a backoff, a rule that is not of this admission or
    /// of two of its items, other units, and after the end.
    pub fn settle(&self, of: impl RuleOrItem, units: u64) -> Result<(), Error> {
        let at = self.admitted.position(&of)?;
        let name = of.rule().name();
        if units > COST_MAX {
            return Err(Error::invalid("units", "expected an integer from 0 to 10^12"));
        }
        if matches!(of.rule().kind(), Kind::Lease | Kind::Backoff) {
            let expected = format!("expected no lease or backoff, not rule {name}");
            return Err(Error::invalid("rule", expected));
        }
        let mut notes = self.admitted.notes();
        if notes.ended {
            let expected = format!("expected before the end: rule {name} is settled");
            return Err(Error::invalid("rule", expected));
        }
        notes.settled[at] = Some(units);
        Ok(())
    }

    /// Notes the units of the only item.
    pub(crate) fn settle_first(&self, units: u64) -> Result<(), Error> {
        self.admitted.parts.first().map_or(Ok(()), |part| self.settle(&part.item.rule, units))
    }

    /// Ends the admission: releases leases, commits or cancels reservations, and charges or refunds
    /// the difference between the units of other items and their cost. Waits for the first reply
    /// to each. Ends without a reply are repeated in the background where a repetition changes
    /// nothing.
    ///
    /// Errors are not returned: [`on_decision`](crate::Options::on_decision) gets them, and
    /// [`Counters::unsettled`](crate::Counters::unsettled) counts them. The ends are sent even if
    /// this future is dropped.
    pub async fn finish(&self) {
        self.admitted.end();
        self.admitted.finished.wait().await;
    }
}

impl Admitted {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index of the item that the caller means.
    fn position(&self, of: &impl RuleOrItem) -> Result<usize, Error> {
        let (rule, subject) = (of.rule(), of.subject());
        let is_meant = |part: &Part| {
            part.item.rule == *rule && subject.is_none_or(|subject| subject == part.item.subject)
        };
        let mut found = (0..self.parts.len()).filter(|at| is_meant(&self.parts[*at]));
        match (found.next(), found.next()) {
            (Some(at), None) => Ok(at),
            (first, _) => {
                let expected = if first.is_some() { "the item" } else { "a rule of the admission" };
                let expected = format!("expected {expected}, not rule {}", rule.name());
                Err(Error::invalid("rule", expected))
            }
        }
    }

    fn end(&self) {
        let settled = {
            let mut notes = self.notes();
            if std::mem::replace(&mut notes.ended, true) {
                return;
            }
            std::mem::take(&mut notes.settled)
        };
        let finishing = Finishing(self.finished.clone());
        let parts = self.parts.iter().zip(settled);
        let ends: Vec<_> = parts.filter_map(|(part, units)| self.end_part(part, units)).collect();
        if let (false, Ok(runtime)) = (ends.is_empty(), Handle::try_current()) {
            runtime.spawn(async move {
                for end in ends {
                    // The task fails if the runtime shuts down; no caller waits then.
                    let _ = end.await;
                }
                drop(finishing);
            });
        }
    }

    fn end_part(&self, part: &Part, settled: Option<u64>) -> Option<JoinHandle<()>> {
        let Part { item, hold, by_server, took_units } = part;
        if let Some(hold) = hold {
            return hold.end(match settled {
                _ if item.is_lease() => End::Release,
                Some(units) => End::Commit { units, or_charge: *by_server },
                None => End::Cancel,
            });
        }
        let units = settled.filter(|_| *took_units)?;
        let end = match units.checked_sub(item.cost) {
            Some(0) => return None,
            Some(above) => End::Charge(above),
            None => End::Refund(item.cost - units),
        };
        let (limiter, item) = (self.limiter.clone(), item.clone());
        Ending { limiter, item, end, expires: clock::now(), is_reported: true }.start()
    }
}

impl Held for Admitted {
    fn give_back(&self) {
        self.end();
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.admitted.end();
    }
}

/// The end of an admission under way. A drop completes it, even if its task did not finish because
/// the runtime shut down.
struct Finishing(Arc<SetOnce<()>>);

impl Drop for Finishing {
    fn drop(&mut self) {
        // It is set once: an admission ends once.
        let _ = self.0.set(());
    }
}

impl Limiter {
    /// Takes from all rules of the items, or from none, for work whose units are known at its end:
    /// several rules, leases and reservations in one call. The returned guard renews what it holds
    /// and settles every item when it is finished or dropped.
    ///
    /// The call goes to the server even if this process has permits or a cached denial. `tag` is
    /// the hash tag of all keys, which a cluster needs. The [`id`](Item::id) of an item names all
    /// leases and reservations; the default is a random one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let calls = Rule::gcra("calls", 10, 10, "1m")?;
    /// let tokens = Rule::fixed("tokens", 9000, "1h")?;
    /// let items = [calls.of("42"), tokens.of("42").cost(500)];
    /// let admitted = limiter.admit(&items, None).await?;
    /// admitted.settle(&tokens, 420)?; // the units that the work took
    /// admitted.finish().await;
    /// assert_eq!(limiter.peek(tokens.of("42").cost(0)).await?.remaining, 8580);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Denied`] with the decision if a rule denies: nothing was taken. Otherwise the same
    /// as [`check_all`](Limiter::check_all), and [`Error::InvalidArgument`] for two ids.
    pub async fn admit(&self, items: &[Item<'_>], tag: Option<&str>) -> Result<Admission, Error> {
        let began = clock::now();
        let random = random_id();
        let id = items.iter().find_map(|item| item.id).unwrap_or(&random);
        words::checked_held_id(Some(id))?;
        if items.iter().any(|item| item.id.is_some_and(|other| other != id)) {
            return Err(Error::invalid("id", "expected one id for all items"));
        }
        let items: Vec<_> = items.iter().map(|item| item.id(id)).collect();
        let calls = self.keyed(&items, tag)?;
        let mut command = words::check_all(&calls, false)?;
        let pending = Pending::new(self, &items, &calls, &mut command, true);
        let (command, budget) = (&command, &self.budget());
        let request = Request { command, calls: &calls, is_all: true, admits: true, began, budget };
        let decided = self.decide(&request, false, false).await;
        match self.record_all(EventKind::Check, decided, &items, began) {
            Ok(decision) => {
                let items = pending.decided(&decision)?;
                if !decision.allowed {
                    return Err(Error::Denied(Box::new(decision)));
                }
                Ok(Admission::new(self, id, decision, items))
            }
            Err(error) => {
                pending.refused();
                Err(error)
            }
        }
    }
}
