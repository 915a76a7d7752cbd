//! The commands of calls: sent, replied to, or left by their callers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Calls, Effects, Lane, Stage};
use crate::Error;
use crate::net::{connection::Link, dial::undialled};

impl Calls {
    /// Records that the command of a call is sent at this instant and run time, and returns the
    /// connection. `None` if there is none: the call then waits for a dial.
    ///
    /// # Errors
    /// The end of the call, or the failure after which no dial is due yet.
    pub fn send(
        &mut self,
        id: usize,
        (now, run): (Instant, Duration),
        effects: &mut Effects,
    ) -> Result<Option<Arc<Link>>, Error> {
        if let Some(error) = &self.calls[id].ended {
            return Err(error.clone());
        }
        let Some(link) = self.link.clone().filter(|link| link.is_up()) else {
            self.start_dial(now, effects).map_err(undialled)?;
            self.stand(id);
            return Ok(None);
        };
        let call = &mut self.calls[id];
        let mut until = call.began_run + call.budget;
        let is_short = self.short_sent.is_some_and(|until| now < until);
        if call.is_probe || (is_short && call.lane == Lane::Call) {
            until = until.min(run + self.silence);
        }
        call.stage = Stage::Sent { link: link.clone(), until: Some(until) };
        if call.lane != Lane::Ready {
            if self.pending == 0 {
                self.heard = run;
            }
            self.pending += 1;
        }
        Ok(Some(link))
    }

    /// Records the reply to a call's command, perhaps a late one. The call has its turn again.
    pub fn hear(&mut self, id: usize, (now, run): (Instant, Duration)) {
        let call = &mut self.calls[id];
        let Stage::Sent { link, .. } = std::mem::replace(&mut call.stage, Stage::Turn) else {
            return;
        };
        link.record_reply();
        if call.ended.is_some() {
            call.ended = None;
        }
        self.used = now;
        if self.is_current(&link) {
            self.heard = run;
            self.pending -= usize::from(self.calls[id].lane != Lane::Ready);
            if self.hung.as_ref().is_some_and(|hung| Arc::ptr_eq(hung, &link)) {
                self.hung = None;
            }
        }
    }

    /// Leaves the command of a call, which was sent, without a caller: it keeps its place until its
    /// reply is read. Returns the run time that the call took. `None` if its connection has ended.
    pub fn drain(&mut self, id: usize, now: Instant, effects: &mut Effects) -> Option<Duration> {
        effects.is_last = self.closed;
        let took = self.took(id, now);
        let call = &mut self.calls[id];
        let Stage::Sent { link, until } = &mut call.stage else { return None };
        if !link.is_up() {
            return None;
        }
        (*until, call.waker, call.ended) = (None, None, None);
        if std::mem::take(&mut call.is_probe) {
            self.breaker.end_probe();
        }
        Some(took)
    }
}
