//! Makes calls as a job describes, for `make bench-clients ONLY=pressure`. `python/pressure.py`
//! describes jobs and replies.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis_throttle_client::{Decision, Error, Limiter, Rule};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;

/// An error of any kind, which ends the program.
type Failure = Box<dyn std::error::Error>;

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Terms {
    Fixed { limit: u64, period_s: u64 },
    Gcra { limit: u64, rate: u64, period_s: u64 },
}

impl Terms {
    fn rule(&self) -> Result<Rule, Error> {
        match *self {
            Self::Fixed { limit, period_s } => {
                Rule::fixed("bench", limit, Duration::from_secs(period_s))
            }
            Self::Gcra { limit, rate, period_s } => {
                Rule::gcra("bench", limit, rate, Duration::from_secs(period_s))
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct Job {
    name: String,
    rule: Terms,
    keys: u64,
    calls: u64,
    callers: u64,
    seconds: f64,
    rate: f64,
    burst: u64,
    peek_every: u64,
}

/// The outcome of a call, and its beginning and duration in microseconds.
type TimedCall = (String, u64, u64);

/// A job with its rule and its beginning.
struct Running {
    job: Job,
    rule: Rule,
    limiter: Limiter,
    began: Instant,
    next: AtomicU64,
}

impl Running {
    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    async fn call(&self, number: u64) -> TimedCall {
        let is_peek = self.job.peek_every > 0 && number.is_multiple_of(self.job.peek_every);
        let subject = format!("{}-{}", self.job.name, number % self.job.keys);
        let (began, item) = (self.now_us(), self.rule.of(&subject));
        let decided = match is_peek {
            true => self.limiter.peek(item).await,
            false => self.limiter.check(item).await,
        };
        let took = self.now_us() - began;
        let peek = if is_peek { "peek " } else { "" };
        (format!("{peek}{}", outcome(&decided)), began, took)
    }

    /// Makes calls one after the other.
    async fn caller(&self) -> Vec<TimedCall> {
        let mut calls = Vec::new();
        while self.job.seconds == 0.0 || self.began.elapsed().as_secs_f64() < self.job.seconds {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.job.calls {
                break;
            }
            calls.push(self.call(number).await);
            // A call that is decided locally never waits, so give the other tasks their turn.
            tokio::task::consume_budget().await;
        }
        calls
    }
}

fn outcome(decided: &Result<Decision, Error>) -> String {
    match decided {
        Ok(decision) => {
            let verdict = if decision.allowed { "allowed" } else { "denied" };
            let reason = decision.reason.map(|reason| format!(" {reason}"));
            format!("{verdict} {}{}", decision.source.as_str(), reason.unwrap_or_default())
        }
        Err(error) => format!("raised {error}"),
    }
}

/// Runs a job and returns its reply.
async fn run(line: &str, limiter: &Limiter) -> Result<serde_json::Value, Failure> {
    let job: Job = serde_json::from_str(line)?;
    let began_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1000.0;
    let (rule, next) = (job.rule.rule()?, AtomicU64::new(0));
    let running =
        Arc::new(Running { job, rule, limiter: limiter.clone(), began: Instant::now(), next });
    let mut tasks = JoinSet::new();
    if running.job.rate > 0.0 {
        for number in 0..running.job.calls {
            let paced = number.saturating_sub(running.job.burst);
            let due = running.began + Duration::from_secs_f64(paced as f64 / running.job.rate);
            tokio::time::sleep_until(due.into()).await;
            let running = running.clone();
            tasks.spawn(async move { vec![running.call(number).await] });
        }
    } else {
        for _ in 0..running.job.callers {
            let running = running.clone();
            tasks.spawn(async move { running.caller().await });
        }
    }
    let mut calls: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (outcome, began, took) in tasks.join_all().await.into_iter().flatten() {
        calls.entry(outcome).or_default().extend([began, took]);
    }
    Ok(json!({ "began_ms": began_ms, "calls": calls }))
}

/// Runs jobs until the input ends, and replies to each. The limiter begins with the first job.
pub async fn run_all(address: &str) -> Result<(), Failure> {
    let mut limiter = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if limiter.is_none() {
            limiter = Some(Limiter::new(redis::Client::open(format!("redis://{address}"))?));
        }
        let reply = run(&line, limiter.as_ref().ok_or("no limiter")?).await?;
        writeln!(std::io::stdout(), "{reply}")?;
    }
    Ok(())
}
