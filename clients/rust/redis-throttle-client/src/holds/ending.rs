//! The ends of items: sent in tasks of their own, and repeated until there is a reply where a
//! repetition changes nothing.

use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::calls::closing::Open;
use crate::net::node::Slots;
use crate::rules::clock;
use crate::rules::item::{Keyed, Owned};
use crate::wire::words::{self, Verb};
use crate::wire::{command::Command, replies};
use crate::{Decision, Error, EventKind, Limiter, Reason};

/// The delay before an end without a reply is repeated. It doubles up to the maximum.
const REPEAT_MIN: Duration = Duration::from_millis(100);
const REPEAT_MAX: Duration = Duration::from_secs(5);
/// The longest time for which an end that is sent once waits for its slot.
const SLOT_MAX: Duration = Duration::from_secs(30);

/// The command that ends an item.
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
    /// Returns true if the end may be sent again without a reply: a repetition changes nothing.
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
    pub is_reported: bool,
}

/// The tries of an end.
struct Tries {
    ending: Ending,
    /// Whether a try without a reply may have run.
    may_have_run: bool,
    #[allow(dead_code, reason = "its drop signals to `close` that this end is over")]
    open: Open,
}

impl Ending {
    /// Sends the end in a task, so that the caller need not wait. The returned task ends after the
    /// first try; repetitions go on. `None` without a runtime: what is held expires by itself.
    pub fn start(self) -> Option<JoinHandle<()>> {
        let runtime = Handle::try_current().ok()?;
        let open = self.limiter.0.closing.open();
        let mut tries = Tries { ending: self, may_have_run: false, open };
        Some(runtime.spawn(async move {
            let began = clock::now();
            match tries.attempt().await {
                Err(error @ Error::Unavailable { .. }) if tries.is_repeated() => {
                    tokio::spawn(tries.repeat(error, began));
                }
                ended => tries.conclude(ended, began).await,
            }
        }))
    }

    async fn send(&self, command: &Command<'_>) -> Result<Option<Decision>, Error> {
        let forget = || {
            // Denials of leases are not cached.
            if !matches!(self.end, End::Release) {
                let is_refund = matches!(self.end, End::Refund(_));
                self.limiter.forget_denials(&self.item.key, is_refund);
            }
        };
        let read = |reply: &Value| match self.end {
            End::Release => replies::held(reply).map(|_| None),
            _ => replies::settled(&self.item.keyed(), reply).map(Some),
        };
        forget();
        let slot_until =
            if self.end.is_repeated() { self.expires } else { clock::now() + SLOT_MAX };
        let ended = self.limiter.send_in_slot(Slots::Ends, command, slot_until, read).await;
        // Also remove a denial that was requested earlier and arrived in the meantime.
        forget();
        ended
    }

    /// Counts an end that is not sent, because the limiter has ended.
    pub fn give_up(&self, began: Instant) {
        self.report(Err(&Error::unavailable(Reason::Timeout)), began);
    }

    fn report(&self, ended: Result<Option<&Decision>, &Error>, began: Instant) {
        // After the end of the limiter no block is left to notice that an end is missing.
        if !self.is_reported && (ended.is_ok() || !self.limiter.is_closed()) {
            return;
        }
        let Owned { rule, subject, .. } = &self.item;
        match ended {
            Ok(Some(decision)) => {
                self.limiter.report(self.end.kind(), Ok(decision), rule, subject, began);
            }
            Ok(None) => {}
            Err(error) => {
                self.limiter.0.counts.unsettled();
                let kind = if error.is_rejection() { EventKind::Rejected } else { self.end.kind() };
                self.limiter.report(kind, Err(error), rule, subject, began);
            }
        }
    }
}

impl Tries {
    fn is_repeated(&self) -> bool {
        self.ending.end.is_repeated() && !self.ending.limiter.is_closed()
    }

    /// Repeats an end that got no reply, until what is held expires or the limiter is closed.
    async fn repeat(mut self, mut error: Error, began: Instant) {
        let mut delay = REPEAT_MIN;
        while clock::now() + delay < self.ending.expires {
            let closed = self.ending.limiter.0.closing.closed.wait();
            if tokio::time::timeout(delay, closed).await.is_ok() {
                break;
            }
            match self.attempt().await {
                Err(lost @ Error::Unavailable { .. }) => error = lost,
                ended => return self.conclude(ended, began).await,
            }
            delay = (delay * 2).min(REPEAT_MAX);
        }
        self.conclude(Err(error), began).await;
    }

    /// Records the last result of the end. Charges the units of a reservation that the server does
    /// not know, unless a commit may have taken them.
    async fn conclude(&mut self, ended: Result<Option<Decision>, Error>, began: Instant) {
        self.ending.report(ended.as_ref().map(Option::as_ref), began);
        if let (Ok(Some(decision)), End::Commit { units: units @ 1.., or_charge: true }) =
            (&ended, self.ending.end)
            && !decision.allowed
            && !self.may_have_run
        {
            self.ending.end = End::Charge(units);
            let began = clock::now();
            let charged = self.attempt().await;
            self.ending.report(charged.as_ref().map(Option::as_ref), began);
        }
    }

    /// Sends the end once. Returns the decision of the reply; `None` for a release.
    async fn attempt(&mut self) -> Result<Option<Decision>, Error> {
        let (item, end) = (&self.ending.item, self.ending.end);
        let call = match end {
            End::Charge(units) | End::Refund(units) => {
                Keyed::of_cost(&item.rule, item.key.clone(), units)
            }
            _ => item.keyed(),
        };
        let mut command = match end {
            End::Release => words::release(&item.key, &item.id)?,
            End::Commit { units, .. } => words::commit(&call, units)?,
            End::Cancel => words::cancel(&call)?,
            End::Charge(_) => words::named(Verb::Charge, &call)?,
            End::Refund(_) => words::named(Verb::Refund, &call)?,
        };
        let sent = command.record();
        let ended = self.ending.limiter.0.closing.or_given_up(self.ending.send(&command)).await;
        let ended = ended.unwrap_or_else(|| Err(Error::unavailable(Reason::Timeout)));
        let is_lost = matches!(ended, Err(Error::Unavailable { .. }));
        self.may_have_run |= is_lost && sent.may_have_run();
        ended
    }
}
