//! The limiter sends each call once, with a deadline. If the server does not decide, the rule's
//! `on_error` does.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{ErrorKind, RedisError};
use tokio::time::{Instant, timeout};

use crate::calls::steps::Request;
use crate::net::line::{Lane, READY_MIN};
use crate::net::{budget::Budget, node::Slots};
use crate::rules::{clock, item::Keyed};
use crate::wire::words::{self, Verb};
use crate::wire::{command::Command, replies};
use crate::{Backend, Counters, Decision, Error, EventKind, Item, Limiter, Reason, Span};

impl Limiter {
    /// Decides the call and takes its cost if it is allowed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use std::time::Duration;
    /// use redis_throttle_client::Rule;
    ///
    /// let api = Rule::gcra("api", 3, 10, "1m")?;
    /// for allowed in [true, true, true, false] {
    ///     assert_eq!(limiter.check(api.of("42")).await?.allowed, allowed);
    /// }
    /// assert_eq!(limiter.check(api.of("42")).await?.retry_after, Duration::from_secs(6));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::CommandRejected`], or [`Error::Closed`] after
    /// [`close`](Limiter::close). An unavailable server is not an error: known denials and the
    /// rule's `on_error` decide the call.
    pub async fn check(&self, item: Item<'_>) -> Result<Decision, Error> {
        self.check_within(item, &self.budget()).await
    }

    /// Returns the decision that [`check`](Limiter::check) would make, without taking anything.
    /// Cost 0 returns the status.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let api = Rule::gcra("api", 10, 10, "1m")?;
    /// assert!(limiter.peek(api.of("42")).await?.allowed);
    /// assert_eq!(limiter.peek(api.of("42").cost(0)).await?.remaining, 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check).
    pub async fn peek(&self, item: Item<'_>) -> Result<Decision, Error> {
        let began = clock::now();
        let call = self.keyed_item(&item)?;
        let command = words::named(Verb::Peek, &call)?;
        let (calls, budget) = (std::slice::from_ref(&call), &self.budget());
        let request =
            Request { command: &command, calls, is_all: false, admits: false, began, budget };
        let decided = self.decide(&request, false, true).await;
        self.record(EventKind::Peek, decided, &item, began)
    }

    /// Gives units back, up to the full allowance. Do not repeat the call: each repetition gives
    /// units back again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let api = Rule::gcra("api", 10, 10, "1m")?;
    /// assert_eq!(limiter.check(api.of("42").cost(5)).await?.remaining, 5);
    /// assert_eq!(limiter.refund(api.of("42").cost(3)).await?.remaining, 8);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server is unavailable, otherwise the same as
    /// [`check`](Limiter::check).
    pub async fn refund(&self, item: Item<'_>) -> Result<Decision, Error> {
        let call = self.keyed_item(&item)?;
        self.change(Verb::Refund, &call, item.subject, &self.budget()).await
    }

    /// Takes the cost even if it is more than the units left, for work that cost more than
    /// estimated. Do not repeat the call.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let tokens = Rule::gcra("tokens", 9000, 9000, "1m")?;
    /// assert_eq!(limiter.check(tokens.of("42").cost(8500)).await?.remaining, 500);
    /// assert_eq!(limiter.charge(tokens.of("42").cost(600)).await?.remaining, 0);
    /// assert!(!limiter.check(tokens.of("42")).await?.allowed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as [`refund`](Limiter::refund).
    pub async fn charge(&self, item: Item<'_>) -> Result<Decision, Error> {
        let call = self.keyed_item(&item)?;
        self.change(Verb::Charge, &call, item.subject, &self.budget()).await
    }

    /// Resets the subject's limit under this rule: deletes its state on the server and in this
    /// process.
    ///
    /// # Errors
    /// The same as [`refund`](Limiter::refund).
    pub async fn forget(&self, item: Item<'_>) -> Result<(), Error> {
        let began = clock::now();
        let Keyed { key, .. } = self.keyed_item(&item)?;
        self.replace(&words::forget(&key), &item, began).await
    }

    /// Denies the subject under this rule for a time: 1 ms to 366 days. Needs the module.
    /// [`forget`](Limiter::forget) ends the ban.
    ///
    /// # Errors
    /// The same as [`refund`](Limiter::refund).
    pub async fn block(&self, item: Item<'_>, duration: impl Span) -> Result<(), Error> {
        let began = clock::now();
        let Keyed { key, .. } = self.keyed_item(&item)?;
        self.replace(&words::block(&key, &duration)?, &item, began).await
    }

    /// Sends a command that replaces the state of its key, and removes what this process keeps of
    /// that state.
    async fn replace(
        &self,
        command: &Command<'_>,
        item: &Item<'_>,
        began: Instant,
    ) -> Result<(), Error> {
        self.forget_here(command.key());
        let replaced = self.send(command, began, &self.budget(), |_| Ok(())).await;
        // Remove again: calls that were already pending may have stored results in the meantime.
        self.forget_here(command.key());
        if let Err(error) = &replaced {
            self.report_rejection(error, item.rule, item.subject, began);
        }
        replaced
    }

    /// Returns the words of the command that [`check`](Limiter::check) would send with the module.
    /// Sends nothing. The gateway shows them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], as the call returns it.
    #[doc(hidden)]
    pub fn words_of(&self, item: Item<'_>) -> Result<Vec<String>, Error> {
        let call = self.keyed_item(&item)?;
        let command = words::check(&call)?;
        Ok(command.words().iter().map(|word| word.to_string()).collect())
    }

    /// Returns the counts of decisions and rejections since the limiter was created.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counts.so_far()
    }

    /// Returns the number of nodes whose circuit breaker is open: calls to them end at once.
    #[must_use]
    pub fn open_breakers(&self) -> usize {
        self.0.nodes.open_breakers()
    }

    /// Sends one status call and returns the back end that replied. Waits for 5 s, or for the
    /// timeout if that is longer. A refused dial ends it at once.
    ///
    /// # Errors
    /// [`Error::Unavailable`], whose text says how far the call came, or
    /// [`Error::CommandRejected`] if the server refuses the call or lacks the selected back end.
    pub async fn ready(&self) -> Result<Backend, Error> {
        let key = self.0.keys.key("ready", "ready", None)?;
        let budget = Budget::new(READY_MIN.max(self.0.options.deadlines().0));
        let command = words::probe(&key);
        loop {
            let probe = self.send_in(Lane::Ready, &command, clock::now(), &budget, |_| Ok(()));
            match probe.await {
                Ok(()) => return Ok(self.0.backends.found()),
                // Other calls found that the server is silent.
                Err(Error::Unavailable { reason: Reason::Timeout, .. })
                    if !budget.left().is_zero() => {}
                Err(error) => return Err(or_unready(error)),
            }
        }
    }

    /// Closes the limiter: every later call returns [`Error::Closed`], and so
    /// do calls in line. Calls that were sent get their replies.
    ///
    /// Gives back what is held: leases and open admissions end as at their own ends, which then
    /// send nothing, and prefetched permits are refunded. Waits for the replies at most
    /// [`timeout`](crate::Options::timeout). Each end without a reply is one
    /// [`Counters::unsettled`](Counters::unsettled). A second call waits for the first.
    pub async fn close(&self) {
        if !self.0.closing.has_begun.swap(true, Ordering::AcqRel) {
            let done = Done(self.whole());
            tokio::spawn(async move { done.0.end().await });
        }
        self.0.closing.done.wait().await;
    }

    async fn end(&self) {
        let closing = &self.0.closing;
        // It is set once: the end runs once.
        let _ = closing.closed.set(());
        closing.all_held().iter().for_each(|held| held.give_back());
        let nodes = self.0.nodes.all();
        nodes.iter().for_each(|node| node.close());
        let replies = async {
            self.refund_permits().await;
            for node in &nodes {
                node.quiet().await;
            }
            closing.no_open().await;
        };
        if timeout(self.budget().left(), replies).await.is_err() {
            let _ = closing.given_up.set(());
            // The tasks that wait for replies end now.
            let _ = timeout(Duration::from_secs(1), closing.no_open()).await;
        }
        self.0.error_log.flush();
    }

    async fn refund_permits(&self) {
        for (key, rule, cost) in self.0.grants.drain().await {
            let call = Keyed::of_cost(&rule, key, cost);
            let Ok(command) = words::named(Verb::Refund, &call) else { continue };
            let read = |reply: &redis::Value| replies::settled(&call, reply);
            let _ = self.send_in_slot(Slots::Ends, &command, clock::now(), read).await;
        }
    }
}

/// Marks the limiter as closed for good, even if the task of its end did not finish because the
/// runtime shut down.
struct Done(Limiter);

impl Drop for Done {
    fn drop(&mut self) {
        // The end runs once.
        let _ = self.0.0.closing.done.set(());
    }
}

/// Adds to the error of a status call how far the call came.
fn or_unready(error: Error) -> Error {
    let (reason, source) = match error {
        Error::Unavailable { reason, source } => (reason, source),
        other => return other,
    };
    let reached = match reason {
        Reason::Timeout => "connected, logged in, no reply to RL.PEEK",
        Reason::Connection => "not connected and logged in",
        _ => return Error::Unavailable { reason, source },
    };
    let cause = source.map_or_else(|| reason.to_string(), |source| source.to_string());
    let source = Some(RedisError::from((ErrorKind::Io, reached, cause)));
    Error::Unavailable { reason, source }
}
