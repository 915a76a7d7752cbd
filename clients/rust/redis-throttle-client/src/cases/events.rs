//! Runs the shared cases of events: what the hook, the JSON log and the metrics report of calls.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};

use super::table;
use super::timelines::{Runner, counters_of};
use crate::rules::event::{Field, fields_of};
use crate::{DecisionEvent, JsonLogOptions, json_log};

/// The lines of a JSON log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Returns the lines without the fields that no case compares.
    fn read(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        assert!(!text.contains("alice"), "{text}");
        let line = |line: &str| {
            let mut fields: Map<String, Value> = serde_json::from_str(line).unwrap();
            assert!(fields.remove("time_ms").unwrap().is_u64());
            assert_eq!(fields.remove("latency_ms"), Some(json!(0.0)));
            assert_eq!(fields.remove("key_hash").unwrap().as_str().unwrap().len(), 16);
            Value::Object(fields)
        };
        text.lines().map(line).collect()
    }
}

fn fields_as_json(event: &DecisionEvent<'_>) -> Value {
    // The text of the server's error may repeat the key.
    assert!(event.error.is_some() || !format!("{event:?}").contains("alice"), "{event:?}");
    let value = |field| match field {
        Field::Bool(value) => json!(value),
        Field::Number(value) => json!(value),
        Field::Text(text) => json!(text),
        Field::Texts(texts) => json!(texts),
    };
    let mut fields: Map<_, _> =
        fields_of(event).into_iter().map(|(name, field)| (name.to_owned(), value(field))).collect();
    assert!(fields.remove("key_hash").is_some());
    Value::Object(fields)
}

/// The value of each sample, by its name and its labels.
type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

fn wanted_samples(metrics: &Value) -> Samples {
    let sample = |sample: &Value| {
        let labels = sample[1].as_object().unwrap().iter();
        let labels = labels.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
        ((sample[0].as_str().unwrap().to_owned(), labels.collect()), sample[2].as_f64().unwrap())
    };
    metrics.as_array().unwrap().iter().map(sample).collect()
}

/// Reads the samples that the cases compare.
#[cfg(feature = "prometheus")]
fn samples(registry: &prometheus_client::registry::Registry) -> Samples {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    assert!(!text.contains("alice"), "{text}");
    let sample = |line: &str| {
        let (sample, value) = line.strip_prefix("redis_throttle_")?.rsplit_once(' ')?;
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let labels = labels.trim_end_matches('}').split(',').filter_map(|one| one.split_once('='));
        let labels =
            labels.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()));
        Some(((name.to_owned(), labels.collect()), value.parse().unwrap()))
    };
    let mut samples: Samples = text.lines().filter_map(sample).collect();
    samples.retain(|(name, _), value| {
        *value != 0.0 && !name.ends_with("_bucket") && name != "latency_seconds_sum"
    });
    samples
}

async fn follow(case: &Value) {
    let (name, wanted) = (&case["name"], &case["expect"]);
    let runner = Runner::new(case);
    let limiter = runner.stage.limiter.clone();
    let (events, lines) = (Arc::new(Mutex::new(Vec::new())), Lines::default());
    let seen = events.clone();
    limiter.on_decision(move |event| seen.lock().unwrap().push(fields_as_json(event)));
    limiter.on_decision(json_log(lines.clone(), JsonLogOptions::default()));
    #[cfg(feature = "prometheus")]
    let registry = {
        let mut registry = prometheus_client::registry::Registry::default();
        // A limiter that is added again is not counted twice.
        crate::prometheus::metrics(&limiter, &mut registry).add(&limiter.clone());
        registry
    };
    runner.run(case).await;
    let events = events.lock().unwrap().clone();
    assert_eq!(json!(events), wanted["events"], "{name}");
    let logged = wanted["logged"].as_array().unwrap().iter();
    let logged = logged.map(|at| events[usize::try_from(at.as_u64().unwrap()).unwrap()].clone());
    assert_eq!(lines.read(), logged.collect::<Vec<_>>(), "{name}");
    let counters = counters_of(&limiter);
    for (counter, value) in wanted["counters"].as_object().unwrap() {
        assert_eq!(counters[counter], *value, "{name}: {counter}");
    }
    let metrics = wanted_samples(&wanted["metrics"]);
    #[cfg(feature = "prometheus")]
    assert_eq!(samples(&registry), metrics, "{name}");
    #[cfg(not(feature = "prometheus"))]
    drop(metrics);
}

#[tokio::test(start_paused = true)]
async fn client_passes_every_shared_case_of_events() {
    let table = table();
    let cases = table["events"].as_array().unwrap();
    for case in cases {
        follow(case).await;
    }
    assert!(cases.len() > 10, "{} cases", cases.len());
}
