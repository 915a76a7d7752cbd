//! Runs the test cases that the clients of all languages share.

mod actions;
mod events;
mod rules;
mod scripted;
mod timelines;

use std::net::IpAddr;
use std::time::Duration;

use redis::{RedisError, Value as Reply};
use serde_json::{Map, Value, json};

use crate::rules::{durations, headers::retry_after_s, keys::Keys};
use crate::web::address;
use crate::wire::words::{self, Verb};
use crate::wire::{command::Command, replies};
use crate::{
    ClientAddress, Decision, Error, HashTag, HeaderStyle, Item, OnError, Options, Problem, Rate,
    Reason, Rule, Source,
};
use rules::{rule_of, span, text, with_options};
use timelines::set_options;

/// 2^53 - 1, which the cases have where a retry never helps.
const NEVER_MS: u64 = (1 << 53) - 1;

fn table() -> Map<String, Value> {
    serde_json::from_str(include_str!("../../../cases.json")).expect("a table")
}

fn keys() -> Keys {
    Keys::new("rl", None, None).unwrap()
}

fn item<'a>(rule: &'a Rule, of: &'a Value) -> Result<Item<'a>, Error> {
    let item = with_options(rule.of(text(of, "subject")), of)?;
    Ok(Item { id: of["id"].as_str(), ..item })
}

fn words(command: &Command<'_>) -> Value {
    json!(command.words())
}

fn one_call(input: &Value) -> Result<Value, Error> {
    let rule = rule_of(&input["rule"])?;
    let call = item(&rule, input)?.keyed(&keys())?;
    let id = call.id.unwrap_or_default();
    let command = match text(input, "method") {
        "check" => words::check(&call),
        "peek" => words::named(Verb::Peek, &call),
        "refund" => words::named(Verb::Refund, &call),
        "charge" => words::named(Verb::Charge, &call),
        "forget" => Ok(words::forget(&call.key)),
        "block" => words::block(&call.key, &text(input, "duration")),
        "lease" => words::lease(&call),
        "renew" => words::renew(&rule, &call.key, id),
        "release" => words::release(&call.key, id),
        other => panic!("the table has a method {other}"),
    };
    command.map(|command| words(&command))
}

fn several_calls(input: &Value) -> Result<Value, Error> {
    let specs = input["calls"].as_array().unwrap();
    let rules: Vec<_> =
        specs.iter().map(|spec| rule_of(&spec["rule"])).collect::<Result<_, _>>()?;
    let (tag, id) = (input["tag"].as_str(), input["id"].as_str());
    let keyed = |(rule, spec)| Item { tag, id, ..item(rule, spec)? }.keyed(&keys());
    let calls: Vec<_> = rules.iter().zip(specs).map(keyed).collect::<Result<_, _>>()?;
    let peek = input["method"] == json!("peek_all");
    words::check_all(&calls, peek).map(|command| words(&command))
}

fn key(input: &Value) -> Result<Value, Error> {
    let prefix = input["prefix"].as_str().unwrap_or("rl");
    let by_subject = input["hash_tag"] == json!("subject");
    let hash_tag = by_subject.then_some(HashTag::Subject);
    let keys = Keys::new(prefix, hash_tag, input["hmac_secret"].as_str().map(str::as_bytes))?;
    let key = keys.key(text(input, "rule"), text(input, "subject"), input["tag"].as_str());
    key.map(Value::from)
}

fn reply_of(value: &Value) -> Reply {
    match value {
        Value::Array(values) => Reply::Array(values.iter().map(reply_of).collect()),
        Value::Number(number) => Reply::Int(number.as_i64().unwrap()),
        Value::String(text) => Reply::BulkString(text.clone().into_bytes()),
        _ => Reply::Nil,
    }
}

/// Returns milliseconds. The longest duration is the largest number that every language has.
fn ms(span: Duration) -> u64 {
    if span == Duration::MAX { NEVER_MS } else { span.as_millis().try_into().unwrap() }
}

/// Converts milliseconds; -1 is never.
fn wait(ms: i64) -> Duration {
    u64::try_from(ms).map_or(Duration::MAX, Duration::from_millis)
}

/// Returns all fields of a decision, with the names of the cases.
fn fields(decision: &Decision) -> Value {
    json!({
        "allowed": decision.allowed,
        "limit": decision.limit,
        "remaining": decision.remaining,
        "retry_after_ms": ms(decision.retry_after),
        "reset_after_ms": ms(decision.reset_after),
        "rule": &*decision.rule,
        "source": decision.source.as_str(),
        "degraded": decision.degraded,
        "reason": decision.reason.map(Reason::as_str),
        "would_allow": decision.would_allow,
        "would_retry_after_ms": ms(decision.would_retry_after),
        "granted": decision.granted,
        "never": decision.never(),
        "banned": decision.banned,
        "deciding": decision.deciding,
    })
}

/// Returns those fields of the decision that the case expects.
fn plain(decision: &Decision, wanted: &Value) -> Value {
    let all = fields(decision);
    wanted.as_object().unwrap().keys().map(|name| (name.clone(), all[name].clone())).collect()
}

fn one_reply(input: &Value, wanted: &Value) -> Result<Value, Error> {
    let (rule, reply) = (rule_of(&input["rule"])?, reply_of(&input["reply"]));
    let call = with_options(rule.of("s"), input)?.keyed(&keys())?;
    let decision = replies::decision(&call, &reply)?;
    Ok(plain(&decision, wanted))
}

fn several_decided(input: &Value) -> Result<Decision, Error> {
    let specs = input["rules"].as_array().unwrap();
    let rules: Vec<_> = specs.iter().map(rule_of).collect::<Result<_, _>>()?;
    let calls: Vec<_> = rules.iter().map(|rule| rule.of("s").keyed(&keys()).unwrap()).collect();
    replies::decision_all(&calls, &reply_of(&input["reply"]))
}

fn reply_of_several(input: &Value, wanted: &Value) -> Result<Value, Error> {
    let decision = several_decided(input)?;
    let rows = decision.rows.iter().zip(wanted["rows"].as_array().into_iter().flatten());
    let rows: Vec<_> = rows.map(|(row, wanted)| plain(row, wanted)).collect();
    Ok(json!({ "decision": plain(&decision, &wanted["decision"]), "rows": rows }))
}

/// Builds the decision that a case about headers or problems describes.
fn decided(input: &Value) -> Result<Decision, Error> {
    let rules = input["rules"].as_array().unwrap();
    let rule = rule_of(&rules[0])?;
    if input["source"] == json!("error") {
        let retry_after = wait(input["retry_after_ms"].as_i64().unwrap_or(0));
        let allowed = input["allowed"] == json!(true);
        return Ok(Decision::without_server(rule.name().into(), allowed, retry_after));
    }
    if rules.len() > 1 {
        return several_decided(input);
    }
    let call = with_options(rule.of("s"), input)?.keyed(&keys())?;
    replies::decision(&call, &reply_of(&input["reply"]))
}

fn headers(input: &Value) -> Result<Value, Error> {
    let named = |style: &Value| style.as_str().unwrap().parse();
    let styles = match input["styles"].as_array() {
        Some(styles) => styles.iter().map(named).collect::<Result<_, _>>()?,
        None => vec![HeaderStyle::Draft11],
    };
    let now_ms = input["now_ms"].as_u64().unwrap_or(0);
    let fields = decided(input)?.headers_at(&styles, now_ms);
    Ok(fields.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect())
}

fn problem(input: &Value) -> Result<Value, Error> {
    let has_no_subject = input["no_subject"] == json!(true);
    let problem = if has_no_subject { Problem::no_subject() } else { decided(input)?.problem() };
    let body: Value = serde_json::from_str(&problem.to_json()).expect("JSON");
    Ok(json!({ "status": problem.status, "body": body }))
}

fn found_address(input: &Value) -> Result<Value, Error> {
    let texts = |field: &str| -> Vec<&str> {
        input[field].as_array().unwrap().iter().filter_map(Value::as_str).collect()
    };
    // In Rust a peer is always an address; any other text in a case stands for an unknown peer.
    let peer: Option<IpAddr> = input["peer"].as_str().and_then(address::parsed);
    let found = ClientAddress::new(texts("trusted"))?.find(peer, texts("forwarded").into_iter());
    Ok(found.map_or(Value::Null, Value::from))
}

fn rate(input: &Value) -> Result<Value, Error> {
    let rate: Rate = input.as_str().unwrap().parse()?;
    let period = durations::text(durations::checked_us(&rate.period(), "period")?);
    Ok(json!({ "rate": rate.units(), "period": period }))
}

fn failure(input: &Value) -> Result<Value, Error> {
    let policies = input.as_array().unwrap().iter().map(|policy| policy.as_str().unwrap().parse());
    let chosen = policies.collect::<Result<Vec<OnError>, _>>()?.into_iter().max();
    Ok(json!(format!("{:?}", chosen.unwrap()).to_lowercase()))
}

/// Returns the driver's error for an error reply.
fn error_reply(text: &str) -> RedisError {
    match redis::parse_redis_value(format!("-{text}\r\n").as_bytes()) {
        Ok(Reply::ServerError(error)) => error.into(),
        other => panic!("{text} is an error reply, not {other:?}"),
    }
}

fn error(input: &Value) -> Result<Value, Error> {
    let error = Error::from(error_reply(input.as_str().unwrap()));
    Ok(json!(if error.is_rejection() { "rejected" } else { "unavailable" }))
}

/// Returns the options that a case sets, checked.
fn options(input: &Value) -> Result<Options, Error> {
    set_options(Options::default(), input).checked()
}

/// Returns those options that the case expects, with the names of the cases.
fn defaults(input: &Value, wanted: &Value) -> Result<Value, Error> {
    let options = options(input)?;
    let (timeout, silence) = options.deadlines();
    let all = json!({
        "timeout_ms": ms(timeout),
        "silence_ms": ms(silence),
        "on_error": format!("{:?}", options.on_error).to_lowercase(),
        "max_in_flight": options.max_in_flight,
        "max_waiting": options.max_waiting,
        "known_denials": options.known_denials,
        "log_errors": options.log_errors,
        "breaker_failures": options.breaker_failures,
        "breaker_pause_ms": ms(options.breaker_pause),
        "denial_cache": options.denial_cache,
        "denial_cache_max_ms": ms(options.denial_cache_max),
        "prefetch": options.prefetch,
        "backend": format!("{:?}", options.backend).to_lowercase(),
        "prefix": options.prefix,
        "hash_tag": options.hash_tag.map(|hash_tag| format!("{hash_tag:?}")),
        "hmac_secret": options.hmac_secret,
        "on_decision": options.on_decision.map(|_| "a hook"),
    });
    Ok(wanted.as_object().unwrap().keys().map(|name| (name.clone(), all[name].clone())).collect())
}

/// Returns the names of the options that an error names, which have no units in Rust.
fn invalid_options(input: &Value, wanted: &Value) -> Value {
    let error = options(input).expect_err("invalid options").to_string();
    let is_named = |name: &&Value| error.contains(name.as_str().unwrap().trim_end_matches("_ms"));
    wanted.as_array().unwrap().iter().filter(is_named).cloned().collect()
}

fn evaluate(section: &str, input: &Value, wanted: &Value) -> Result<Value, Error> {
    match section {
        "durations" => span(input, "window")
            .and_then(|window| Rule::fixed("name", 1, &*window))
            .map(|rule| json!(rule.terms().words[2])),
        "calls" => one_call(input),
        "calls_all" => several_calls(input),
        "invalid_rules" => rule_of(input).map(|rule| json!(rule.name())),
        "keys" => key(input),
        "replies" => one_reply(input, wanted),
        "replies_all" => reply_of_several(input, wanted),
        "retry_after" => {
            Ok(json!(retry_after_s(wait(input.as_i64().unwrap())).map(|s| s.to_string())))
        }
        "headers" => headers(input),
        "problems" => problem(input),
        "addresses" => found_address(input),
        "rates" => rate(input),
        "failure" => failure(input),
        "errors" => error(input),
        "defaults" => defaults(input, wanted),
        "invalid_options" => Ok(invalid_options(input, wanted)),
        other => panic!("nothing runs the section {other}"),
    }
}

#[test]
fn client_passes_every_shared_case() {
    let mut run = 0;
    // The first two have tests of their own; the tests of the layer run the others.
    let elsewhere = ["timelines", "events", "key_parts", "responses"];
    for (section, cases) in table().into_iter().filter(|(name, _)| !elsewhere.contains(&&**name)) {
        for case in cases.as_array().expect("cases") {
            let wanted = &case["expect"];
            let found = evaluate(&section, &case["input"], wanted);
            let found = match found {
                Ok(found) => found,
                Err(Error::InvalidArgument { argument, .. }) if section == "invalid_rules" => {
                    json!(argument)
                }
                Err(Error::InvalidArgument { .. }) => json!({ "error": "invalid" }),
                Err(Error::CommandRejected { .. }) => json!({ "error": "protocol" }),
                Err(other) => panic!("{section}: {}: {other}", case["name"]),
            };
            assert_eq!(&found, wanted, "{section}: {}", case["name"]);
            run += 1;
        }
    }
    assert!(run > 200, "{run} cases");
}

/// Converts a call of the functions or the script back to the module's command.
fn read_back(written: &Command<'_>, name_at: usize) -> Vec<String> {
    let words = written.words();
    let (keys, rest) = words[3..].split_at(words[2].parse().expect("how many keys"));
    assert_eq!(written.key(), keys[0]);
    let name = if name_at == 1 { words[1].strip_prefix("rl_").unwrap() } else { &*rest[0] };
    let rest = if name_at == 1 { rest } else { &rest[1..] };
    let mut command = vec![format!("RL.{}", name.to_uppercase())];
    if name.ends_with("all") || name.ends_with("ALL") {
        let pairs = keys.iter().zip(rest).flat_map(|(key, rule)| [key, rule]);
        command.extend(pairs.map(|word| word.to_string()));
    } else {
        command.extend(keys.iter().chain(rest).map(|word| word.to_string()));
    }
    command
}

#[test]
fn converts_every_call_of_the_shared_cases_for_each_back_end() {
    let table = table();
    let cases =
        ["calls", "calls_all"].iter().flat_map(|section| table[*section].as_array().unwrap());
    let mut run = 0;
    for wanted in cases.filter_map(|case| case["expect"].as_array()) {
        let words: Vec<String> = wanted.iter().map(|word| word.as_str().unwrap().into()).collect();
        let command = Command::new(words.iter().map(|word| word.as_str().into()));
        let (function, script) = (words::as_function(&command), words::as_script(&command, "sha"));
        if words[0] == "DEL" {
            assert!(function.is_none() && script.is_none());
            continue;
        }
        let (function, script) = (function.unwrap(), script.unwrap());
        let reads = words[0].starts_with("RL.PEEK");
        assert_eq!(function.words()[0], if reads { "FCALL_RO" } else { "FCALL" });
        assert_eq!(script.words()[..2], ["EVALSHA", "sha"]);
        assert_eq!(read_back(&function, 1), words);
        assert_eq!(read_back(&script, 3), words);
        run += 1;
    }
    assert!(run > 25, "{run} calls");
}

#[test]
fn source_names_match_the_shared_cases() {
    let names = [Source::Server, Source::Local, Source::Error].map(Source::as_str);
    assert_eq!(names, ["server", "local", "error"]);
}
