//! The constructors of rules, one for each algorithm.

use std::time::Duration;

use super::{Rule, Terms};
use crate::rules::durations::{self, DAY_US, Span, checked_us};
use crate::rules::rule::{UNITS_MAX, checked_name, units};
use crate::{Count, Error, Kind, QuotaUnit};

const HOLDERS_MAX: u64 = 1_000_000;
const SECOND_US: u128 = 1_000_000;
const REFILL_MAX_US: u128 = 36_525 * DAY_US as u128;
const PER_SECOND_MAX: u128 = 1_000_000_000;

impl Rule {
    /// Creates a GCRA rule: `burst` at once, then `rate` per `period`. The default choice for APIs.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let api = Rule::gcra("api", 10, 10, "1m")?;
    /// assert_eq!(limiter.check(api.of("42")).await?.remaining, 9);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the server would refuse a number: units are 1 to 10^12, a rate
    /// is at most 10^9 per second, and an empty bucket must refill within 36,525 days.
    pub fn gcra(name: &str, burst: u64, rate: u64, period: impl Span) -> Result<Self, Error> {
        Self::rated(Kind::Gcra, "burst", name, burst, rate, period)
    }

    /// Creates a token bucket as [`Rule::gcra`] does, for limits that change at run time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let tokens = Rule::token_bucket("tokens", 9000, 9000, "1m")?;
    /// assert_eq!(limiter.check(tokens.of("42").cost(500)).await?.remaining, 8500);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as [`Rule::gcra`].
    pub fn token_bucket(
        name: &str,
        capacity: u64,
        rate: u64,
        period: impl Span,
    ) -> Result<Self, Error> {
        Self::rated(Kind::TokenBucket, "capacity", name, capacity, rate, period)
    }

    /// Creates a leaky bucket, which queues calls: `retry_after` is the time that an allowed
    /// call must wait before it acts.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use std::time::Duration;
    /// use redis_throttle_client::Rule;
    ///
    /// let mails = Rule::leaky_bucket("mails", 10, 1, "1s")?;
    /// assert_eq!(limiter.check(mails.of("42")).await?.retry_after, Duration::ZERO);
    /// assert_eq!(limiter.check(mails.of("42")).await?.retry_after, Duration::from_secs(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as [`Rule::gcra`].
    pub fn leaky_bucket(
        name: &str,
        capacity: u64,
        rate: u64,
        period: impl Span,
    ) -> Result<Self, Error> {
        Self::rated(Kind::LeakyBucket, "capacity", name, capacity, rate, period)
    }

    /// Creates a fixed window: `limit` per window. A window opens at the first call; if
    /// [`aligned`], at multiples of its length since 1970.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use std::time::Duration;
    /// use redis_throttle_client::Rule;
    ///
    /// let exports = Rule::fixed("exports", 5, "1h")?;
    /// let decision = limiter.check(exports.of("42")).await?;
    /// assert_eq!((decision.remaining, decision.reset_after), (4, Duration::from_secs(3600)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the limit is not 1 to 10^12, or the window not 1 ms to 366
    /// days.
    ///
    /// [`aligned`]: Rule::aligned
    pub fn fixed(name: &str, limit: u64, window: impl Span) -> Result<Self, Error> {
        Self::windowed(Kind::Fixed, name, limit, window)
    }

    /// Creates a sliding window: about `limit` in any window, estimated from two counters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let posts = Rule::sliding("posts", 100, "1h")?;
    /// assert_eq!(limiter.check(posts.of("42")).await?.remaining, 99);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as [`Rule::fixed`].
    pub fn sliding(name: &str, limit: u64, window: impl Span) -> Result<Self, Error> {
        Self::windowed(Kind::Sliding, name, limit, window)
    }

    /// Creates a sliding log: never more than `limit` in any window.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let resets = Rule::sliding_log("resets", 3, "1h")?;
    /// assert_eq!(limiter.check(resets.of("42")).await?.remaining, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as [`Rule::fixed`].
    pub fn sliding_log(name: &str, limit: u64, window: impl Span) -> Result<Self, Error> {
        Self::windowed(Kind::SlidingLog, name, limit, window)
    }

    /// Creates a backoff: `attempts` without delay, then delays that double from `base` to `max`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use std::time::Duration;
    /// use redis_throttle_client::Rule;
    ///
    /// let login = Rule::backoff("login", 2, "1s", "15m", "1d")?;
    /// for allowed in [true, true, false] {
    ///     assert_eq!(limiter.check(login.of("42")).await?.allowed, allowed);
    /// }
    /// assert_eq!(limiter.check(login.of("42")).await?.retry_after, Duration::from_secs(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `attempts` is not 1 to 10^6, `base` is above `max`, or
    /// `forget` is not above `max`.
    pub fn backoff(
        name: &str,
        attempts: u64,
        base: impl Span,
        max: impl Span,
        forget: impl Span,
    ) -> Result<Self, Error> {
        let attempts_text = units(attempts, "attempts", HOLDERS_MAX)?;
        let base_us = checked_us(&base, "base")?;
        let max_us = checked_us(&max, "max")?;
        let forget_us = checked_us(&forget, "forget")?;
        if base_us > max_us {
            return Err(Error::invalid("base", "expected at most the max duration"));
        }
        if forget_us <= max_us {
            return Err(Error::invalid("forget", "expected more than the max duration"));
        }
        let mut words = vec!["BACKOFF".to_owned(), attempts_text];
        words.extend([base_us, max_us, forget_us].map(durations::text));
        Self::build(Kind::Backoff, name, words, |terms| terms.limit = Some(attempts))
    }

    /// Creates a quota: an allowance per calendar unit, in UTC or the given [`zone`](Rule::zone).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::{QuotaUnit, Rule};
    ///
    /// let tokens = Rule::quota("tokens", 100_000, QuotaUnit::Month)?;
    /// assert_eq!(limiter.check(tokens.of("42").cost(500)).await?.remaining, 99_500);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the limit is not 1 to 10^12.
    pub fn quota(name: &str, limit: u64, unit: QuotaUnit) -> Result<Self, Error> {
        let limit_text = units(limit, "limit", UNITS_MAX)?;
        let words = vec!["QUOTA".to_owned(), limit_text, unit.word().to_owned()];
        Self::build(Kind::Quota, name, words, |terms| {
            terms.limit = Some(limit);
            terms.window = unit.window_us().map(Duration::from_micros);
        })
    }

    /// Creates a lease: at most `limit` holders at once. A permit expires after `ttl`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let jobs = Rule::lease("jobs", 4, "30s")?;
    /// let job = limiter.lease(jobs.of("42")).await?;
    /// assert_eq!(job.decision().remaining, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the limit is not 1 to 10^6.
    pub fn lease(name: &str, limit: u64, ttl: impl Span) -> Result<Self, Error> {
        let limit_text = units(limit, "limit", HOLDERS_MAX)?;
        let ttl_us = checked_us(&ttl, "ttl")?;
        let words = vec!["LEASE".to_owned(), limit_text, durations::text(ttl_us)];
        Self::build(Kind::Lease, name, words, |terms| {
            terms.limit = Some(limit);
            terms.period_us = ttl_us;
        })
    }

    /// Creates a rule for the policy that the server stores under `name`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let plan = Rule::policy("plan")?.default(Rule::gcra("plan", 10, 10, "1m")?)?;
    /// // The default applies, because this server stores no policy `plan`.
    /// assert_eq!(limiter.check(plan.of("42")).await?.remaining, 9);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the name is invalid.
    pub fn policy(name: &str) -> Result<Self, Error> {
        Self::build(Kind::Policy, name, vec!["USE".to_owned(), name.to_owned()], |_| {})
    }

    fn build(
        kind: Kind,
        name: &str,
        words: Vec<String>,
        complete: impl FnOnce(&mut Terms),
    ) -> Result<Self, Error> {
        checked_name(name, "name")?;
        let mut terms = Terms {
            kind,
            name: name.into(),
            command: words.first().map_or_else(String::new, |word| format!("RL.{word}")),
            words,
            options: Vec::new(),
            window: None,
            limit: None,
            period_us: 0,
            rate: 0,
            on_error: None,
            prefetch: None,
            local_share: 1.0,
            default: None,
            count: Count::ALL,
        };
        complete(&mut terms);
        Ok(Self(std::sync::Arc::new(terms)))
    }

    fn rated(
        kind: Kind,
        capacity_name: &'static str,
        name: &str,
        capacity: u64,
        rate: u64,
        period: impl Span,
    ) -> Result<Self, Error> {
        let capacity_text = units(capacity, capacity_name, UNITS_MAX)?;
        let rate_text = units(rate, "rate", UNITS_MAX)?;
        let us = checked_us(&period, "period")?;
        if u128::from(rate) * SECOND_US > PER_SECOND_MAX * u128::from(us) {
            return Err(Error::invalid("rate", "expected at most 10^9 per second"));
        }
        let full_us = u128::from(capacity) * u128::from(us);
        if full_us > REFILL_MAX_US * u128::from(rate) {
            let expected = "expected at most 36525 days to refill from empty";
            return Err(Error::invalid(capacity_name, expected));
        }
        let word = match kind {
            Kind::Gcra => "GCRA",
            Kind::TokenBucket => "TOKENBUCKET",
            _ => "LEAKYBUCKET",
        };
        let words = vec![word.to_owned(), capacity_text, rate_text, durations::text(us)];
        Self::build(kind, name, words, |terms| {
            let window_us = u64::try_from(full_us.div_ceil(u128::from(rate))).ok();
            terms.window = window_us.map(Duration::from_micros);
            terms.limit = Some(capacity);
            terms.period_us = us;
            terms.rate = rate;
        })
    }

    fn windowed(kind: Kind, name: &str, limit: u64, window: impl Span) -> Result<Self, Error> {
        let limit_text = units(limit, "limit", UNITS_MAX)?;
        let us = checked_us(&window, "window")?;
        let word = match kind {
            Kind::Fixed => "FIXED",
            Kind::Sliding => "SLIDING",
            _ => "SLIDINGLOG",
        };
        let words = vec![word.to_owned(), limit_text, durations::text(us)];
        Self::build(kind, name, words, |terms| {
            terms.window = Some(Duration::from_micros(us));
            terms.limit = Some(limit);
            terms.period_us = us;
        })
    }
}
