//! Logs when the server becomes unreachable, and when it replies again.

use std::time::Duration;

use redis_throttle_client::Limiter;
use tokio::time::sleep;

use crate::decider::Decider;
use crate::log::{Level, event};
use crate::refusals::hinted;

const EVERY: Duration = Duration::from_secs(1);
/// The replies after which the server counts as back: one node of a cluster may reply while
/// another one is down.
const REPLIES: u32 = 3;

/// Opens the first connection. Returns true if the server is down.
pub(crate) async fn is_down(limiter: &Limiter) -> bool {
    let Err(error) = limiter.ready().await else { return false };
    let message = error.to_string();
    let event = event(Level::Error, "server_away").with("message", &message);
    hinted(event, &message).write();
    true
}

/// Follows the calls without a reply, and the circuit breaker. An outage of a second may end before
/// the next look at the breaker, and a few failed calls do not open it. Sends calls only while the
/// server is down. Never returns.
pub(crate) async fn follow(decider: Decider, mut is_down: bool) {
    let limiter = decider.limiter();
    let (mut replies, mut counted) = (0, decider.without_reply());
    loop {
        sleep(EVERY).await;
        let without_reply = decider.without_reply();
        let fails = limiter.open_breakers() > 0 || without_reply != counted;
        counted = without_reply;
        if !is_down && fails {
            (is_down, replies) = (true, 0);
            let message = "calls fail or are late: limits decide by their on_error";
            event(Level::Error, "server_away").with("message", message).write();
        } else if is_down {
            let replied = !fails && limiter.ready().await.is_ok();
            replies = if replied { replies + 1 } else { 0 };
            if replies == REPLIES {
                is_down = false;
                event(Level::Info, "server_back").write();
            }
        }
    }
}
