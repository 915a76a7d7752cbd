//! Logs when the server stops to answer, and when it answers again.

use std::time::Duration;

use redis_throttle_client::Limiter;
use tokio::time::sleep;

use crate::decider::Decider;
use crate::log::{Level, event};
use crate::refusals::hinted;

const EVERY: Duration = Duration::from_secs(1);
/// The answers after which the server counts as back: one node of a cluster may answer while
/// another one is away.
const ANSWERS: u32 = 3;

/// Opens the first connection. Returns true if the server is away.
pub(crate) async fn is_away(limiter: &Limiter) -> bool {
    let Err(error) = limiter.ready().await else { return false };
    let message = error.to_string();
    let event = event(Level::Error, "server_away").with("message", &message);
    hinted(event, &message).write();
    true
}

/// Follows the calls without an answer, and the circuit breaker. An outage of a second may be over
/// before anyone looks at the breaker, and few calls open none. Sends calls only while the server
/// is away. Never returns.
pub(crate) async fn follow(decider: Decider, mut is_away: bool) {
    let limiter = decider.limiter();
    let (mut answers, mut seen) = (0, decider.unanswered());
    loop {
        sleep(EVERY).await;
        let unanswered = decider.unanswered();
        let fails = limiter.open_breakers() > 0 || unanswered != seen;
        seen = unanswered;
        if !is_away && fails {
            (is_away, answers) = (true, 0);
            let message = "calls fail or are late: limits decide by their on_error";
            event(Level::Error, "server_away").with("message", message).write();
        } else if is_away {
            let answered = !fails && limiter.ready().await.is_ok();
            answers = if answered { answers + 1 } else { 0 };
            if answers == ANSWERS {
                is_away = false;
                event(Level::Info, "server_back").write();
            }
        }
    }
}
