//! Limits while the server is reachable.

use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tonic::{Code as Status, Request};

use redis_throttle_client::Cluster;
use redis_throttle_gateway::decider::Tags;

use crate::gateway::{Gateway, Setup, back, header, hits, is_ok, left, of, request, with_limit};
use crate::server::Server;

const LIMITS: &str = "limits:
- {match: {user: '*'}, rule: FIXED 3 1h}
- {match: {tenant: '*'}, rule: GCRA 10 10 90}
- {match: {model: '*'}, rule: FIXED 100 1h, count: reported}
- {match: {try: '*'}, rule: FIXED 1 1h, cost: 1}
- {match: {large: '*'}, rule: FIXED 10000000000 1h}
- {match: {login: '*'}, rule: BACKOFF 1 1m 1h 1d}
";

async fn started(limits: &str) -> (Server, Gateway) {
    let server = Server::start().await;
    server.freeze().await;
    let gateway = Gateway::start(&server.url(), limits).await;
    (server, gateway)
}

#[tokio::test]
async fn denied_request_takes_nothing_from_its_other_limits() {
    let (server, gateway) = started(LIMITS).await;
    let both = [of("tenant", "t"), of("user", "u")];
    for (tenant, user) in [(9, 2), (8, 1), (7, 0)] {
        let response = gateway.check(&both).await;
        assert_eq!(left(&response), [(true, tenant), (true, user)]);
        assert!(is_ok(&response) && response.raw_body.is_empty());
        assert_eq!(header(&response, "Retry-After"), None);
    }
    let denied = gateway.check(&both).await;
    assert!(!is_ok(&denied));
    assert_eq!(left(&denied), [(true, 7), (false, 0)]);
    assert_eq!(server.calls("rl.all").await, 4);
    let metrics = gateway.metrics.text();
    for line in [
        r#"requests_total{domain="api",rule="tenant",outcome="allowed"} 4"#,
        r#"requests_total{domain="api",rule="user",outcome="allowed"} 3"#,
        r#"requests_total{domain="api",rule="user",outcome="denied"} 1"#,
        r#"latency_seconds_count{protocol="grpc"} 4"#,
    ] {
        assert!(
            metrics.contains(&format!("redis_throttle_gateway_{line}\n")),
            "{line}:\n{metrics}"
        );
    }
    // The promise holds: one second earlier the request is denied, then it is allowed.
    let seconds: u64 = header(&denied, "Retry-After").unwrap().parse().unwrap();
    server.advance(Duration::from_secs(seconds - 1)).await;
    assert!(!is_ok(&gateway.check(&both[1..]).await));
    server.advance(Duration::from_secs(1)).await;
    assert!(is_ok(&gateway.check(&both).await));
}

#[tokio::test]
async fn statuses_headers_and_body_report_the_decision() {
    let (_server, gateway) = started(LIMITS).await;
    let response = gateway.check(&[of("user", "u"), of("nothing", "x"), of("tenant", "t")]).await;
    let limits: Vec<_> = response.statuses.iter().map(|status| &status.current_limit).collect();
    let user = limits[0].as_ref().unwrap();
    assert_eq!((&*user.name, user.requests_per_unit, user.unit()), ("user", 3, Unit::Hour));
    assert!(limits[1].is_none());
    // A period of 90 s is no unit.
    assert_eq!(limits[2].as_ref().unwrap().unit(), Unit::Unknown);
    assert_eq!(response.statuses[0].duration_until_reset.unwrap().seconds, 3600);
    let policies = header(&response, "RateLimit-Policy").unwrap();
    assert_eq!(policies, "\"user\";q=3;w=3600, \"tenant\";q=10;w=90");
    // A denied one says when to retry, an allowed one when all units are back.
    gateway.check(&[hits(of("tenant", "t"), 9)]).await;
    let denied = gateway.check(&[of("user", "u"), of("tenant", "t")]).await;
    let waits = denied.statuses.iter().map(|one| one.duration_until_reset.unwrap().seconds);
    assert_eq!(waits.collect::<Vec<_>>(), [3600, 9]);
    // No retry helps here, yet Envoy responds with 429.
    let never = gateway.check(&[hits(of("user", "u"), 4)]).await;
    let body: serde_json::Value = serde_json::from_slice(&never.raw_body).unwrap();
    assert_eq!((&body["status"], &body["title"]), (&429.into(), &"Too Many Requests".into()));
    assert!(body["detail"].as_str().unwrap().starts_with("This request costs more"), "{body}");
    let large = gateway.check(&[of("large", "l")]).await;
    let large = &large.statuses[0];
    let large = (large.current_limit.as_ref().unwrap().requests_per_unit, large.limit_remaining);
    assert_eq!(large, (u32::MAX, u32::MAX));
    gateway.check(&[hits(of("user", "u"), 2)]).await;
    let denied = gateway.check(&[of("user", "u")]).await;
    assert_eq!(header(&denied, "Retry-After"), Some("3600"));
    assert_eq!(header(&denied, "Content-Type"), Some("application/problem+json"));
    let body: serde_json::Value = serde_json::from_slice(&denied.raw_body).unwrap();
    assert_eq!(body["status"], 429);
    assert_eq!(body["violated-policies"][0], "user");
}

#[tokio::test]
async fn hits_of_a_descriptor_come_before_those_of_the_request() {
    let (server, gateway) = started(LIMITS).await;
    let user = || of("user", "u");
    // (descriptors, hits of the request, units left)
    let table = [
        (vec![user()], 0, vec![(true, 2)]),
        (vec![hits(user(), 0)], 5, vec![(true, 2)]),
        (vec![back(hits(user(), 1))], 5, vec![(true, 3)]),
        (vec![user()], 2, vec![(true, 1)]),
        // Equal rows are one call: 1 + 1 units are too many.
        (vec![user(), user()], 0, vec![(false, 1), (false, 1)]),
        (vec![hits(user(), 1), hits(user(), 0)], 0, vec![(true, 0), (true, 0)]),
        (vec![hits(user(), 0)], 0, vec![(false, 0)]),
        (vec![back(user())], 0, vec![(true, 1)]),
        // More than a call may cost is more than any limit has.
        (vec![hits(user(), u64::MAX), user()], 0, vec![(false, 1), (false, 1)]),
    ];
    for (descriptors, hits, expected) in table {
        let response = gateway.try_check(&descriptors, hits).await.unwrap();
        assert_eq!(left(&response), expected, "{descriptors:?} {hits}");
    }
    assert_eq!(server.calls("rl.refund").await, 2);
}

#[tokio::test]
async fn reported_cost_above_the_limit_denies_the_next_request_until_it_is_paid() {
    let (server, gateway) = started(LIMITS).await;
    let model = || of("model", "m");
    assert_eq!(left(&gateway.check(&[hits(model(), 0)]).await), [(true, 100)]);
    assert!(is_ok(&gateway.check(&[hits(model(), 250)]).await));
    assert!(!is_ok(&gateway.check(&[hits(model(), 0)]).await));
    assert!(!is_ok(&gateway.check(&[model()]).await));
    assert_eq!(server.calls("rl.charge").await, 1);
    server.advance(Duration::from_secs(4 * 3600)).await;
    assert_eq!(left(&gateway.check(&[model()]).await), [(true, 99)]);
}

#[tokio::test]
async fn unlimited_denied_shadow_and_replaced_limits_of_envoys_form() {
    let (server, gateway) = started(
        "descriptors:
- {key: free, rate_limit: {unlimited: true}}
- {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
- {key: user, rate_limit: {unit: minute, requests_per_unit: 9, name: all}}
- {key: shadow, rate_limit: {unit: hour, requests_per_unit: 1}, shadow_mode: true}
- {key: vip, rate_limit: {unit: minute, requests_per_unit: 5, replaces: [{name: all}]}}
",
    )
    .await;
    let response = gateway.check(&[of("free", "x"), of("vip", "v"), of("user", "u")]).await;
    assert_eq!(left(&response), [(true, u32::MAX), (true, 4), (true, 0)]);
    assert!(response.statuses[2].current_limit.is_none());
    let calls = async || server.calls("rl.fixed").await + server.calls("rl.all").await;
    let before = calls().await;
    let denied = gateway.check(&[of("none", "x"), of("user", "u")]).await;
    assert_eq!(left(&denied), [(false, 0), (true, 0)]);
    assert_eq!(denied.statuses[0].current_limit.as_ref().unwrap().unit(), Unit::Minute);
    assert!(!denied.raw_body.is_empty());
    // No hits are not too many, with the configured limit and with one that the descriptor brings.
    let own = with_limit(of("none", "x"), 0, Unit::Minute.into());
    for none in [hits(of("none", "x"), 0), hits(own, 0), back(hits(of("none", "x"), 0))] {
        let response = gateway.check(&[none]).await;
        assert_eq!((is_ok(&response), left(&response)), (true, vec![(true, 0)]));
        assert_eq!(response.statuses[0].current_limit.as_ref().unwrap().requests_per_unit, 0);
        assert!(response.raw_body.is_empty());
    }
    assert_eq!(calls().await, before);
    for (user, shadow) in [(8, 0), (7, 0)] {
        let response = gateway.check(&[of("shadow", "s"), of("user", "u")]).await;
        assert_eq!(left(&response), [(true, shadow), (true, user)]);
    }
    server.run(&["DEL", "rl:shadow:api|fixed-3600s|s"]).await;
    server.run(&["LPUSH", "rl:shadow:api|fixed-3600s|s", "of another program"]).await;
    let response = gateway.check(&[of("shadow", "s"), of("user", "u")]).await;
    assert_eq!(left(&response), [(true, 0), (true, 6)]);
    assert!(gateway.metrics.text().contains(r#"reason="rejected"} 1"#));
}

#[tokio::test]
async fn banned_caller_is_over_the_limit() {
    let limits = "limits:\n- {match: {user: '*'}, policy: users, default: FIXED 9 1h}\n";
    let (server, gateway) = started(limits).await;
    server.run(&["RL.POLICY", "SET", "users", "BLOCK", "FIXED", "9", "1h"]).await;
    let denied = gateway.check(&[of("user", "u")]).await;
    assert_eq!(left(&denied), [(false, 0)]);
    assert_eq!((is_ok(&denied), header(&denied, "Retry-After")), (false, None));
    let body: serde_json::Value = serde_json::from_slice(&denied.raw_body).unwrap();
    // Envoy turns it into 429.
    assert_eq!((&body["status"], &body["title"]), (&429.into(), &"Too Many Requests".into()));
    assert_eq!(body["detail"], "This caller is blocked.");
    let metrics = gateway.metrics.text();
    assert!(metrics.contains(r#"rule="users",outcome="banned"} 1"#), "{metrics}");
}

#[tokio::test]
async fn keys_of_a_cluster_have_the_tag_of_their_value() {
    let server = Server::cluster_of_one().await;
    let setup = Setup { tags: Tags::Value, ..Setup::default() };
    let cluster = Cluster::new([server.url()]).unwrap();
    let gateway = Gateway::with(cluster, LIMITS, setup).await;
    // Keys of one tag are one call; those of two would be refused by the server.
    let one = [of("user", "a"), of("tenant", "a")];
    let two = [of("user", "a"), of("tenant", "b")];
    for (descriptors, expected) in [(&one, [2, 9]), (&two, [1, 9]), (&one, [0, 8])] {
        let response = gateway.check(descriptors).await;
        assert_eq!(left(&response), expected.map(|left| (true, left)));
    }
    // A row that was not checked takes nothing.
    assert_eq!(left(&gateway.check(&two).await), [(false, 0), (true, 0)]);
    assert_eq!(left(&gateway.check(&two[1..]).await), [(true, 8)]);
    assert_eq!(server.calls("rl.all").await, 2);
    // A rule without costs is checked last, because what it counts cannot be given back.
    let login = |tenant| [of("login", "a"), of("tenant", tenant)];
    assert_eq!(left(&gateway.check(&login("d")).await), [(true, 0), (true, 9)]);
    assert_eq!(left(&gateway.check(&login("d")).await), [(false, 0), (true, 8)]);
    assert_eq!(server.calls("rl.backoff").await, 2);
    // Its denial refunds what the others took.
    assert_eq!(left(&gateway.check(&[of("tenant", "d")]).await), [(true, 8)]);
}

#[tokio::test]
async fn limit_of_a_descriptor_replaces_the_configured_one() {
    let (_server, gateway) = started(LIMITS).await;
    let own = |unit: Unit| with_limit(of("user", "u"), 1, unit.into());
    assert!(is_ok(&gateway.check(&[own(Unit::Hour)]).await));
    let denied = gateway.check(&[own(Unit::Hour)]).await;
    assert!(!is_ok(&denied));
    assert_eq!(denied.statuses[0].current_limit.as_ref().unwrap().unit(), Unit::Hour);
    let unknown = gateway.try_check(&[own(Unit::Unknown)], 0).await;
    assert_eq!(unknown.unwrap_err(), Status::InvalidArgument);
}

#[tokio::test]
async fn unknown_domain_and_descriptor_are_ok_without_a_call() {
    let (server, gateway) = started(LIMITS).await;
    let unknown = gateway.send(request("other", &[of("user", "u")], 0)).await.unwrap();
    assert_eq!((is_ok(&unknown), left(&unknown)), (true, vec![(true, 0)]));
    let unmatched = gateway.check(&[of("colour", "red")]).await;
    assert_eq!((is_ok(&unmatched), left(&unmatched)), (true, vec![(true, 0)]));
    assert_eq!(server.calls("rl.fixed").await, 0);
}

#[tokio::test]
async fn requests_beyond_the_bounds_are_denied_and_counted() {
    let (server, gateway) = started(LIMITS).await;
    let mut wide = of("user", "u");
    wide.entries = vec![wide.entries[0].clone(); 17];
    let rows: Vec<_> = (0..17).map(|user| of("user", &user.to_string())).collect();
    let table = [
        request(&"d".repeat(256), &[of("user", "u")], 0),
        request("api", &vec![of("x", "y"); 65], 0),
        request("api", &[wide], 0),
        request("api", &[of(&"k".repeat(257), "v")], 0),
        request("api", &[of("user", &"v".repeat(65_537))], 0),
        request("api", &rows, 0),
    ];
    for request in table {
        assert!(!is_ok(&gateway.send(request).await.unwrap()));
    }
    // A message of more than 4 MiB is not read.
    let large = request("api", &[of("user", &"v".repeat(4_200_000))], 0);
    assert_eq!(gateway.send(large).await.unwrap_err(), Status::InvalidArgument);
    let metrics = gateway.metrics.text();
    for (reason, count) in [("invalid", 6), ("too_many_limits", 1)] {
        let line = format!(r#"refused_total{{protocol="grpc",reason="{reason}"}} {count}"#);
        assert!(metrics.contains(&line), "{line}:\n{metrics}");
    }
    assert_eq!(server.calls("rl.all").await + server.calls("rl.fixed").await, 0);
    assert!(is_ok(&gateway.check(&rows[..16]).await));
}

#[tokio::test]
async fn large_metadata_of_a_call_does_not_lift_the_limits() {
    let (_server, gateway) = started(LIMITS).await;
    for allowed in [true, true, true, false] {
        let mut call = Request::new(request("api", &[of("user", "u")], 0));
        // Envoy's tracers pass on a field that the client chooses.
        call.metadata_mut().insert("tracestate", "a".repeat(60 * 1024).parse().unwrap());
        let response = gateway.client.clone().should_rate_limit(call).await.unwrap();
        assert_eq!(is_ok(response.get_ref()), allowed);
    }
}
