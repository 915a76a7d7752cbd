use std::io;
use std::sync::{Arc, Mutex};

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{JsonLogOptions, Rule, json_log};
use serde_json::Value;
use tokio::time::advance;

use super::{calls_of_each_kind, exports};
use crate::ms;

/// A stream that a test reads.
#[derive(Clone, Default)]
struct Stream(Arc<Mutex<Vec<u8>>>);

impl io::Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.0.lock().unwrap();
        if written.starts_with(b"full") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        written.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    /// Returns the lines since the last call.
    fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        assert!(!text.contains("alice"), "{text}");
        let line = |line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            let fields = line.as_object_mut().unwrap();
            assert!(fields.remove("time_ms").unwrap().is_u64());
            assert_eq!(fields.remove("key_hash").unwrap().as_str().unwrap().len(), 16);
            line
        };
        text.lines().map(line).collect()
    }

    /// Returns the kind, the rule and the number of dropped lines of each line.
    fn summaries(&self) -> Vec<(String, u64)> {
        let summary = |line: &Value| {
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            let dropped = line.get("dropped").map_or(0, |dropped| dropped.as_u64().unwrap());
            (format!("{} {}", text("kind"), text("rule")), dropped)
        };
        self.lines().iter().map(summary).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn log_drops_lines_above_the_bound_of_a_second_and_reports_their_number() {
    let (server, stream) = (FakeServer::new(), Stream::default());
    let limiter = server.limiter();
    let options = JsonLogOptions::default().lines_per_second(2).audit(["audited"]);
    limiter.on_decision(json_log(stream.clone(), options));
    let (exports, audited) = (exports(), Rule::sliding("audited", 100, "60s").unwrap());
    let line = |rule: &str, dropped| (format!("check {rule}"), dropped);
    let exhaust = async |calls| {
        for _ in 0..calls {
            let _ = limiter.check(exports.of("alice")).await.unwrap();
        }
    };
    exhaust(6).await;
    assert_eq!(stream.summaries(), [line("exports", 0), line("exports", 0)]);
    for _ in 0..2 {
        let _ = limiter.check(audited.of("alice")).await.unwrap();
    }
    assert_eq!(stream.summaries(), [line("audited", 3), line("audited", 0)]);
    advance(ms(999)).await;
    exhaust(1).await;
    assert_eq!(stream.summaries(), []);
    advance(ms(1)).await;
    exhaust(3).await;
    assert_eq!(stream.summaries(), [line("exports", 1), line("exports", 0)]);
}

#[tokio::test(start_paused = true)]
async fn every_event_of_an_audited_rule_is_logged() {
    let (server, stream) = (FakeServer::new(), Stream::default());
    let limiter = server.limiter();
    let options = JsonLogOptions::default().audit(["exports"]).lines_per_second(0);
    limiter.on_decision(json_log(stream.clone(), options));
    calls_of_each_kind(&limiter, &server).await;
    let line = |of: &str| (of.to_owned(), 0);
    let of_exports = ["check exports", "check exports", "peek exports", "charge exports"];
    let mut expected: Vec<_> = of_exports.map(line).into();
    expected.extend([line("check exports"), line("lease jobs")]);
    assert_eq!(stream.summaries(), expected);
}

#[tokio::test(start_paused = true)]
async fn lines_that_cannot_be_written_are_reported_as_dropped() {
    let (server, stream) = (FakeServer::new(), Stream::default());
    let limiter = server.limiter();
    limiter.on_decision(json_log(stream.clone(), JsonLogOptions::default()));
    stream.0.lock().unwrap().extend(b"full");
    for _ in 0..3 {
        let _ = limiter.check(exports().of("alice")).await.unwrap();
    }
    stream.0.lock().unwrap().clear();
    let _ = limiter.check(exports().of("alice")).await.unwrap();
    assert_eq!(stream.summaries(), [("check exports".to_owned(), 2)]);
}
