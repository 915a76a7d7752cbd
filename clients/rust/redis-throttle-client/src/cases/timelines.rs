//! Runs the shared timelines: a frozen clock, a scripted server, and what the limiter does when.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep_until};

use super::rules::{natural, rule_of, text};
use super::scripted::Script;
use super::{fields, plain, table};
use crate::{Backend, Call, Decision, Error, Lease, Limiter, Options, Rule};

/// The turns of the scheduler after which nothing more happens at an instant.
const TURNS: usize = 60;
const MS: Duration = Duration::from_millis(1);
const ACTIONS: [&str; 14] = [
    "check",
    "peek",
    "refund",
    "charge",
    "forget",
    "check_all",
    "check_each",
    "wait",
    "lease",
    "release",
    "ready",
    "close",
    "join",
    "cancel",
];

/// The result of an action.
enum Got {
    Decision(Decision),
    Backend(Backend),
    Nothing,
}

/// The end of an action.
struct Outcome {
    result: Result<Got, Error>,
    took: Duration,
}

impl Outcome {
    /// Returns what `expect` compares with the field of this name.
    fn field(&self, name: &str, wanted: &Value) -> Value {
        match (name, &self.result) {
            ("after_ms", _) => json!(u64::try_from(self.took.as_millis()).unwrap()),
            ("raises", Err(error)) => json!(variant(error)),
            ("raises", Ok(_)) => Value::Null,
            ("returns", Ok(Got::Backend(backend))) => {
                json!(format!("{backend:?}").to_lowercase())
            }
            ("rows", Ok(Got::Decision(decision))) => {
                let wanted = wanted.as_array().unwrap();
                assert_eq!(decision.rows.len(), wanted.len(), "rows");
                decision.rows.iter().zip(wanted).map(|(row, wanted)| plain(row, wanted)).collect()
            }
            (_, Ok(Got::Decision(decision))) => fields(decision)[name].clone(),
            (_, Err(Error::Denied(decision))) => fields(decision)[name].clone(),
            ("reason", Err(Error::Unavailable { reason, .. })) => json!(reason.as_str()),
            (_, Err(error)) => panic!("{name}: {error}"),
            (_, Ok(_)) => panic!("{name} of an action without a decision"),
        }
    }

    /// Returns the reason of an outcome, or else its source.
    fn kind(&self) -> String {
        let reason = self.field("reason", &Value::Null);
        let source = || self.field("source", &Value::Null);
        reason.as_str().map_or_else(|| source().as_str().unwrap().to_owned(), str::to_owned)
    }

    fn check(&self, expect: &Map<String, Value>, at_ms: u64) {
        for (name, wanted) in expect {
            assert_eq!(&self.field(name, wanted), wanted, "{name} at {at_ms}");
        }
    }
}

/// Returns the name of an error.
fn variant(error: &Error) -> &'static str {
    match error {
        Error::InvalidArgument { .. } => "InvalidArgument",
        Error::Unavailable { .. } => "Unavailable",
        Error::CommandRejected { .. } => "CommandRejected",
        Error::Denied(_) => "Denied",
    }
}

fn options(given: &Value) -> Options {
    let mut options = Options { jitter: 0.0, ..Options::default() };
    for (name, value) in given.as_object().into_iter().flatten() {
        let number = || value.as_u64().unwrap();
        let ms = || Duration::from_millis(number());
        options = match name.as_str() {
            "timeout_ms" => options.timeout(ms()),
            "on_error" => options.on_error(value.as_str().unwrap().parse().unwrap()),
            "max_in_flight" => options.max_in_flight(usize::try_from(number()).unwrap()),
            "breaker_failures" => options.breaker_failures(u32::try_from(number()).unwrap()),
            "breaker_pause_ms" => options.breaker_pause(ms()),
            "denial_cache" => options.denial_cache(usize::try_from(number()).unwrap()),
            "denial_cache_max_ms" => options.denial_cache_max(ms()),
            "prefetch" => options.prefetch(number()),
            "backend" => options.backend(value.as_str().unwrap().parse().unwrap()),
            other => panic!("no option {other}"),
        };
    }
    options
}

/// The answers of a step or of one of its calls.
fn answers(of: &Value) -> Vec<Value> {
    match (of.get("server"), of.get("servers")) {
        (Some(one), _) => vec![one.clone()],
        (None, Some(all)) => all.as_array().unwrap().clone(),
        (None, None) => Vec::new(),
    }
}

/// What the actions of a timeline use.
#[derive(Clone)]
struct Stage {
    limiter: Limiter,
    rules: Arc<HashMap<String, Rule>>,
    leases: Arc<Mutex<HashMap<String, Lease>>>,
}

impl Stage {
    /// Returns the call that `[rule, subject, cost]` describes.
    fn call<'a>(&'a self, given: &'a Value) -> Call<'a> {
        let call = self.rules[given[0].as_str().unwrap()].of(given[1].as_str().unwrap());
        call.cost(given[2].as_u64().unwrap_or(1))
    }

    fn calls<'a>(&'a self, given: &'a Value) -> Vec<Call<'a>> {
        given.as_array().unwrap().iter().map(|given| self.call(given)).collect()
    }

    async fn act(self, action: &'static str, given: Value) -> Outcome {
        let began = Instant::now();
        let result = self.result(action, &given).await;
        Outcome { result, took: began.elapsed() }
    }

    async fn result(&self, action: &str, given: &Value) -> Result<Got, Error> {
        let limiter = &self.limiter;
        let decision = match action {
            "check" => limiter.check(self.call(given)).await?,
            "peek" => limiter.peek(self.call(given)).await?,
            "refund" => limiter.refund(self.call(given)).await?,
            "charge" => limiter.charge(self.call(given)).await?,
            "check_all" => limiter.check_all(&self.calls(given), None).await?,
            "check_each" => limiter.check_each(&self.calls(given)).await?,
            "wait" => {
                let max_wait = Duration::from_millis(given[2].as_u64().unwrap());
                limiter.wait(self.call(given).cost(1), max_wait).await?
            }
            "lease" => {
                let id = given[2].as_str().unwrap();
                let lease = limiter.lease(self.call(given).id(id)).await?;
                let decision = lease.decision().clone();
                self.leases.lock().unwrap().insert(id.to_owned(), lease);
                decision
            }
            "release" => {
                let lease = self.leases.lock().unwrap().remove(given.as_str().unwrap());
                lease.expect("a lease that is held").release().await;
                return Ok(Got::Nothing);
            }
            "forget" => return limiter.forget(self.call(given)).await.map(|()| Got::Nothing),
            "ready" => return limiter.ready().await.map(Got::Backend),
            "close" => {
                limiter.close().await;
                return Ok(Got::Nothing);
            }
            other => panic!("no action {other}"),
        };
        Ok(Got::Decision(decision))
    }
}

/// Returns the key of a call, whose commands its own answers are for. A lease's commands are told
/// apart by its holder.
fn key_of(action: &str, given: &Value) -> Option<String> {
    match (action, given) {
        ("lease", given) => given[2].as_str().map(str::to_owned),
        (_, Value::String(id)) => Some(id.clone()),
        (_, Value::Array(call)) if call[0].is_string() => {
            let subject = call[1].as_str().unwrap().replace(':', "%3A");
            Some(format!("rl:{}:{subject}", call[0].as_str().unwrap()))
        }
        _ => None,
    }
}

fn action_of(of: &Value) -> Option<&'static str> {
    ACTIONS.into_iter().find(|name| of.get(name).is_some())
}

/// Lets everything happen that is due at this instant. The clock stands still, because this task
/// never waits.
async fn settle() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

struct Runner {
    script: Script,
    stage: Stage,
    began: Instant,
    started: HashMap<String, JoinHandle<Outcome>>,
    /// The number of commands that earlier steps have checked.
    seen: usize,
}

impl Runner {
    fn new(timeline: &Value) -> Self {
        let script = Script::default();
        let rules = timeline["rules"].as_array().unwrap().iter();
        let rules = rules.map(|spec| (text(spec, "name").to_owned(), rule_of(spec).unwrap()));
        let stage = Stage {
            limiter: Limiter::with_options(script.clone(), options(&timeline["options"])).unwrap(),
            rules: Arc::new(rules.collect()),
            leases: Arc::default(),
        };
        Self { script, stage, began: Instant::now(), started: HashMap::new(), seen: 0 }
    }

    async fn run(mut self, timeline: &Value) {
        for step in timeline["steps"].as_array().unwrap() {
            let at_ms = natural(step, "at").unwrap();
            self.arrive(step, self.began + Duration::from_millis(at_ms)).await;
            self.step(step, at_ms).await;
        }
        assert_eq!(self.script.state().left(), Vec::<Value>::new(), "answers that are left");
    }

    /// Moves the clock to a step. Its answers are in place before the timers that are due then.
    async fn arrive(&self, step: &Value, at: Instant) {
        assert!(Instant::now() <= at, "the step at {} begins late", step["at"]);
        if Instant::now() < at {
            sleep_until(at - MS).await;
            settle().await;
        }
        {
            let mut script = self.script.state();
            script.add(answers(step), None);
            for one in step["calls"].as_array().into_iter().flatten() {
                let action = action_of(one).unwrap();
                for _ in 0..one["times"].as_u64().unwrap_or(1) {
                    script.add(answers(one), key_of(action, &one[action]).as_deref());
                }
            }
        }
        if Instant::now() < at {
            advance(at - Instant::now()).await;
            settle().await;
        }
    }

    async fn step(&mut self, step: &Value, at_ms: u64) {
        let (dials, seen) = {
            let script = self.script.state();
            (script.dials, self.seen)
        };
        let outcomes = self.outcomes(step, at_ms).await;
        settle().await;
        let script = self.script.state();
        assert_eq!(script.unexpected, Vec::<String>::new(), "without an answer at {at_ms}");
        let mut expect = step["expect"].as_object().cloned().unwrap_or_default();
        if let Some(wanted) = expect.remove("sent") {
            let found = script.sent[seen..].to_vec();
            check_sent(found, &wanted, step["calls"].is_array(), at_ms);
        }
        self.seen = script.sent.len();
        if let Some(wanted) = expect.remove("dials") {
            assert_eq!(json!(script.dials - dials), wanted, "dials at {at_ms}");
        }
        if let Some(wanted) = expect.remove("generation") {
            assert_eq!(json!(script.generation), wanted, "generation at {at_ms}");
        }
        drop(script);
        for (id, wanted) in expect.remove("held").iter().filter_map(Value::as_object).flatten() {
            let leases = self.stage.leases.lock().unwrap();
            let held = leases.get(id).is_some_and(Lease::held);
            assert_eq!(json!(held), *wanted, "held {id} at {at_ms}");
        }
        for (name, wanted) in
            expect.remove("counters").iter().filter_map(Value::as_object).flatten()
        {
            let counters = self.stage.limiter.counters();
            let all = json!({
                "allowed": counters.allowed,
                "denied": counters.denied,
                "degraded": counters.degraded,
                "local": counters.local,
                "rejected": counters.rejected,
            });
            assert_eq!(all[name], *wanted, "counter {name} at {at_ms}");
        }
        if let Some(wanted) = expect.remove("outcomes") {
            let mut found = BTreeMap::<String, u64>::new();
            for outcome in &outcomes {
                *found.entry(outcome.kind()).or_default() += 1;
            }
            assert_eq!(json!(found), wanted, "outcomes at {at_ms}");
        }
        if !expect.is_empty() {
            outcomes[0].check(&expect, at_ms);
        }
    }

    /// Acts, and returns the outcomes of the actions that end in this step.
    async fn outcomes(&mut self, step: &Value, at_ms: u64) -> Vec<Outcome> {
        let one = std::slice::from_ref(step);
        let calls = step["calls"].as_array().map_or(one, Vec::as_slice);
        let mut begun = Vec::new();
        for call in calls {
            for _ in 0..call["times"].as_u64().unwrap_or(1) {
                begun.extend(self.begin(call).map(|task| (call, task)));
            }
        }
        let mut outcomes = Vec::new();
        for (call, task) in begun {
            let outcome = task.await.unwrap();
            if let Some(expect) = call["expect"].as_object().filter(|_| step["calls"].is_array()) {
                outcome.check(expect, at_ms);
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    /// Begins an action. Returns its task, if it ends in this step.
    fn begin(&mut self, of: &Value) -> Option<JoinHandle<Outcome>> {
        if of["disconnect"] == json!(true) {
            self.script.state().disconnect();
            return None;
        }
        let action = action_of(of)?;
        match (action, of[action].as_str()) {
            ("join", Some(name)) => return self.started.remove(name),
            ("cancel", Some(name)) => {
                self.started.remove(name).unwrap().abort();
                return None;
            }
            _ => {}
        }
        let task = tokio::spawn(self.stage.clone().act(action, of[action].clone()));
        match of["start"].as_str() {
            Some(name) => {
                self.started.insert(name.to_owned(), task);
                None
            }
            None => Some(task),
        }
    }
}

/// Compares the commands that were sent with their expected beginnings; `together` in any order.
fn check_sent(mut found: Vec<String>, wanted: &Value, together: bool, at_ms: u64) {
    let wanted = wanted.as_array().unwrap().iter().map(|text| text.as_str().unwrap());
    let mut wanted: Vec<_> = wanted.map(str::to_owned).collect();
    if together {
        found.sort();
        wanted.sort();
    }
    assert_eq!(found.len(), wanted.len(), "sent at {at_ms}: {found:?}");
    for (found, wanted) in found.iter().zip(&wanted) {
        assert!(found.starts_with(wanted), "sent at {at_ms}: {found}, not {wanted}");
    }
}

fn is_for_rust(timeline: &Value) -> bool {
    timeline["languages"].as_array().is_none_or(|languages| languages.contains(&json!("rust")))
}

#[test]
fn client_follows_every_shared_timeline() {
    let table = table();
    let timelines = table["timelines"].as_array().unwrap().iter().filter(|one| is_for_rust(one));
    let follow = |timeline: &Value| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async { Runner::new(timeline).run(timeline).await });
    };
    let (mut run, mut failed) = (0, Vec::new());
    for timeline in timelines {
        if catch_unwind(AssertUnwindSafe(|| follow(timeline))).is_err() {
            failed.push(text(timeline, "name"));
        }
        run += 1;
    }
    assert!(failed.is_empty(), "{} of {run}: {failed:#?}", failed.len());
    assert!(run > 80, "{run} timelines");
}
