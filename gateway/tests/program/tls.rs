//! TLS of both listeners, and to the server.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::certificates::{Folder, certificate};
use crate::server::{Server, until};
use crate::started::Gateway;
use crate::wire::{allows, channel, get, get_from};

/// A server that is down. Limits allow then.
const DOWN: &str = "redis://127.0.0.1:1";

fn start(folder: &Folder, client_ca: Option<&str>) -> Gateway {
    let (certificate, key) = (folder.text("server.pem"), folder.text("server.key"));
    let client_ca = client_ca.map(|name| folder.text(&format!("{name}.pem")));
    let mut words = vec!["--tls-certificate", &certificate, "--tls-key", &key];
    if let Some(client_ca) = &client_ca {
        words.extend(["--tls-client-ca", client_ca]);
    }
    Gateway::start(DOWN, &words)
}

/// Returns a certificate of the authority `ca`, for a server, in a folder.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.authority("ca");
    folder.certificate("server", "ca");
    folder
}

/// Puts a byte order mark at the head of a file.
fn mark(folder: &Folder, name: &str) {
    let text = fs::read(folder.path(name)).unwrap();
    fs::write(folder.path(name), ["\u{feff}".as_bytes(), &text].concat()).unwrap();
}

/// Returns the certificate that a new connection gets.
async fn presented(folder: &Folder, gateway: &Gateway) -> CertificateDer<'static> {
    let stream = folder.connect(gateway.http(), "http/1.1", "ca", None).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

#[tokio::test]
async fn both_listeners_speak_tls_and_nothing_else() {
    let folder = folder();
    // Files of Windows begin with a byte order mark.
    ["server.pem", "server.key"].iter().for_each(|name| mark(&folder, name));
    let gateway = start(&folder, None);
    let stream = folder.connect(gateway.http(), "http/1.1", "ca", None).await.unwrap();
    let response = get(stream, "/check/api", &[("x-user", "a")]).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let stream = folder.connect(gateway.grpc(), "h2", "ca", None).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert!(allows(channel(stream).await.unwrap()).await.unwrap());
    for (address, alpn) in [(gateway.http(), "h2"), (gateway.grpc(), "http/1.1")] {
        assert!(folder.connect(address, alpn, "ca", None).await.is_err());
    }
    // A check of a load balancer, which is not logged.
    drop(TcpStream::connect(gateway.http()).await.unwrap());
    let plain = get_from(gateway.http(), "/healthcheck", &[]).await;
    assert!(!plain.contains("HTTP/1.1"), "{plain}");
    let failed = gateway.event("handshake_failed", 3).await;
    assert_eq!((&failed["peer"], &failed["level"]), (&"127.0.0.1".into(), &"warning".into()));
    let all = gateway.events("handshake_failed");
    assert!(all.iter().all(|line| line["message"] != "tls handshake eof"), "{all:?}");
}

#[tokio::test]
async fn silent_client_delays_no_other() {
    let folder = folder();
    let gateway = start(&folder, None);
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(gateway.http()).await.unwrap());
    }
    let connected = folder.connect(gateway.http(), "http/1.1", "ca", None);
    let stream = timeout(Duration::from_secs(30), connected).await.unwrap().unwrap();
    assert!(get(stream, "/healthcheck", &[]).await.starts_with("HTTP/1.1 200 "));
    let late = gateway.event("handshake_failed", 1).await;
    assert_eq!(late["message"], "timed out");
}

#[tokio::test]
async fn only_clients_of_the_authority_are_served() {
    let folder = folder();
    folder.authority("other");
    folder.certificate("client", "ca");
    folder.certificate("stranger", "other");
    let gateway = start(&folder, Some("ca"));
    for (client, is_served) in [(Some("client"), true), (Some("stranger"), false), (None, false)] {
        // With TLS 1.3, a client learns that it is refused by its first read.
        let http = match folder.connect(gateway.http(), "http/1.1", "ca", client).await {
            Ok(stream) => get(stream, "/healthcheck", &[]).await.starts_with("HTTP/1.1 200 "),
            Err(_) => false,
        };
        let grpc = match folder.connect(gateway.grpc(), "h2", "ca", client).await {
            Ok(stream) => match channel(stream).await {
                Ok(channel) => allows(channel).await.is_ok(),
                Err(_) => false,
            },
            Err(_) => false,
        };
        assert_eq!((http, grpc), (is_served, is_served), "{client:?}");
    }
    gateway.event("handshake_failed", 4).await;
}

#[tokio::test]
async fn new_connections_see_the_changed_certificate() {
    let folder = folder();
    folder.certificate("next", "ca");
    let (old, new) = ["server.pem", "next.pem"].map(|name| certificate(&folder.path(name))).into();
    // The files are links, whose targets are replaced.
    fs::create_dir(folder.path("live")).unwrap();
    let linked = ["pem", "key"].map(|ending| folder.text(&format!("live/server.{ending}")));
    for (file, link) in ["../server.pem", "../server.key"].iter().zip(&linked) {
        symlink(file, link).unwrap();
    }
    let words = ["--tls-certificate", &linked[0], "--tls-key", &linked[1]];
    let gateway = Gateway::start(DOWN, &words);
    assert_eq!(presented(&folder, &gateway).await, old);
    let stream = folder.connect(gateway.grpc(), "h2", "ca", None).await.unwrap();
    let earlier = channel(stream).await.unwrap();
    folder.replace("server", "next");
    until("the new certificate is in force", async || presented(&folder, &gateway).await == new)
        .await;
    assert!(allows(earlier).await.unwrap());
    folder.certificate("third", "ca");
    let third = certificate(&folder.path("third.pem"));
    folder.replace("live/server", "third");
    until("the new certificate is in force", async || presented(&folder, &gateway).await == third)
        .await;
}

#[tokio::test]
async fn bad_certificate_is_named_and_leaves_the_old_one() {
    let folder = folder();
    let old = certificate(&folder.path("server.pem"));
    let gateway = start(&folder, None);
    fs::write(folder.path("server.pem"), "a stray text\n").unwrap();
    gateway.signal("HUP");
    let refused = gateway.event("certificate_refused", 1).await;
    let file = folder.text("server.pem");
    let text = format!(
        "{file}: expected a certificate as PEM, found none; the old certificate stays in force"
    );
    assert_eq!(refused["message"], text);
    assert_eq!(presented(&folder, &gateway).await, old);
    let stream = folder.connect(gateway.http(), "http/1.1", "ca", None).await.unwrap();
    let metrics = get(stream, "/metrics", &[]).await;
    let line = r#"redis_throttle_gateway_reloads_total{outcome="refused"}"#;
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn key_that_is_a_fifo_stops_neither_reloads_nor_the_end() {
    let folder = folder();
    folder.certificate("next", "ca");
    let next = certificate(&folder.path("next.pem"));
    let mut gateway = start(&folder, None);
    let becomes_a_fifo = || {
        fs::remove_file(folder.path("server.key")).unwrap();
        let fifo = Command::new("mkfifo").arg(folder.path("server.key")).status();
        assert!(fifo.unwrap().success());
    };
    becomes_a_fifo();
    let refused = gateway.event("certificate_refused", 1).await;
    let text = format!("{}: expected a file", folder.text("server.key"));
    assert!(refused["message"].as_str().unwrap().starts_with(&text), "{refused}");
    folder.replace("server", "next");
    until("the new certificate is in force", async || presented(&folder, &gateway).await == next)
        .await;
    becomes_a_fifo();
    gateway.event("certificate_refused", 2).await;
    gateway.signal("TERM");
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn program_refuses_certificates_that_it_cannot_use() {
    let folder = folder();
    folder.certificate("other", "ca");
    fs::write(folder.path("api.yaml"), crate::started::LIMITS).unwrap();
    let at = |name: &str| folder.text(name);
    let stderr_of = |certificate: &str, key: &str| {
        let (certificate, key, config) = (at(certificate), at(key), at("api.yaml"));
        let mut program = crate::started::program();
        program.args(["--server", DOWN, "--http", "127.0.0.1:0", "--config", &config]);
        program.args(["--tls-certificate", &certificate, "--tls-key", &key]);
        let ended = program.output().unwrap();
        assert_eq!(ended.status.code(), Some(2));
        String::from_utf8(ended.stderr).unwrap()
    };
    let table = [
        ("none.pem", "server.key", format!("{}: cannot be read: No such file", at("none.pem"))),
        ("/dev/zero", "server.key", "/dev/zero: expected a file".to_owned()),
        ("server.pem", "ca.pem", format!("{}: expected a private key as PEM", at("ca.pem"))),
        (
            "server.pem",
            "other.key",
            format!("{} with the key {}", at("server.pem"), at("other.key")),
        ),
    ];
    for (certificate, key, text) in table {
        let stderr = stderr_of(certificate, key);
        assert!(stderr.contains(&text), "{stderr}");
    }
}

#[tokio::test]
async fn server_with_tls_needs_a_certificate_of_a_known_authority() {
    let folder = folder();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (port, certificate, key) =
        (port.to_string(), folder.text("server.pem"), folder.text("server.key"));
    let options = ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    let _server = Server::with(&[&options[..], &["--tls-auth-clients", "no"]].concat()).await;
    let url = format!("rediss://127.0.0.1:{port}");
    let words = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--timeout-ms", "1000"];
    let trusting = Gateway::with(&url, &words, &[("SSL_CERT_FILE", &folder.text("ca.pem"))]);
    let denied = async || {
        let response = get_from(trusting.http(), "/check/api", &[("x-user", "a")]).await;
        response.starts_with("HTTP/1.1 429 ")
    };
    until("the server denies", denied).await;
    folder.authority("other");
    let wary = Gateway::with(&url, &words, &[("SSL_CERT_FILE", &folder.text("other.pem"))]);
    wary.event("server_away", 1).await;
}
