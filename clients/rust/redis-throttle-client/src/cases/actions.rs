//! The actions of the timelines, and their outcomes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::rules::with_options;
use super::{fields, plain};
use crate::{Admission, Backend, Decision, Error, Item, Lease, Limiter, Rule};

const ACTIONS: [&str; 19] = [
    "check",
    "peek",
    "refund",
    "charge",
    "forget",
    "block",
    "check_all",
    "peek_all",
    "check_each",
    "wait",
    "lease",
    "release",
    "admit",
    "settle",
    "finish",
    "ready",
    "close",
    "join",
    "cancel",
];

/// The result of an action.
pub(super) enum Got {
    Decision(Decision),
    Backend(Backend),
    Nothing,
}

/// The end of an action.
pub(super) struct Outcome {
    pub result: Result<Got, Error>,
    pub took: Duration,
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
            (_, Ok(Got::Decision(decision))) => of_decision(decision, name, wanted),
            (_, Err(Error::Denied(decision))) => of_decision(decision, name, wanted),
            ("reason", Err(Error::Unavailable { reason, .. })) => json!(reason.as_str()),
            (_, Err(error)) => panic!("{name}: {error}"),
            (_, Ok(_)) => panic!("{name} of an action without a decision"),
        }
    }

    /// Returns the reason of an outcome, or else its source.
    pub fn kind(&self) -> String {
        let reason = self.field("reason", &Value::Null);
        let source = || self.field("source", &Value::Null);
        reason.as_str().map_or_else(|| source().as_str().unwrap().to_owned(), str::to_owned)
    }

    pub fn check(&self, expect: &Map<String, Value>, at_ms: u64) {
        for (name, wanted) in expect {
            assert_eq!(&self.field(name, wanted), wanted, "{name} at {at_ms}");
        }
    }
}

/// Returns what `expect` compares with a decision's field of this name.
fn of_decision(decision: &Decision, name: &str, wanted: &Value) -> Value {
    if name != "rows" {
        return fields(decision)[name].clone();
    }
    let wanted = wanted.as_array().unwrap();
    assert_eq!(decision.rows.len(), wanted.len(), "rows");
    decision.rows.iter().zip(wanted).map(|(row, wanted)| plain(row, wanted)).collect()
}

/// Returns the name of an error.
fn variant(error: &Error) -> &'static str {
    match error {
        Error::InvalidArgument { .. } => "InvalidArgument",
        Error::Unavailable { .. } => "Unavailable",
        Error::CommandRejected { .. } => "CommandRejected",
        Error::Closed => "Closed",
        Error::Denied(_) => "Denied",
    }
}

/// The limiter of a timeline, with its rules and what its actions hold.
#[derive(Clone)]
pub(super) struct Stage {
    pub limiter: Limiter,
    pub rules: Arc<HashMap<String, Rule>>,
    pub leases: Arc<Mutex<HashMap<String, Lease>>>,
    pub admissions: Arc<Mutex<HashMap<String, Arc<Admission>>>>,
}

impl Stage {
    fn rule(&self, name: &Value) -> &Rule {
        &self.rules[name.as_str().unwrap()]
    }

    /// Returns the item that `[rule, subject, cost or options]` describes.
    fn item<'a>(&'a self, given: &'a Value) -> Item<'a> {
        let item = self.rule(&given[0]).of(given[1].as_str().unwrap());
        match given[2].as_u64() {
            Some(cost) => item.cost(cost),
            None => with_options(item, &given[2]).unwrap(),
        }
    }

    fn items<'a>(&'a self, given: &'a Value) -> Vec<Item<'a>> {
        given.as_array().unwrap().iter().map(|given| self.item(given)).collect()
    }

    fn admission(&self, id: &Value) -> Arc<Admission> {
        self.admissions.lock().unwrap()[id.as_str().unwrap()].clone()
    }

    pub fn held(&self, id: &str) -> bool {
        self.leases.lock().unwrap().get(id).is_some_and(Lease::held)
            || self.admissions.lock().unwrap().get(id).is_some_and(|admitted| admitted.held())
    }

    pub async fn act(self, action: &'static str, given: Value, id: Value) -> Outcome {
        let began = Instant::now();
        let result = self.result(action, &given, &id).await;
        Outcome { result, took: began.elapsed() }
    }

    async fn result(&self, action: &str, given: &Value, id: &Value) -> Result<Got, Error> {
        let limiter = &self.limiter;
        let decision = match action {
            "check" => limiter.check(self.item(given)).await?,
            "peek" => limiter.peek(self.item(given)).await?,
            "refund" => limiter.refund(self.item(given)).await?,
            "charge" => limiter.charge(self.item(given)).await?,
            "check_all" => limiter.check_all(&self.items(given), None).await?,
            "peek_all" => limiter.peek_all(&self.items(given), None).await?,
            "check_each" => limiter.check_each(&self.items(given)).await?,
            "wait" => {
                let max_wait = Duration::from_millis(given[2].as_u64().unwrap());
                limiter.wait(self.item(given).cost(1), max_wait).await?
            }
            "lease" => {
                let id = given[2].as_str().unwrap();
                let item = self.rule(&given[0]).of(given[1].as_str().unwrap());
                let lease = limiter.lease(item.id(id)).await?;
                let decision = lease.decision().clone();
                self.leases.lock().unwrap().insert(id.to_owned(), lease);
                decision
            }
            "release" => {
                let lease = self.leases.lock().unwrap().remove(given.as_str().unwrap());
                lease.expect("a lease that is held").release().await;
                return Ok(Got::Nothing);
            }
            "admit" => {
                let id = id.as_str().unwrap();
                let mut items = self.items(given);
                items[0] = items[0].id(id);
                let admitted = limiter.admit(&items, None).await?;
                let decision = admitted.decision().clone();
                self.admissions.lock().unwrap().insert(id.to_owned(), Arc::new(admitted));
                decision
            }
            "settle" => {
                let admitted = self.admission(&given[0]);
                admitted.settle(self.rule(&given[1]), given[2].as_u64().unwrap())?;
                return Ok(Got::Nothing);
            }
            "finish" => {
                self.admission(given).finish().await;
                return Ok(Got::Nothing);
            }
            "block" => {
                let item = self.rule(&given[0]).of(given[1].as_str().unwrap());
                let blocked = limiter.block(item, given[2].as_str().unwrap()).await;
                return blocked.map(|()| Got::Nothing);
            }
            "forget" => return limiter.forget(self.item(given)).await.map(|()| Got::Nothing),
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

/// Returns the key of a call, whose commands get the call's own replies. A lease's commands are
/// distinguished by its holder.
pub(super) fn key_of(action: &str, given: &Value) -> Option<String> {
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

pub(super) fn action_of(of: &Value) -> Option<&'static str> {
    ACTIONS.into_iter().find(|name| of.get(name).is_some())
}
