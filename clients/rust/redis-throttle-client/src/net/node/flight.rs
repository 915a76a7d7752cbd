//! A command on its way, and one whose caller has gone.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use redis::{RedisError, Value};
use tokio::runtime::Handle;

use super::{Node, Pass, is_loss};
use crate::Error;
use crate::calls::denials::{Kept, Late};
use crate::net::breaker::Tally;
use crate::net::connection::{OwnedReply, Sent};
use crate::net::link::Link;
use crate::rules::clock;

/// A command that was sent. If its caller goes, it drains.
pub(super) struct Flight<'a> {
    pub pass: &'a Pass,
    pub link: Arc<Link>,
    pub reply: Option<OwnedReply>,
    pub sent: Option<&'a Sent>,
    pub late: Option<&'a Late<'a>>,
}

impl Flight<'_> {
    /// Waits for the reply.
    ///
    /// # Errors
    /// The end of the call.
    pub async fn answer(&mut self) -> Result<Result<Value, RedisError>, Error> {
        poll_fn(|context| {
            let Some(reply) = &mut self.reply else { return Poll::Pending };
            match reply.as_mut().poll(context) {
                Poll::Ready(answer) => {
                    self.reply = None;
                    let is_answered = !answer.as_ref().is_err_and(is_loss);
                    self.pass.is_answered.store(is_answered, Ordering::Relaxed);
                    Poll::Ready(Ok(answer))
                }
                Poll::Pending => self.pass.poll_end(context).map(Err),
            }
        })
        .await
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let Some(reply) = self.reply.take() else { return };
        let node = &self.pass.node;
        let Ok(runtime) = Handle::try_current() else { return };
        let (id, now) = (self.pass.id, clock::now());
        let Some(took) = node.change(|calls, effects| calls.drain(id, now, effects)) else {
            return;
        };
        // A call's command drains once: nothing is sent after that.
        let _ = self.pass.drained.set(took);
        if let Some(sent) = self.sent {
            sent.begin_draining();
        }
        let draining = Draining {
            node: node.clone(),
            id: self.pass.id,
            link: self.link.clone(),
            sent: self.sent.cloned(),
            tally: Tally::Nothing,
            is_answered: false,
        };
        runtime.spawn(draining.run(reply, self.late.map(Late::kept)));
    }
}

/// A command whose caller has gone.
pub(super) struct Draining {
    node: Arc<Node>,
    id: usize,
    link: Arc<Link>,
    sent: Option<Sent>,
    tally: Tally,
    is_answered: bool,
}

impl Draining {
    async fn run(mut self, mut reply: OwnedReply, late: Option<Kept>) {
        let (node, id) = (self.node.clone(), self.id);
        let answer = poll_fn(|context| {
            if let Poll::Ready(answer) = reply.as_mut().poll(context) {
                return Poll::Ready(Some(answer));
            }
            node.calls().ended(id, context.waker()).map_or(Poll::Pending, |_| Poll::Ready(None))
        })
        .await;
        let Some(answer) = answer else { return };
        self.is_answered = !answer.as_ref().is_err_and(is_loss);
        match answer {
            Ok(value) => {
                self.tally = Tally::Answered;
                if let Some(sent) = self.sent.as_ref().filter(|_| is_denial(&value)) {
                    sent.set(false);
                }
                if let Some(late) = late {
                    late.remember(&value);
                }
            }
            Err(error) => {
                if let Some(sent) = self.sent.as_ref().filter(|_| !is_loss(&error)) {
                    sent.set(false);
                }
                self.tally = node.refused(&self.link, error).tally;
            }
        }
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        let (id, tally, now) = (self.id, (self.tally, self.is_answered), clock::now());
        self.node.change(|calls, effects| calls.leave(id, tally, now, effects));
        if let Some(sent) = &self.sent {
            sent.end_draining();
        }
    }
}

/// Returns true if a reply denies the call: its first integer is 0.
fn is_denial(reply: &Value) -> bool {
    matches!(reply, Value::Array(values) if values.first() == Some(&Value::Int(0)))
}
