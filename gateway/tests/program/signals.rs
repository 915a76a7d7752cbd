//! Reload and end.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::server::Server;
use crate::started::{Gateway, LIMITS, program};
use crate::wire::{allows, call_without_message, channel, get_from};

#[tokio::test]
async fn sighup_reads_the_configuration_again() {
    let gateway = Gateway::start("redis://127.0.0.1:1", &[]);
    let status = async |domain: &str| {
        let response =
            get_from(gateway.http(), &format!("/check/{domain}"), &[("x-user", "a")]).await;
        response[9..12].to_owned()
    };
    assert_eq!([status("api").await, status("web").await], ["200", "404"]);
    let none = |metrics: &str| {
        let line = |outcome: &&str| {
            let line = format!("gateway_reloads_total{{outcome=\"{outcome}\"}} 0\n");
            metrics.contains(&line)
        };
        ["loaded", "refused"].into_iter().filter(line).collect::<Vec<_>>()
    };
    let metrics = get_from(gateway.http(), "/metrics", &[]).await;
    assert_eq!(none(&metrics), ["loaded", "refused"]);
    fs::write(gateway.path("api.yaml"), LIMITS.replace("api", "web")).unwrap();
    gateway.signal("HUP");
    let loaded = gateway.event("configuration_loaded", 2).await;
    assert_eq!((&loaded["domains"], &loaded["limits"]), (&"1".into(), &"1".into()));
    assert_eq!([status("api").await, status("web").await], ["404", "200"]);
    fs::write(gateway.path("api.yaml"), "domain: web\nlimits: 1\n").unwrap();
    gateway.signal("HUP");
    gateway.event("configuration_refused", 1).await;
    let mistake = gateway.events("configuration_mistake").remove(0);
    let place = format!("{}:2:9: ", gateway.path("limits/api.yaml").display());
    assert!(mistake["message"].as_str().unwrap().starts_with(&place), "{mistake}");
    assert_eq!(status("web").await, "200");
    let metrics = get_from(gateway.http(), "/metrics", &[]).await;
    assert!(none(&metrics).is_empty(), "{metrics}");
    assert!(metrics.contains("redis_throttle_checks_total{"), "{metrics}");
}

/// A request has an enforced limit and one in shadow mode, which is a call of its own.
const TWO_CALLS: &str = "domain: two
http:
  descriptors: [{user: 'header:x-user'}, {watched: 'header:x-user'}]
descriptors:
- {key: user, rate_limit: {unit: hour, requests_per_unit: 9}}
- {key: watched, rate_limit: {unit: hour, requests_per_unit: 9}, shadow_mode: true}
";

#[tokio::test]
async fn sigterm_lets_calls_under_way_end_while_health_fails() {
    let server = Server::start().await;
    let mut gateway = Gateway::start(&server.url(), &["--timeout-ms", "1000"]);
    fs::write(gateway.path("limits/two.yaml"), TWO_CALLS).unwrap();
    gateway.event("configuration_loaded", 2).await;
    let channel = channel(TcpStream::connect(gateway.grpc()).await.unwrap()).await.unwrap();
    let mut half = TcpStream::connect(gateway.http()).await.unwrap();
    half.write_all(b"GET /healthcheck HTTP/1.1\r\nHost: a\r\n").await.unwrap();
    let slept = server.hang().await;
    let call = tokio::spawn(allows(channel.clone()));
    let address = gateway.http().to_owned();
    // It lasts until the server replies again, which is after the connections begin to end.
    let check =
        tokio::spawn(async move { get_from(&address, "/check/two", &[("x-user", "a")]).await });
    // The gateway reads a connection in order: when it responds to these, it has the call.
    let mut health = HealthClient::new(channel);
    let mut watched = Vec::new();
    // The last is that of envoyproxy/ratelimit.
    for service in ["", "envoy.service.ratelimit.v3.RateLimitService", "ratelimit"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let checked = health.check(request.clone()).await.unwrap().into_inner();
        assert_eq!(checked.status(), ServingStatus::Serving, "{service}");
        watched.push(health.watch(request).await.unwrap().into_inner());
    }
    for health in &mut watched {
        assert_eq!(health.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    }
    gateway.signal("TERM");
    gateway.event("draining", 1).await;
    assert!(!call.is_finished() && !check.is_finished());
    // A request that is complete within a second gets a response.
    half.write_all(b"\r\n").await.unwrap();
    let mut response = String::new();
    half.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    for health in &mut watched {
        assert_eq!(health.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    }
    assert!(call.await.unwrap().unwrap());
    let response = check.await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    slept.await.unwrap().unwrap();
    assert!(gateway.ended().await.success());
    assert!(gateway.events("calls_cut_off").is_empty());
    assert!(TcpStream::connect(gateway.http()).await.is_err());
}

#[tokio::test]
async fn silent_peers_and_half_requests_do_not_delay_the_end() {
    let mut gateway = Gateway::start("redis://127.0.0.1:1", &[]);
    let mut open = Vec::new();
    for (address, begin) in [
        (gateway.http(), ""),
        (gateway.http(), "GET /check/api HTTP/1.1\r\nHost: a\r\n"),
        (gateway.grpc(), ""),
        (gateway.grpc(), "PRI * HTTP"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(begin.as_bytes()).await.unwrap();
        open.push(stream);
    }
    let channel = channel(TcpStream::connect(gateway.grpc()).await.unwrap()).await.unwrap();
    let half = tokio::spawn(call_without_message(channel.clone()));
    let mut health = HealthClient::new(channel);
    let _watched = health.watch(HealthCheckRequest::default()).await.unwrap();
    let began = Instant::now();
    gateway.signal("TERM");
    assert!(gateway.ended().await.success());
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(gateway.events("calls_cut_off").is_empty());
    assert!(half.await.unwrap().is_err());
}

#[tokio::test]
async fn call_without_message_ends_after_a_while() {
    let gateway = Gateway::start("redis://127.0.0.1:1", &[]);
    let channel = channel(TcpStream::connect(gateway.grpc()).await.unwrap()).await.unwrap();
    let ended = timeout(Duration::from_secs(30), call_without_message(channel)).await;
    let status = ended.expect("the call ends").unwrap_err();
    assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
}

#[tokio::test]
async fn connection_has_a_bounded_number_of_calls() {
    let gateway = Gateway::start("redis://127.0.0.1:1", &[]);
    let mut stream = TcpStream::connect(gateway.grpc()).await.unwrap();
    // The preface, and a frame of settings without a setting.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "a frame of settings");
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).await.unwrap();
    // SETTINGS_MAX_CONCURRENT_STREAMS.
    let streams = settings.chunks(6).find(|setting| setting[1] == 3).expect("a bound");
    assert_eq!(streams[2..], 1_024_u32.to_be_bytes());
}

#[tokio::test]
async fn handlers_of_signals_come_before_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let limit = |user| format!("- {{match: {{user: u{user}}}, rule: FIXED 5 1m}}\n");
    let limits: String = (0..2_000).map(limit).collect();
    for number in 0..4 {
        let text = format!("domain: d{number}\nlimits:\n{limits}");
        fs::write(folder.path().join(format!("{number}.yaml")), text).unwrap();
    }
    // Reading takes longer than it takes to see the handler, unless the machine is very busy.
    let is_first = (0..5).any(|_| {
        let mut program = program();
        program.args(["--server", "redis://127.0.0.1:1", "--http", "127.0.0.1:0", "--config"]);
        let mut process = program
            .arg(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !catches_hang_up(process.id()) {}
        let kill = format!("kill -s HUP {}", process.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let began = Instant::now();
        let mut greeting = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
        assert!(greeting.contains(" listens on "), "{greeting}");
        process.kill().unwrap();
        process.wait().unwrap();
        began.elapsed() > Duration::from_millis(100)
    });
    assert!(is_first);
}

/// Returns true if a process has a handler for SIGHUP.
fn catches_hang_up(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
    u64::from_str_radix(caught, 16).unwrap() & 1 == 1
}
