//! Reads a scenario from the JSON of the page. Every number has bounds, and an error names its
//! field.

use crate::simulation::Scenario;
use crate::simulation::retries::Retries;
use crate::traffic::{KEYS_MAX, Shape, Traffic};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// The longest time line: 366 days.
const DURATION_MAX_MS: u64 = 366 * 86_400_000;
/// The shortest time line.
const DURATION_MIN_MS: u64 = 1_000;
const COST_MAX: u64 = 1_000_000_000_000;
/// The highest rate, in calls per second.
const RATE_MAX: f64 = 1_000_000.0;
const POINTS: RangeInclusive<usize> = 2..=200;
const CHOICES: RangeInclusive<usize> = 1..=4;
const RULES: RangeInclusive<usize> = 1..=16;
/// The longest text of a rule, in bytes.
const RULE_MAX_BYTES: usize = 200;

/// An invalid field of a scenario: the text names it and the expected value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidField(pub String);

type Object = Map<String, Value>;

/// Reads a scenario.
///
/// # Errors
///
/// Returns the first [`InvalidField`].
pub fn scenario(body: &[u8]) -> Result<Scenario, InvalidField> {
    let body: Value =
        serde_json::from_slice(body).map_err(|_| expected("body", "a JSON object"))?;
    let body = object(Some(&body), "body")?;
    let fields = object(body.get("traffic"), "traffic")?;
    let traffic = traffic(fields)?;
    let cost = whole(fields, "cost", 0..=COST_MAX)?;
    let retries = match fields.get("retries").and_then(Value::as_str) {
        Some("none") => Retries::None,
        Some("obey") => Retries::Obey,
        Some("hammer") => Retries::Hammer,
        _ => return Err(expected("retries", "none, obey or hammer")),
    };
    let watch = whole(body, "watch", 0..=u64::from(traffic.keys) - 1)?;
    let watch = u8::try_from(watch).unwrap_or(0);
    let choices = list(body.get("choices"), "choices", CHOICES)?;
    let choices = choices.iter().map(choice).collect::<Result<_, _>>()?;
    Ok(Scenario { traffic, cost, retries, watch, choices })
}

fn traffic(fields: &Object) -> Result<Traffic, InvalidField> {
    let duration_ms = whole(fields, "duration_ms", DURATION_MIN_MS..=DURATION_MAX_MS)?;
    let seed = whole(fields, "seed", 0..=u32::MAX.into())?;
    let keys = whole(fields, "keys", 1..=KEYS_MAX.into())?;
    let rate = || {
        let rate = fields.get("rate").and_then(Value::as_f64);
        let rate = rate.filter(|rate| (0.0..=RATE_MAX).contains(rate));
        rate.ok_or_else(|| expected("rate", format!("0 to {RATE_MAX}")))
    };
    let shape = match fields.get("shape").and_then(Value::as_str) {
        Some("drawn") => Shape::Drawn(points(fields)?),
        Some("steady") => Shape::Steady(rate()?),
        Some("bursty") => Shape::Bursty(rate()?),
        Some("greedy") => Shape::Greedy(rate()?),
        Some("herd") => Shape::Herd(rate()?),
        Some("day") => Shape::Day(rate()?),
        Some("abuser") => Shape::Abuser(rate()?),
        _ => {
            let names = "drawn, steady, bursty, greedy, herd, day or abuser";
            return Err(expected("shape", names));
        }
    };
    let seed = u32::try_from(seed).unwrap_or(0);
    let keys = u8::try_from(keys).unwrap_or(1);
    Ok(Traffic { shape, duration_ms, seed, keys })
}

/// Reads the points of a drawn line.
fn points(fields: &Object) -> Result<Vec<(f64, f64)>, InvalidField> {
    let points = list(fields.get("points"), "points", POINTS)?;
    let mut previous = 0.0;
    let mut point = |value: &Value| {
        let [at, rate] = value.as_array()?.as_slice() else { return None };
        let at = at.as_f64().filter(|at| (previous..=1.0).contains(at))?;
        previous = at;
        let rate = rate.as_f64().filter(|rate| (0.0..=RATE_MAX).contains(rate))?;
        Some((at, rate))
    };
    let points: Option<_> = points.iter().map(&mut point).collect();
    let text = "pairs of a part from 0 to 1, which does not fall, and a rate from 0 to 1000000";
    points.ok_or_else(|| expected("points", text))
}

/// Reads the rules of a choice.
fn choice(value: &Value) -> Result<Vec<String>, InvalidField> {
    let rules = list(object(Some(value), "choices")?.get("rules"), "rules", RULES)?;
    let rule = |rule: &Value| {
        let rule = rule.as_str().filter(|rule| rule.len() <= RULE_MAX_BYTES);
        rule.map(str::to_owned)
    };
    let rules: Option<_> = rules.iter().map(rule).collect();
    rules.ok_or_else(|| expected("rules", format!("texts of at most {RULE_MAX_BYTES} bytes")))
}

fn object<'a>(value: Option<&'a Value>, field: &str) -> Result<&'a Object, InvalidField> {
    value.and_then(Value::as_object).ok_or_else(|| expected(field, "a JSON object"))
}

fn list<'a>(
    value: Option<&'a Value>,
    field: &str,
    len: RangeInclusive<usize>,
) -> Result<&'a [Value], InvalidField> {
    let list = value.and_then(Value::as_array).filter(|list| len.contains(&list.len()));
    let text = || format!("a list of {} to {}", len.start(), len.end());
    list.map(Vec::as_slice).ok_or_else(|| expected(field, text()))
}

fn whole(fields: &Object, field: &str, range: RangeInclusive<u64>) -> Result<u64, InvalidField> {
    let number = fields.get(field).and_then(Value::as_u64).filter(|number| range.contains(number));
    let text = || format!("{} to {}", range.start(), range.end());
    number.ok_or_else(|| expected(field, text()))
}

fn expected(field: &str, text: impl AsRef<str>) -> InvalidField {
    InvalidField(format!("invalid {field}: expected {}", text.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::result_body::result_body;
    use crate::traffic::random::Random;
    use serde_json::json;

    fn valid() -> Value {
        json!({
            "traffic": {
                "shape": "drawn", "points": [[0.0, 5.0], [0.5, 40], [1, 5.0]],
                "duration_ms": 60_000, "rate": 5.0, "seed": 1, "keys": 3, "cost": 1,
                "retries": "obey"
            },
            "watch": 2,
            "choices": [{"rules": ["GCRA 6 10 60"]}, {"rules": ["GCRA 6 10 60", "FIXED 100 1h"]}]
        })
    }

    fn read(value: &Value) -> Result<Scenario, InvalidField> {
        scenario(value.to_string().as_bytes())
    }

    #[test]
    fn scenario_has_every_field_of_the_json() {
        let expected = Scenario {
            traffic: Traffic {
                shape: Shape::Drawn(vec![(0.0, 5.0), (0.5, 40.0), (1.0, 5.0)]),
                duration_ms: 60_000,
                seed: 1,
                keys: 3,
            },
            cost: 1,
            retries: Retries::Obey,
            watch: 2,
            choices: vec![
                vec!["GCRA 6 10 60".to_owned()],
                vec!["GCRA 6 10 60".to_owned(), "FIXED 100 1h".to_owned()],
            ],
        };
        assert_eq!(read(&valid()), Ok(expected));
    }

    #[test]
    fn error_names_the_invalid_field() {
        let points = |len| (0..len).map(|_| json!([0.5, 1])).collect::<Vec<_>>();
        let table = [
            ("/traffic", json!(1), "invalid traffic: expected a JSON object"),
            ("/traffic/shape", json!("round"), "invalid shape: expected drawn, steady, "),
            ("/traffic/points", json!(points(1)), "invalid points: expected a list of 2 to 200"),
            ("/traffic/points", json!(points(201)), "invalid points: "),
            ("/traffic/points/1", json!([0.5]), "invalid points: expected pairs"),
            ("/traffic/points/1/0", json!(1.5), "invalid points: "),
            ("/traffic/points/2/0", json!(0.4), "invalid points: "),
            ("/traffic/points/1/1", json!(-1), "invalid points: "),
            ("/traffic/points/1/1", json!(1_000_001), "invalid points: "),
            (
                "/traffic/duration_ms",
                json!(999),
                "invalid duration_ms: expected 1000 to 31622400000",
            ),
            ("/traffic/duration_ms", json!(31_622_400_001_u64), "invalid duration_ms: "),
            ("/traffic/duration_ms", json!(1000.5), "invalid duration_ms: "),
            ("/traffic/seed", json!(4_294_967_296_u64), "invalid seed: expected 0 to 4294967295"),
            ("/traffic/seed", json!(-1), "invalid seed: "),
            ("/traffic/keys", json!(0), "invalid keys: expected 1 to 20"),
            ("/traffic/keys", json!(21), "invalid keys: expected 1 to 20"),
            (
                "/traffic/cost",
                json!(1_000_000_000_001_u64),
                "invalid cost: expected 0 to 1000000000000",
            ),
            ("/traffic/retries", json!(null), "invalid retries: expected none, obey or hammer"),
            ("/watch", json!(3), "invalid watch: expected 0 to 2"),
            ("/choices", json!([]), "invalid choices: expected a list of 1 to 4"),
            ("/choices", json!([0, 0, 0, 0, 0]), "invalid choices: "),
            ("/choices/0", json!("GCRA"), "invalid choices: expected a JSON object"),
            ("/choices/0/rules", json!([]), "invalid rules: expected a list of 1 to 16"),
            (
                "/choices/0/rules/0",
                json!("x".repeat(201)),
                "invalid rules: expected texts of at most 200",
            ),
            ("/choices/0/rules/0", json!(7), "invalid rules: "),
        ];
        for (place, value, expected) in table {
            let mut scenario = valid();
            *scenario.pointer_mut(place).expect(place) = value;
            let InvalidField(text) = read(&scenario).expect_err(place);
            assert!(text.starts_with(expected), "{place}: {text}");
        }
        for shape in ["steady", "bursty", "greedy", "herd", "day", "abuser"] {
            for rate in [json!(-0.1), json!(1_000_001), json!("5"), json!(null)] {
                let mut scenario = valid();
                scenario["traffic"]["shape"] = shape.into();
                scenario["traffic"]["rate"] = rate;
                let text = "invalid rate: expected 0 to 1000000".to_owned();
                assert_eq!(read(&scenario), Err(InvalidField(text)));
            }
        }
    }

    #[test]
    fn rejects_a_body_that_is_no_json_object() {
        let deep = "[".repeat(60_000);
        for body in ["", "{", "[]", "1", "\u{0}", deep.as_str()] {
            let text = "invalid body: expected a JSON object".to_owned();
            assert_eq!(scenario(body.as_bytes()), Err(InvalidField(text)));
        }
    }

    /// Draws pieces of JSON, and puts them and random bytes into a valid body.
    #[test]
    fn no_changed_body_makes_the_simulation_panic() {
        let pieces = [
            "-1",
            "0",
            "1e999",
            "1e-999",
            "18446744073709551615",
            "null",
            "[]",
            "{}",
            "\"",
            ",",
            "\"BACKOFF 1 1 1 2\"",
            "\"LEASE a 1 1s\"",
            "\"GCRA 1 1 1 COST 0 PARTIAL\"",
            "\"QUOTA 1 day\"",
            "31622400000",
            "1000000000000",
            "1.0",
        ];
        let valid = valid().to_string();
        let mut random = Random::new(1);
        let (mut read, mut refused) = (0, 0);
        for _ in 0..30_000 {
            let mut body = valid.clone().into_bytes();
            for _ in 0..=random.below(3) {
                let at = usize::try_from(random.below(body.len() as u64)).expect("a place");
                let cut = usize::try_from(random.below(6)).expect("a length");
                let end = body.len().min(at + cut);
                let piece = usize::try_from(random.below(pieces.len() as u64)).expect("a place");
                body.splice(at..end, pieces[piece].bytes());
            }
            let Ok(scenario) = scenario(&body) else {
                refused += 1;
                continue;
            };
            read += 1;
            if scenario.traffic.calls().is_ok_and(|calls| calls.len() <= 2_000) {
                assert!(result_body(&scenario).is_ok());
            }
        }
        assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
    }
}
