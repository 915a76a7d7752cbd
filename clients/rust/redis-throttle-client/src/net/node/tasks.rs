//! The tasks of a node: its timer, and its dials.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{sleep, sleep_until};

use super::Node;
use crate::net::connection::Connection;
use crate::rules::clock;

/// The turns of the scheduler in which the driver reads what has arrived, and callers see it.
const TURNS_TO_READ: usize = 3;
/// The time that other threads have for it.
const TIME_TO_READ: Duration = Duration::from_millis(1);

/// The timer of a node. Dropping it has the calls start another one: its runtime may have shut
/// down.
pub(super) struct Timer {
    pub node: Arc<Node>,
    pub number: u64,
}

impl Timer {
    pub async fn run(self) {
        let node = &self.node;
        loop {
            let Some(at) = node.calls().fires_at(self.number) else { return };
            sleep_until(at).await;
            let is_due = node.calls().is_due(clock::now());
            if is_due {
                let_others_read().await;
            }
            let goes_on = node.change(|calls, effects| {
                calls.fires_at(self.number).is_some() && calls.fire(clock::now(), effects)
            });
            if !goes_on {
                return;
            }
        }
    }
}

/// Lets the driver read the replies that have arrived, and the callers see them: the program may
/// have been busy for longer than a deadline.
async fn let_others_read() {
    // Another thread may run the driver, or the callers, while this one has nothing else to do.
    if Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
        sleep(TIME_TO_READ).await;
    }
    for _ in 0..TURNS_TO_READ {
        tokio::task::yield_now().await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let now = clock::now();
        self.node.change(|calls, effects| calls.stop_timer(self.number, now, effects));
    }
}

/// A dial under way, in a task of its own, because the connection serves later calls too. Dropping
/// it ends the dial for its callers, even if its task did not finish because the runtime shut down.
pub(super) struct DialTask {
    pub node: Arc<Node>,
    pub number: u64,
    pub ended: bool,
}

impl DialTask {
    pub async fn run(mut self) {
        let dialled = self.node.dialler.dial().await;
        self.end(dialled);
    }

    fn end(&mut self, dialled: Result<Box<dyn Connection>, RedisError>) {
        self.ended = true;
        let (number, now) = (self.number, clock::now());
        self.node.change(|calls, effects| calls.dialled(number, dialled, now, effects));
    }
}

impl Drop for DialTask {
    fn drop(&mut self) {
        if !self.ended {
            self.end(Err(io::Error::other("the dial was given up").into()));
        }
    }
}
