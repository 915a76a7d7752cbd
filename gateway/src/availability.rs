//! Logs when the server stops to answer, and when it answers again.

use std::time::Duration;

use redis_throttle_client::redis::{ErrorKind, ServerErrorKind};
use redis_throttle_client::{Error, Limiter, Reason};
use tokio::time::{Instant, sleep};

use crate::log::{Level, event};
use crate::refusals::hinted;

const EVERY: Duration = Duration::from_secs(1);
/// The time for the first answer.
const FIRST: Duration = Duration::from_secs(2);
/// The pause before the first call is tried again.
const AGAIN: Duration = Duration::from_millis(50);
/// The answers after which the server counts as back: one node of a cluster may answer while
/// another one is away.
const ANSWERS: u32 = 3;

/// Opens the first connection. It may take longer than a call, which is tried again if it is late,
/// for the longer of two seconds and two calls. Returns true if the server is away.
pub(crate) async fn is_away(limiter: &Limiter, timeout: Duration) -> bool {
    let end = Instant::now() + FIRST.max(timeout.saturating_mul(2));
    loop {
        let Err(error) = limiter.ready().await else { return false };
        let is_late =
            matches!(error, Error::Unavailable { reason: Reason::Timeout | Reason::Circuit, .. });
        if !is_late || Instant::now() >= end {
            let is_moved = is_moved(&error);
            let event = event(Level::Error, "server_away").with("message", error);
            hinted(event, is_moved).write();
            return true;
        }
        sleep(AGAIN).await;
    }
}

/// Returns true if a node of a cluster has named another one.
fn is_moved(error: &Error) -> bool {
    let Error::Unavailable { source: Some(source), .. } = error else { return false };
    source.kind() == ErrorKind::Server(ServerErrorKind::Moved)
}

/// Follows the circuit breaker. Sends calls only while the server is away. Never returns.
pub(crate) async fn follow(limiter: Limiter, mut is_away: bool) {
    let mut answers = 0;
    loop {
        sleep(EVERY).await;
        let is_open = limiter.open_breakers() > 0;
        if !is_away && is_open {
            (is_away, answers) = (true, 0);
            let message = "calls fail or are late: limits decide by their on_error";
            event(Level::Error, "server_away").with("message", message).write();
        } else if is_away {
            let answered = !is_open && limiter.ready().await.is_ok();
            answers = if answered { answers + 1 } else { 0 };
            if answers == ANSWERS {
                is_away = false;
                event(Level::Info, "server_back").write();
            }
        }
    }
}
