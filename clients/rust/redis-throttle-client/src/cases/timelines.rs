//! Runs the shared timelines: a frozen clock, a scripted server, and what the limiter does when.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep_until};

use super::actions::{Outcome, Stage, action_of, key_of};
use super::rules::{rule_of, text};
use super::scripted::Script;
use super::table;
#[cfg(feature = "cluster")]
use crate::net::cluster::slot_of;
use crate::{Limiter, Options, Rule};

/// The turns of the scheduler after which nothing more happens at an instant.
const TURNS: usize = 60;
const MS: Duration = Duration::from_millis(1);

/// Sets the options that a case or a timeline gives.
pub(super) fn set_options(mut options: Options, given: &Value) -> Options {
    for (name, value) in given.as_object().into_iter().flatten() {
        let number = || value.as_u64().unwrap();
        let ms = || Duration::from_millis(number());
        options = match name.as_str() {
            "timeout_ms" => options.timeout(ms()),
            "silence_ms" => options.silence(ms()),
            "on_error" => options.on_error(value.as_str().unwrap().parse().unwrap()),
            "max_in_flight" => options.max_in_flight(usize::try_from(number()).unwrap()),
            "max_waiting" => options.max_waiting(usize::try_from(number()).unwrap()),
            "known_denials" => options.known_denials(usize::try_from(number()).unwrap()),
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

/// Returns the replies of a step or of one of its calls.
fn replies_in(of: &Value) -> Vec<Value> {
    match (of.get("server"), of.get("servers")) {
        (Some(one), _) => vec![one.clone()],
        (None, Some(all)) => all.as_array().unwrap().clone(),
        (None, None) => Vec::new(),
    }
}

pub(super) fn counters_of(limiter: &Limiter) -> Value {
    let counters = limiter.counters();
    json!({
        "allowed": counters.allowed,
        "denied": counters.denied,
        "degraded": counters.degraded,
        "local": counters.local,
        "rejected": counters.rejected,
        "unsettled": counters.unsettled,
    })
}

/// Lets everything happen that is due at this instant. The clock stands still, because this task
/// never waits.
async fn settle() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

/// Returns the slot of each subject under each rule, and its node.
#[cfg(feature = "cluster")]
fn slots_of(nodes: &Value, rules: &HashMap<String, Rule>) -> Vec<(u16, String)> {
    let nodes = nodes.as_object().into_iter().flatten();
    let slots = nodes.flat_map(|(subject, node)| {
        let key = move |rule| key_of("check", &json!([rule, subject])).unwrap();
        let node = node.as_str().unwrap();
        rules.keys().map(move |rule| (slot_of(&key(rule)), node.to_owned()))
    });
    slots.collect()
}

#[cfg(not(feature = "cluster"))]
fn slots_of(_: &Value, _: &HashMap<String, Rule>) -> Vec<(u16, String)> {
    Vec::new()
}

pub(super) struct Runner {
    script: Script,
    pub stage: Stage,
    began: Instant,
    started: HashMap<String, JoinHandle<Outcome>>,
    /// The number of commands that earlier steps have checked.
    seen: usize,
}

impl Runner {
    pub fn new(timeline: &Value) -> Self {
        let script = Script::default();
        let rules = timeline["rules"].as_array().unwrap().iter();
        let rules = rules.map(|spec| (text(spec, "name").to_owned(), rule_of(spec).unwrap()));
        let options = Options { jitter: 0.0, ..Options::default() };
        let options = set_options(options, &timeline["options"]);
        let rules: HashMap<_, _> = rules.collect();
        script.state().nodes = slots_of(&timeline["nodes"], &rules);
        let stage = Stage {
            limiter: Limiter::with_options(script.server(), options).unwrap(),
            rules: Arc::new(rules),
            leases: Arc::default(),
            admissions: Arc::default(),
        };
        Self { script, stage, began: Instant::now(), started: HashMap::new(), seen: 0 }
    }

    pub async fn run(mut self, timeline: &Value) {
        for step in timeline["steps"].as_array().unwrap() {
            let at_ms = step["at"].as_u64().unwrap_or(0);
            self.arrive(step, self.began + Duration::from_millis(at_ms)).await;
            self.step(step, at_ms).await;
        }
        assert_eq!(self.script.state().left(), Vec::<Value>::new(), "replies that are left");
    }

    /// Moves the clock to a step. Its replies are in place before the timers that are due then.
    async fn arrive(&self, step: &Value, at: Instant) {
        assert!(Instant::now() <= at, "the step at {} begins late", step["at"]);
        if Instant::now() < at {
            sleep_until(at - MS).await;
            settle().await;
        }
        {
            let mut script = self.script.state();
            script.add(replies_in(step), None);
            if step["nodes"].is_object() {
                script.nodes = slots_of(&step["nodes"], &self.stage.rules);
            }
            for one in step["calls"].as_array().into_iter().flatten() {
                let action = action_of(one).unwrap();
                for _ in 0..one["times"].as_u64().unwrap_or(1) {
                    script.add(replies_in(one), key_of(action, &one[action]).as_deref());
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
        if let Some(pause_ms) = step["pause"].as_u64() {
            advance(Duration::from_millis(pause_ms)).await;
        }
        let outcomes = self.outcomes(step, at_ms).await;
        settle().await;
        let script = self.script.state();
        assert_eq!(script.unexpected, Vec::<String>::new(), "without a reply at {at_ms}");
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
            assert_eq!(json!(self.stage.held(id)), *wanted, "held {id} at {at_ms}");
        }
        for (name, wanted) in
            expect.remove("counters").iter().filter_map(Value::as_object).flatten()
        {
            assert_eq!(
                counters_of(&self.stage.limiter)[name],
                *wanted,
                "counter {name} at {at_ms}"
            );
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
        let task =
            tokio::spawn(self.stage.clone().act(action, of[action].clone(), of["id"].clone()));
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
    if !cfg!(feature = "cluster") && timeline["nodes"].is_object() {
        return false;
    }
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
    assert!(run > 100, "{run} timelines");
}
