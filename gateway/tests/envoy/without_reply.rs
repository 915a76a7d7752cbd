//! A server that sends no reply, and a gateway that ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use tonic::{Code as Status, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::service_fn;

use crate::gateway::{Client, Gateway, Setup, header, hits, is_ok, left, of, request};
use crate::server::{Server, until};

const LIMITS: &str = "limits:
- {match: {allow: '*'}, rule: FIXED 1 1h}
- {match: {deny: '*'}, rule: FIXED 1 1h, on_error: deny}
- {match: {leave: '*'}, rule: FIXED 1 1h, on_error: unavailable}
";

/// Asserts the decisions without the server.
async fn assert_on_error(gateway: &Gateway) {
    let (allow, deny, leave) = (of("allow", "a"), of("deny", "d"), of("leave", "l"));
    let allowed = gateway.check(std::slice::from_ref(&allow)).await;
    assert_eq!((is_ok(&allowed), allowed.response_headers_to_add.len()), (true, 0));
    // A limit that denies comes before one that leaves the decision to the proxy.
    for all in [vec![deny.clone()], vec![allow.clone(), leave.clone(), deny]] {
        let denied = gateway.check(&all).await;
        assert!(!is_ok(&denied));
        assert!(!left(&denied).last().unwrap().0);
        let body: serde_json::Value = serde_json::from_slice(&denied.raw_body).unwrap();
        assert_eq!((&body["status"], &body["title"]), (&429.into(), &"Too Many Requests".into()));
        assert_eq!(body["detail"], "The rate limiter is not available.");
        assert_eq!(header(&denied, "RateLimit"), None);
    }
    for all in [vec![leave.clone()], vec![allow, leave]] {
        assert_eq!(gateway.try_check(&all, 0).await.unwrap_err(), Status::Unavailable);
    }
}

#[tokio::test]
async fn on_error_decides_while_the_server_is_down_and_limits_return() {
    let mut server = Server::start().await;
    let gateway = Gateway::start(&server.url(), LIMITS).await;
    assert!(is_ok(&gateway.check(&[of("deny", "d")]).await));
    server.end();
    assert_on_error(&gateway).await;
    server.begin().await;
    let decides = async || is_ok(&gateway.check(&[of("deny", "new")]).await);
    until("the server decides again", decides).await;
    assert!(!is_ok(&gateway.check(&[of("deny", "new")]).await));
}

#[tokio::test]
async fn denied_key_stays_denied_while_the_server_is_down() {
    let mut server = Server::start().await;
    let gateway = Gateway::start(&server.url(), LIMITS).await;
    for rule in ["allow", "deny"] {
        let responses =
            [gateway.check(&[of(rule, "a")]).await, gateway.check(&[of(rule, "a")]).await];
        assert_eq!(responses.each_ref().map(is_ok), [true, false]);
    }
    server.end();
    for rule in ["allow", "deny"] {
        let denied = gateway.check(&[of(rule, "a")]).await;
        let seconds: u64 = header(&denied, "Retry-After").unwrap().parse().unwrap();
        assert!(!is_ok(&denied) && (1..=3600).contains(&seconds), "{denied:?}");
    }
    let metrics = gateway.metrics.text();
    for line in [
        r#"requests_total{domain="api",rule="allow",outcome="denied"} 2"#,
        r#"degraded_total{domain="api",rule="allow"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line}:\n{metrics}");
    }
}

#[tokio::test]
async fn on_error_decides_before_the_proxy_gives_up() {
    let server = Server::start().await;
    let setup = Setup { timeout: Duration::from_millis(10), ..Setup::default() };
    let gateway = Gateway::with(server.client(), LIMITS, setup).await;
    let mut tries = 0;
    let connected = async || {
        tries += 1;
        // A call without a reply may have counted, so each try has a count of its own.
        is_ok(&gateway.check(&[of("deny", &tries.to_string())]).await)
    };
    until("it is connected", connected).await;
    let slept = server.hang().await;
    // The proxy's patience is generous here, so that a busy machine does not fail the test: the
    // gateway's own deadline is what ends the call.
    let began = Instant::now();
    let mut request = Request::new(request("api", &[of("deny", "d")], 0));
    request.set_timeout(Duration::from_millis(900));
    let denied = gateway.client.clone().should_rate_limit(request).await.unwrap().into_inner();
    assert!(!is_ok(&denied));
    assert!(began.elapsed() < Duration::from_millis(900));
    assert_on_error(&gateway).await;
    slept.await.unwrap().unwrap();
}

#[tokio::test]
async fn deadline_of_the_proxy_is_kept_if_it_is_shorter() {
    let server = Server::start().await;
    let gateway = Gateway::start(&server.url(), LIMITS).await;
    assert!(is_ok(&gateway.check(&[of("deny", "d0")]).await));
    let slept = server.hang().await;
    // The response has 5 ms for its way back, which a busy machine may exceed now and then.
    let mut responded = false;
    for _ in 0..6 {
        let mut request = Request::new(request("api", &[of("deny", "d")], 0));
        request.set_timeout(Duration::from_millis(200));
        // The client ends the call at its deadline, too.
        if let Ok(denied) = gateway.client.clone().should_rate_limit(request).await {
            assert_eq!(header(denied.get_ref(), "Retry-After"), Some("1"));
            responded = true;
        }
    }
    assert!(responded);
    slept.await.unwrap().unwrap();
    // No call was a failure, of which five would open the breaker: the server decides the next one.
    let denied = gateway.check(&[of("deny", "d")]).await;
    assert!(!is_ok(&denied) && header(&denied, "RateLimit").is_some(), "{denied:?}");
}

#[tokio::test]
async fn limits_hold_at_the_deadline_of_the_proxy_while_the_server_is_stopped() {
    let server = Server::start().await;
    let limits =
        format!("{LIMITS}- {{match: {{model: '*'}}, rule: FIXED 9 1h, count: reported}}\n");
    let gateway = Gateway::start(&server.url(), &limits).await;
    for allowed in [true, false] {
        assert_eq!(is_ok(&gateway.check(&[of("allow", "denied")]).await), allowed);
    }
    server.signal("STOP");
    let check = async |descriptors: &[RateLimitDescriptor], ms| {
        let mut request = Request::new(request("api", descriptors, 0));
        request.set_timeout(Duration::from_millis(ms));
        // The client ends the call at its deadline, too, and a busy machine may miss it.
        let response = gateway.client.clone().should_rate_limit(request).await;
        response.ok().map(|response| is_ok(response.get_ref()))
    };
    until("a denied key is denied", async || match check(&[of("allow", "denied")], 30).await {
        Some(allowed) => !allowed || panic!("it was allowed"),
        None => false,
    })
    .await;
    // The gateway keeps the limit of a key that it does not know.
    let mut allowed = 0;
    until("an unknown key is denied", async || {
        let allowance = check(&[of("allow", "unknown")], 200).await;
        allowed += u32::from(allowance == Some(true));
        allowance == Some(false)
    })
    .await;
    assert!(allowed <= 1, "{allowed}");
    // The work of a charge is done: it is sent although the check has taken all the time.
    let mut name = String::new();
    until("the gateway responds in time", async || {
        name.push('m');
        check(&[of("allow", &name), hits(of("model", &name), 7)], 200).await.is_some()
    })
    .await;
    server.signal("CONT");
    let charged =
        async || left(&gateway.check(&[hits(of("model", &name), 0)]).await) == [(true, 2)];
    until("the charge has counted", charged).await;
}

#[tokio::test]
async fn gateway_finishes_a_call_and_then_ends() {
    let server = Server::start().await;
    let mut gateway = Gateway::start(&server.url(), LIMITS).await;
    let health = tonic::transport::Endpoint::new(format!("http://{}", gateway.address)).unwrap();
    let mut health = HealthClient::new(health.connect().await.unwrap());
    let service = "envoy.service.ratelimit.v3.RateLimitService".to_owned();
    let probe = HealthCheckRequest { service };
    assert_eq!(health.check(probe).await.unwrap().into_inner().status, 1);
    assert!(is_ok(&gateway.check(&[of("allow", "a0")]).await));
    let slept = server.hang().await;
    let (mut client, request) = (gateway.client.clone(), request("api", &[of("allow", "a")], 0));
    let call = tokio::spawn(async move { client.should_rate_limit(request).await });
    // The call is in flight once the service has it: the gateway waits for the server.
    tokio::time::sleep(Duration::from_millis(100)).await;
    gateway.end();
    let response = call.await.unwrap().unwrap().into_inner();
    assert_eq!(left(&response), [(true, 0)]);
    assert!(response.statuses[0].current_limit.is_some(), "the server decided");
    slept.await.unwrap().unwrap();
    let ended = &mut gateway.serving;
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn on_error_decides_where_the_server_refuses_calls() {
    let server = Server::start().await;
    let gateway = Gateway::start(&server.url(), LIMITS).await;
    assert!(is_ok(&gateway.check(&[of("deny", "x")]).await));
    for (rule, value) in [("allow", "a"), ("deny", "d"), ("leave", "l")] {
        let key = format!("rl:{rule}:api|fixed-3600s|{value}");
        server.run(&["LPUSH", &key, "of another program"]).await;
    }
    assert_on_error(&gateway).await;
    let metrics = gateway.metrics.text();
    let line = r#"refused_total{protocol="grpc",reason="rejected"} 5"#;
    assert!(metrics.contains(line), "{metrics}");
    // The keys of others are not concerned, until the user of the gateway has lost its rights.
    assert!(is_ok(&gateway.check(&[of("deny", "y")]).await));
    server.run(&["ACL", "SETUSER", "default", "-rl.fixed"]).await;
    assert!(!is_ok(&gateway.check(&[of("deny", "z")]).await));
}

#[tokio::test]
async fn old_connection_is_closed_without_losing_a_response() {
    let server = Server::start().await;
    let setup = Setup { connection_age: Duration::from_millis(50), ..Setup::default() };
    let gateway = Gateway::with(server.client(), LIMITS, setup).await;
    let opened = Arc::new(AtomicU64::new(0));
    let counted = opened.clone();
    let address = gateway.address;
    let connector = service_fn(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { TcpStream::connect(address).await.map(TokioIo::new) }
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://gateway");
    let mut client = Client::new(endpoint.connect_with_connector(connector).await.unwrap());
    let renewed = async || {
        let request = Request::new(request("api", &[of("nothing", "x")], 0));
        // The client cancels a request that it has not sent when its connection closes.
        if let Err(status) = client.should_rate_limit(request).await {
            assert_eq!(status.code(), Status::Cancelled, "{status:?}");
        }
        opened.load(Ordering::Relaxed) >= 3
    };
    until("the connection was closed twice", renewed).await;
}

#[tokio::test]
async fn peer_that_says_nothing_is_disconnected() {
    let server = Server::start().await;
    let gateway = Gateway::start(&server.url(), LIMITS).await;
    let ends = async |first: &str| {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(first.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        let ended = stream.read_to_end(&mut read);
        tokio::time::timeout(Duration::from_secs(30), ended).await.expect("it ends").unwrap();
    };
    tokio::join!(ends(""), ends("PRI * HTTP/2.0"));
}
