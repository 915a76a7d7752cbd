//! The ends of what a caller took: sent in tasks of their own, and repeated until they are answered
//! where a repetition changes nothing.

use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::connection::Command;
use crate::item::{Keyed, Owned};
use crate::protocol::{self, Verb};
use crate::{Decision, Error, EventKind, Limiter, clock, reply};

/// The delay before an end without an answer is repeated. It doubles up to the maximum.
const REPEAT_MIN: Duration = Duration::from_millis(100);
const REPEAT_MAX: Duration = Duration::from_secs(5);
/// The longest time for which an end that is sent once waits for its slot.
const SLOT_MAX: Duration = Duration::from_secs(30);

/// What ends an item.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// Gives a permit back.
    Release,
    /// Takes the units of a reservation's work, and frees the rest. If the server does not know the
    /// reservation, `or_charge` charges the units.
    Commit { units: u64, or_charge: bool },
    /// Frees the units of a reservation.
    Cancel,
    /// Takes the units that the work took above its estimate.
    Charge(u64),
    /// Gives back the units that the work took below its estimate.
    Refund(u64),
}

impl End {
    /// Returns true if the end may be sent again without an answer: a repetition changes nothing.
    fn is_repeated(self) -> bool {
        matches!(self, Self::Release | Self::Commit { .. } | Self::Cancel)
    }

    fn kind(self) -> EventKind {
        match self {
            Self::Release => EventKind::Lease,
            Self::Commit { .. } => EventKind::Commit,
            Self::Cancel => EventKind::Cancel,
            Self::Charge(_) => EventKind::Charge,
            Self::Refund(_) => EventKind::Refund,
        }
    }
}

/// The end of one item.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub limiter: Limiter,
    pub item: Owned,
    pub end: End,
    /// The instant from which a repetition has no use: what is held expires by itself.
    pub expires: Instant,
    /// Whether the hook gets an event, and a failure is counted: for the ends of admissions.
    pub is_told: bool,
}

impl Ending {
    /// Sends the end in a task, so that the caller need not wait. The returned task ends after the
    /// first try; repetitions go on. `None` without a runtime: what is held expires by itself.
    pub fn start(self) -> Option<JoinHandle<()>> {
        let runtime = Handle::try_current().ok()?;
        Some(runtime.spawn(async move {
            let began = clock::now();
            match self.attempt().await {
                Err(error @ Error::Unavailable { .. }) if self.end.is_repeated() => {
                    tokio::spawn(async move { self.repeat(error, began).await });
                }
                ended => self.conclude(ended, began, false).await,
            }
        }))
    }

    /// Repeats an end that got no answer, until what is held expires or the limiter is closed.
    async fn repeat(self, mut error: Error, began: Instant) {
        let mut delay = REPEAT_MIN;
        while clock::now() + delay < self.expires {
            let closed = self.limiter.0.closed.wait();
            if tokio::time::timeout(delay, closed).await.is_ok() {
                break;
            }
            match self.attempt().await {
                Err(lost @ Error::Unavailable { .. }) => error = lost,
                ended => return self.conclude(ended, began, true).await,
            }
            delay = (delay * 2).min(REPEAT_MAX);
        }
        self.conclude(Err(error), began, true).await;
    }

    /// Sends the end once. Returns the decision of the reply; `None` for a release.
    async fn attempt(&self) -> Result<Option<Decision>, Error> {
        let call = self.item.keyed();
        let settled = |reply: &Value| reply::settled(&self.item.rule, reply).map(Some);
        match self.end {
            End::Release => {
                let command = protocol::release(&self.item.key, &self.item.id)?;
                self.ask(&command, |reply| reply::held(reply).map(|_| None)).await
            }
            End::Commit { units, .. } => self.ask(&protocol::commit(&call, units)?, settled).await,
            End::Cancel => self.ask(&protocol::cancel(&call)?, settled).await,
            End::Charge(units) => self.change(Verb::Charge, units, settled).await,
            End::Refund(units) => self.change(Verb::Refund, units, settled).await,
        }
    }

    async fn change(
        &self,
        verb: Verb,
        units: u64,
        read: impl FnOnce(&Value) -> Result<Option<Decision>, Error>,
    ) -> Result<Option<Decision>, Error> {
        let call = Keyed::of_cost(&self.item.rule, self.item.key.clone(), units);
        self.ask(&protocol::named(verb, &call)?, read).await
    }

    async fn ask(
        &self,
        command: &Command<'_>,
        read: impl FnOnce(&Value) -> Result<Option<Decision>, Error>,
    ) -> Result<Option<Decision>, Error> {
        let forget = || {
            // Denials of leases are not cached.
            if !matches!(self.end, End::Release) {
                self.limiter.0.denials.forget(&self.item.key);
            }
        };
        forget();
        let slot_until =
            if self.end.is_repeated() { self.expires } else { clock::now() + SLOT_MAX };
        let asked = self.limiter.ask_in_slot(command, slot_until, read).await;
        // Also remove a denial that was requested earlier and arrived in the meantime.
        forget();
        asked
    }

    /// Records the last result of the end. Charges the units of a reservation that the server does
    /// not know, unless a commit may have taken them.
    async fn conclude(
        &self,
        ended: Result<Option<Decision>, Error>,
        began: Instant,
        may_have_run: bool,
    ) {
        self.tell(ended.as_ref().map(Option::as_ref), began);
        if let (Ok(Some(decision)), End::Commit { units: units @ 1.., or_charge: true }) =
            (&ended, self.end)
            && !decision.allowed
            && !may_have_run
        {
            let charge = Self { end: End::Charge(units), ..self.clone() };
            let began = clock::now();
            let charged = charge.attempt().await;
            charge.tell(charged.as_ref().map(Option::as_ref), began);
        }
    }

    fn tell(&self, ended: Result<Option<&Decision>, &Error>, began: Instant) {
        if !self.is_told {
            return;
        }
        let Owned { rule, subject, .. } = &self.item;
        match ended {
            Ok(Some(decision)) => {
                self.limiter.tell(self.end.kind(), Ok(decision), rule, subject, began);
            }
            Ok(None) => {}
            Err(error) => {
                self.limiter.0.counts.unsettled();
                let kind = if error.is_rejection() { EventKind::Rejected } else { self.end.kind() };
                self.limiter.tell(kind, Err(error), rule, subject, began);
            }
        }
    }
}
