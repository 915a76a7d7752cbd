//! Measures calls per second and their latency through redis-rs, for `make bench-clients`.
//!
//! `bench-rust-client SOCKET` prints its contestants as one line of JSON, then replies to each job
//! on standard input with one line. One contestant is the client. The other is the usual way in
//! Rust: a Lua script through redis-rs that counts in a fixed window, the most common and the
//! cheapest kind of limit. Both use the same driver, one multiplexed connection per job, and the
//! same loop. The reply to a job of the scenario `local` or `forget` is the median of one call.
//! `bench-rust-client pressure HOST:PORT` runs the jobs of `pressure.rs` instead.

mod pressure;

use std::future::Future;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script};
use redis_throttle_client::{Decision, Error, Limiter, OnError, Options, Rule};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The timeout of both contestants. It is long, so that a slow call is not an error for only one of
/// them.
const PATIENT: Duration = Duration::from_secs(10);
const DENIALS: usize = 1000;
const HOUR: Duration = Duration::from_secs(3600);
/// The number of calls of which the median is taken.
const MEDIAN_CALLS: u64 = 1000;
const SCRIPT: &str = "
local used = redis.call('INCR', KEYS[1])
if used == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return used <= tonumber(ARGV[1]) and 1 or 0
";

type Failure = Box<dyn std::error::Error>;

/// A job. Its scenario selects the way of measuring.
#[derive(Debug, Deserialize)]
#[serde(tag = "scenario", rename_all = "lowercase")]
enum Job {
    Local {
        key: String,
        calls: u64,
    },
    Forget {
        denials: usize,
    },
    #[serde(alias = "hot", alias = "flood")]
    Check(Load),
}

/// A job that makes calls for some seconds.
#[derive(Debug, Deserialize)]
struct Load {
    contestant: String,
    seconds: f64,
    in_flight: usize,
    key: String,
    limit: u64,
    period_s: u64,
    #[serde(default)]
    denial_cache: bool,
    #[serde(default = "one")]
    prefetch: u64,
}

fn one() -> u64 {
    1
}

#[derive(Debug, Serialize)]
struct Reply {
    calls: usize,
    seconds: f64,
    cpu_seconds: f64,
    p50_us: f64,
    p99_us: f64,
    allowed: u64,
    denied: u64,
    errors: u64,
}

/// The median of one call, in microseconds.
#[derive(Debug, Serialize)]
struct Median {
    p50_us: f64,
    errors: u64,
}

#[derive(Debug, Clone, Copy)]
enum Outcome {
    Allowed,
    Denied,
    Failed,
}

/// The calls that one caller has made: their times and outcomes.
#[derive(Debug, Default)]
struct Seen {
    took_ns: Vec<u64>,
    outcomes: [u64; 3],
}

/// Returns the processor time of this process.
fn cpu() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

/// Runs `in_flight` callers, each as a task.
async fn callers<C, F>(job: &Load, call: C) -> Result<Reply, Failure>
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = Outcome> + Send,
{
    let (began, began_cpu) = (Instant::now(), cpu());
    let ends = began + Duration::from_secs_f64(job.seconds);
    let caller = |call: C| async move {
        let mut seen = Seen::default();
        let mut start = Instant::now();
        while start < ends {
            let outcome = call().await;
            let end = Instant::now();
            seen.took_ns.push(u64::try_from((end - start).as_nanos()).unwrap_or(u64::MAX));
            seen.outcomes[outcome as usize] += 1;
            // A call that is decided locally never waits, so give the other tasks their turn.
            tokio::task::consume_budget().await;
            start = Instant::now();
        }
        seen
    };
    let running: Vec<_> = (0..job.in_flight).map(|_| tokio::spawn(caller(call.clone()))).collect();
    let (mut took_ns, mut outcomes) = (Vec::new(), [0; 3]);
    for task in running {
        let seen = task.await?;
        took_ns.extend(seen.took_ns);
        for (sum, more) in outcomes.iter_mut().zip(seen.outcomes) {
            *sum += more;
        }
    }
    let (seconds, cpu_seconds) = (began.elapsed().as_secs_f64(), (cpu() - began_cpu).as_secs_f64());
    took_ns.sort_unstable();
    let percentile = |percent: usize| {
        let at = (took_ns.len() * percent / 100).min(took_ns.len().saturating_sub(1));
        took_ns.get(at).map_or(0.0, |ns| *ns as f64 / 1000.0)
    };
    let [allowed, denied, errors] = outcomes;
    Ok(Reply {
        calls: took_ns.len(),
        seconds,
        cpu_seconds,
        p50_us: percentile(50),
        p99_us: percentile(99),
        allowed,
        denied,
        errors,
    })
}

fn outcome_of(decision: &Result<Decision, Error>) -> Outcome {
    match decision {
        Ok(decision) if decision.degraded => Outcome::Failed,
        Ok(decision) if decision.allowed => Outcome::Allowed,
        Ok(_) => Outcome::Denied,
        Err(_) => Outcome::Failed,
    }
}

/// Measures the limiter. Closes it at the end, which refunds unused permits.
async fn ours(job: &Load, client: Client) -> Result<Reply, Failure> {
    let denials = if job.denial_cache { DENIALS } else { 0 };
    let options = Options::default().timeout(PATIENT).prefetch(job.prefetch);
    let limiter = Limiter::with_options(client, options.denial_cache(denials))?;
    limiter.ready().await?;
    let rule = Rule::fixed("bench", job.limit, Duration::from_secs(job.period_s))?;
    let (calling, key) = (limiter.clone(), Arc::<str>::from(job.key.as_str()));
    let call = move || {
        let (limiter, rule, key) = (calling.clone(), rule.clone(), key.clone());
        async move { outcome_of(&limiter.check(rule.of(&key)).await) }
    };
    let reply = callers(job, call).await;
    limiter.close().await;
    reply
}

/// Measures the script. After the first call, it is called by its hash.
async fn usual(job: &Load, connection: MultiplexedConnection) -> Result<Reply, Failure> {
    let script = Arc::new(Script::new(SCRIPT));
    let (key, limit, period_ms) =
        (Arc::<str>::from(job.key.as_str()), job.limit, job.period_s * 1000);
    let call = move || {
        let (script, key, mut connection) = (script.clone(), key.clone(), connection.clone());
        async move {
            let mut invocation = script.key(&*key);
            match invocation.arg(limit).arg(period_ms).invoke_async(&mut connection).await {
                Ok(1) => Outcome::Allowed,
                Ok(_) => Outcome::Denied,
                Err(_) => Outcome::Failed,
            }
        }
    };
    callers(job, call).await
}

/// Returns the median time of a call in microseconds. `call` gets the number of the call.
async fn median_us<T>(
    calls: u64,
    call: impl AsyncFn(u64) -> Result<T, Error>,
) -> Result<f64, Error> {
    let mut took_ns = Vec::new();
    for number in 0..calls {
        let began = Instant::now();
        call(number).await?;
        took_ns.push(began.elapsed().as_nanos());
    }
    took_ns.sort_unstable();
    Ok(took_ns.get(took_ns.len() / 2).map_or(0.0, |ns| *ns as f64 / 1000.0))
}

/// Measures a sliding window in this process, after `calls` calls of its key. No server listens at
/// the client's address.
async fn local(unreachable: Client, key: &str, calls: u64) -> Result<Median, Failure> {
    let limiter = Limiter::with_options(unreachable, Options::default().on_error(OnError::Local))?;
    let window = Rule::sliding("local", 2 * calls, HOUR)?;
    let call = async |_| limiter.check(window.of(key)).await;
    median_us(calls, call).await?;
    Ok(Median { p50_us: median_us(MEDIAN_CALLS, call).await?, errors: limiter.counters().denied })
}

/// Measures `forget` and `refund` together, with `denials` denials in the cache.
async fn forget(client: Client, denials: usize) -> Result<Median, Failure> {
    let options = Options::default().denial_cache(denials).denial_cache_max(HOUR);
    let limiter = Limiter::with_options(client, options)?;
    let rule = Rule::fixed("forget", 1, HOUR)?;
    for number in 0..denials {
        let _ = limiter.check(rule.of(&number.to_string()).cost(2)).await?;
    }
    let both = async |number: u64| {
        let subject = number.to_string();
        limiter.forget(rule.of(&subject)).await?;
        limiter.refund(rule.of(&subject)).await
    };
    let p50_us = median_us(MEDIAN_CALLS, both).await? / 2.0;
    Ok(Median { p50_us, errors: limiter.counters().degraded })
}

/// Runs a job of the limiter or of the script.
async fn run_load(
    job: &Load,
    client: Client,
    patient: &AsyncConnectionConfig,
) -> Result<Reply, Failure> {
    match job.contestant.as_str() {
        "ours" => ours(job, client).await,
        "script" => {
            let opened = client.get_multiplexed_async_connection_with_config(patient);
            usual(job, opened.await?).await
        }
        other => Err(format!("there is no contestant {other}").into()),
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let socket = std::env::args().nth(1).ok_or("usage: bench-rust-client SOCKET")?;
    if let Some(address) = std::env::args().nth(2).filter(|_| socket == "pressure") {
        return pressure::run_all(&address).await;
    }
    let driver = concat!("redis-rs ", "1.8");
    let version = env!("CARGO_PKG_VERSION");
    let contestants = json!({
        "ours": format!("redis-throttle-client {version}, {driver}"),
        "script": format!("a script in Lua, {driver}, fixed window"),
    });
    let mut output = std::io::stdout();
    writeln!(output, "{}", json!({ "language": "rust", "contestants": contestants }))?;
    let client = Client::open(format!("unix://{socket}"))?;
    // The client itself enforces the deadline of a call, on its own connection. The script leaves
    // that to the driver, as programs that use redis-rs usually do.
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENT));
    for line in std::io::stdin().lock().lines() {
        let job: Job = serde_json::from_str(&line?)?;
        let reply = match &job {
            Job::Local { key, calls } => {
                let unreachable = Client::open(format!("unix://{socket}.down"))?;
                serde_json::to_string(&local(unreachable, key, *calls).await?)?
            }
            Job::Forget { denials } => {
                serde_json::to_string(&forget(client.clone(), *denials).await?)?
            }
            Job::Check(load) => {
                serde_json::to_string(&run_load(load, client.clone(), &patient).await?)?
            }
        };
        writeln!(output, "{reply}")?;
        output.flush()?;
    }
    Ok(())
}
