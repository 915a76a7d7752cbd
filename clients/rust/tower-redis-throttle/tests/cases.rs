//! The shared cases of middlewares: responses, and keys of several header fields.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Command, Connection, Decision, Limiter, Reply, Rule};
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;
use tower_redis_throttle::{Builder, Peer, RateLimitLayer, key_of};

fn cases(group: &str) -> Vec<Value> {
    let mut table: Value =
        serde_json::from_str(include_str!("../../../cases.json")).expect("a table");
    let Value::Array(cases) = table[group].take() else { panic!("no cases of {group}") };
    cases
}

fn request() -> http::request::Builder {
    Request::builder().extension(Peer("192.0.2.7".parse::<IpAddr>().unwrap()))
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap()).collect()
}

/// A server that returns the next reply. Clones share one script.
#[derive(Clone, Default)]
struct Script {
    replies: Arc<Mutex<VecDeque<Value>>>,
    sent: Arc<Mutex<Vec<String>>>,
}

impl Connection for Script {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        self.sent.lock().unwrap().push(command.words().join(" "));
        let reply = self.replies.lock().unwrap().pop_front().expect("a reply to every command");
        Box::pin(async move {
            let Some(error) = reply["error"].as_str() else { return Ok(integers(&reply)) };
            match redis::parse_redis_value(format!("-{error}\r\n").as_bytes())? {
                redis::Value::ServerError(error) => Err(error.into()),
                other => panic!("not an error: {other:?}"),
            }
        })
    }
}

fn integers(reply: &Value) -> redis::Value {
    match reply.as_array() {
        Some(list) => redis::Value::Array(list.iter().map(integers).collect()),
        None => redis::Value::Int(reply.as_i64().unwrap()),
    }
}

fn rule_of(spec: &Value) -> Rule {
    let text = |field: &str| spec[field].as_str().unwrap();
    let number = |field: &str| spec[field].as_u64().unwrap();
    let name = text("name");
    let mut rule = match text("kind") {
        "gcra" => Rule::gcra(name, number("burst"), number("rate"), text("period")),
        "fixed" => Rule::fixed(name, number("limit"), text("window")),
        "lease" => Rule::lease(name, number("limit"), text("ttl")),
        "policy" => Rule::policy(name),
        kind => panic!("a rule of the kind {kind}"),
    }
    .unwrap();
    if let Some(on_error) = spec["on_error"].as_str() {
        rule = rule.on_error(on_error.parse().unwrap()).unwrap();
    }
    if let Some(count) = spec["count"].as_str() {
        rule = rule.count(count.parse().unwrap()).unwrap();
    }
    rule
}

fn builder_of(input: &Value, limiter: &Limiter) -> Builder {
    let mut builder = RateLimitLayer::builder(limiter.clone());
    for limit in input["limits"].as_array().unwrap() {
        let rule = rule_of(&limit["rule"]);
        builder = match &limit["key"] {
            Value::Null => builder.rule(rule),
            names => builder.rule_by(rule, key_of(&texts(names)).unwrap()),
        };
    }
    if !input["key"].is_null() {
        builder = builder.key(key_of(&texts(&input["key"])).unwrap());
    }
    if let Some(cost) = input["cost"].as_u64() {
        builder = builder.cost(move |_| cost);
    }
    if input["skip"] == json!(true) {
        builder = builder.skip(|_| true);
    }
    if !input["anonymous"].is_null() {
        builder = builder.anonymous(rule_of(&input["anonymous"]));
    }
    if !input["trusted_proxies"].is_null() {
        builder = builder.trusted_proxies(texts(&input["trusted_proxies"]));
    }
    if !input["headers"].is_null() {
        let styles = texts(&input["headers"]).into_iter().map(|style| style.parse().unwrap());
        builder = builder.headers(styles.collect::<Vec<_>>());
    }
    if let Some(name) = input["degraded_header"].as_str() {
        builder = builder.degraded_header(name);
    }
    if let Some(status) = input["on_denied"].as_u64() {
        let status = StatusCode::from_u16(status.try_into().unwrap()).unwrap();
        builder = builder.on_denied(move |_, _, mut response| {
            *response.status_mut() = status;
            response
        });
    }
    builder
}

/// Returns what the application sees of a request.
fn view_of(request: &Request<()>, degraded_header: &Value) -> Value {
    let decision = request.extensions().get::<Decision>();
    let mut view = json!({
        "source": decision.map(|decision| decision.source.as_str()),
        "remaining": decision.map(|decision| decision.remaining),
    });
    if let Some(name) = degraded_header.as_str() {
        let value = request.headers().get(name);
        view["degraded"] = json!(value.map(|value| value.to_str().unwrap()));
    }
    view
}

/// Returns the fields that a limit sends, by their names in lower case.
fn fields_of(headers: &http::HeaderMap) -> BTreeMap<String, String> {
    let is_of_limit = |name: &str| {
        let others = ["retry-after", "cache-control"];
        name.trim_start_matches("x-").starts_with("ratelimit") || others.contains(&name)
    };
    let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
    let fields = headers.iter().map(|(name, value)| (name.to_string(), text(value)));
    fields.filter(|(name, _)| is_of_limit(name)).collect()
}

async fn run(case: &Value) {
    let (name, input, wanted) = (&case["name"], &case["input"], &case["expect"]);
    let server = Script::default();
    let one = input.get("server").into_iter();
    let replies = one.chain(input["servers"].as_array().into_iter().flatten());
    server.replies.lock().unwrap().extend(replies.cloned());
    let there = server.clone();
    let limiter = Limiter::new(move || std::future::ready(Ok(there.clone())));
    let application = Arc::new(Mutex::new(Value::Null));
    let status = input["responds"].as_u64().map_or(200, |status| status.try_into().unwrap());
    let (saw, header) = (application.clone(), input["degraded_header"].clone());
    let inner = service_fn(move |request: Request<()>| {
        *saw.lock().unwrap() = view_of(&request, &header);
        let response = Response::builder().status(status).body(Full::<Bytes>::default());
        std::future::ready(Ok::<_, Infallible>(response.unwrap()))
    });
    let mut request = request();
    for (field, value) in input["request"].as_object().into_iter().flatten() {
        request = request.header(field, value.as_str().unwrap());
    }
    let service = builder_of(input, &limiter).build().unwrap().layer(inner);
    let response = service.oneshot(request.body(()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();

    let beginnings = texts(&wanted["sent"]);
    for _ in 0..1000 {
        if server.sent.lock().unwrap().len() >= beginnings.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Nothing is sent after the limiter has closed.
    limiter.close().await;
    let sent = server.sent.lock().unwrap();
    let is_same = sent.iter().zip(&beginnings).all(|(sent, begins)| sent.starts_with(begins));
    assert!(is_same && sent.len() == beginnings.len(), "{name}: sent {sent:?}");
    assert_eq!(*application.lock().unwrap(), wanted["application"], "{name}");
    assert_eq!(head.status.as_u16(), wanted["status"], "{name}");
    let length = head.headers.get("content-length").map(|value| value.to_str().unwrap());
    assert!(length.is_none_or(|length| length == body.len().to_string()), "{name}: {length:?}");
    if !wanted["body"].is_null() {
        assert_eq!(head.headers["content-type"], "application/problem+json", "{name}");
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), wanted["body"], "{name}");
    }
    if let Some(fields) = wanted["fields"].as_object() {
        let wanted = fields.iter().map(|(name, value)| (name.to_lowercase(), value));
        let wanted: BTreeMap<_, _> =
            wanted.map(|(name, value)| (name, value.as_str().unwrap().to_owned())).collect();
        assert_eq!(fields_of(&head.headers), wanted, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn layer_passes_every_shared_case_of_responses() {
    let mut run_cases = 0;
    for case in cases("responses") {
        // In this layer, all rules of a request have one cost, and a tag is a function's.
        let limits = case["input"]["limits"].as_array().unwrap();
        if limits.iter().all(|limit| limit["cost"].is_null()) {
            run(&case).await;
            run_cases += 1;
        }
    }
    assert!(run_cases >= 30, "{run_cases}");
}

#[tokio::test(start_paused = true)]
async fn key_of_several_fields_passes_every_shared_case() {
    const NAMES: [&str; 3] = ["X-Tenant", "x-api-key", "X-Part"];
    let api = || Rule::gcra("api", 6, 10, "60s").unwrap();
    for case in cases("key_parts") {
        let parts = case["input"].as_array().unwrap();
        let Ok(key) = key_of(&NAMES[..parts.len()]) else {
            assert_eq!(case["expect"], json!({ "error": "invalid" }), "{}", case["name"]);
            continue;
        };
        let server = FakeServer::new();
        let mut request = request();
        for (name, part) in NAMES.iter().zip(parts).filter(|(_, part)| !part.is_null()) {
            let chars = part.as_str().unwrap().chars();
            let latin1: Vec<u8> = chars.map(|char| u8::try_from(char).unwrap()).collect();
            request = request.header(*name, latin1);
        }
        let layer = RateLimitLayer::builder(server.limiter()).rule(api()).key(key).build().unwrap();
        let service = layer.layer(service_fn(|_: Request<()>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
        }));
        let status = service.oneshot(request.body(()).unwrap()).await.unwrap().status().as_u16();
        let found = server.calls().first().map(|call| call[1].clone());
        let Some(wanted) = case["expect"].as_str() else {
            assert_eq!((status, found), (400, None), "{}", case["name"]);
            continue;
        };
        let direct = server.limiter().check(api().of(wanted)).await.unwrap();
        assert!(status == 200 && direct.allowed);
        assert_eq!(found.as_ref(), Some(&server.calls()[1][1]), "{}", case["name"]);
    }
}
