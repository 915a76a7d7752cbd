use std::io::ErrorKind;
use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use prometheus_client::registry::Registry;
use redis_throttle_client::{Limiter, redis};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{advance, sleep, timeout};

use super::*;
use crate::config::Configuration;
use crate::decider::Tags;
use crate::listener::Listener;

const FILE: &str = "domain: web
http:
  trusted_proxies: ['::ffff:127.0.0.1']
  descriptors:
    - {method: method, host: host, path: path}
    - {client: client_address}
    - {user: 'header:x-user'}
limits:
  - {match: {client: '*'}, rule: FIXED 1 1s}
";

const PROXY: [(&str, &str); 4] = [
    ("x-forwarded-method", "GET"),
    ("x-forwarded-host", "Shop.example.:8443"),
    ("x-forwarded-uri", "/a?b=/c"),
    ("x-forwarded-for", "203.0.113.9, 2001:db8::1"),
];

fn configuration(text: &str) -> Configuration {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yaml");
    std::fs::write(&file, text).unwrap();
    Configuration::load(&file).unwrap()
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = fields.iter().map(|(name, value)| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    });
    pairs.collect()
}

/// Returns the values of the descriptors, or the sentence of a refusal.
fn read(headers: &HeaderMap) -> Result<Vec<Vec<String>>, String> {
    let loaded = configuration(FILE);
    let http = loaded.domain("web").unwrap().http.as_ref().unwrap();
    let all =
        request::descriptors(http, headers, Some([127, 0, 0, 1].into())).map_err(|no| no.0)?;
    let values =
        |one: &request::Entries<'_>| one.iter().map(|(_, value)| value.to_string()).collect();
    Ok(all.iter().map(values).collect())
}

#[test]
fn descriptors_have_the_values_that_the_proxy_sends() {
    let mut fields = headers(&PROXY);
    let web = vec!["GET".to_owned(), "shop.example".to_owned(), "/a".to_owned()];
    let client = vec!["2001:db8::/64".to_owned()];
    assert_eq!(read(&fields), Ok(vec![web.clone(), client.clone()]));
    fields.insert("x-user", HeaderValue::from_static("u"));
    assert_eq!(read(&fields), Ok(vec![web, client, vec!["u".to_owned()]]));
}

#[test]
fn request_without_a_value_of_its_proxy_is_refused() {
    for missing in ["x-forwarded-method", "x-forwarded-host", "x-forwarded-uri"] {
        let mut fields = headers(&PROXY);
        fields.remove(missing);
        assert_eq!(read(&fields), Err(format!("Invalid {missing}: expected one from the proxy.")));
    }
}

#[test]
fn request_with_a_value_that_cannot_be_read_is_refused() {
    let table = [
        (HeaderValue::from_bytes(b"\xff").unwrap(), "expected UTF-8"),
        (HeaderValue::try_from("u".repeat(8_193)).unwrap(), "expected at most 8192 bytes"),
    ];
    for (value, expected) in table {
        let mut fields = headers(&PROXY);
        fields.insert("x-user", value);
        assert_eq!(read(&fields), Err(format!("Invalid x-user: {expected}.")));
    }
    for name in ["x-forwarded-uri", "x-user"] {
        let mut fields = headers(&PROXY);
        fields.insert(name, HeaderValue::from_static("/a"));
        fields.append(name, HeaderValue::from_static("/b"));
        let expected = "expected one field, not several";
        assert_eq!(read(&fields), Err(format!("Invalid {name}: {expected}.")));
    }
    let mut fields = headers(&PROXY);
    fields.insert("x-forwarded-for", HeaderValue::from_static("unknown"));
    let expected = "Invalid x-forwarded-for: expected the client's address.";
    assert_eq!(read(&fields), Err(expected.to_owned()));
}

#[test]
fn addresses_are_read_as_in_the_clients() {
    let table = [
        // Trusted proxies written as mapped addresses, and one with a zone.
        ("[\"::ffff:10.0.0.1\"]", "10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("[\"::ffff:10.0.0.0/104\"]", "::ffff:10.1.2.3", "198.51.100.1", "198.51.100.1"),
        ("[\"::ffff:10.0.0.0/104\"]", "11.0.0.1", "198.51.100.1", "11.0.0.1"),
        ("[\"fe80::1%eth0\"]", "fe80::1", "198.51.100.1", "198.51.100.1"),
        // Callers with a zone, and behind NAT64.
        ("[10.0.0.1]", "10.0.0.1", "[fe80::1%eth0]:80", "fe80::/64"),
        ("[10.0.0.1]", "10.0.0.1", "64:ff9b::c633:6401", "198.51.100.1"),
        ("[]", "64:ff9b::c633:6401", "", "198.51.100.1"),
    ];
    let find = |trusted: &str, peer: &str, forwarded: &str| {
        let loaded = configuration(&FILE.replace("['::ffff:127.0.0.1']", trusted));
        let http = loaded.domain("web").unwrap().http.as_ref().unwrap();
        let mut fields = headers(&PROXY);
        fields.insert("x-forwarded-for", HeaderValue::from_str(forwarded).unwrap());
        let all = request::descriptors(http, &fields, Some(peer.parse().unwrap()));
        all.map(|all| all[1][0].1.to_string()).map_err(|no| no.0)
    };
    for (trusted, peer, forwarded, expected) in table {
        let found = find(trusted, peer, forwarded);
        assert_eq!(found.as_deref(), Ok(expected), "{trusted} {peer} {forwarded}");
    }
    for forwarded in ["198.51.100.7%eth0", "[1.2.3.4%e]:80", "fe80::1%"] {
        assert!(find("[10.0.0.1]", "10.0.0.1", forwarded).is_err(), "{forwarded}");
    }
}

#[test]
fn path_has_one_form() {
    let table = [
        ("/", "/"),
        ("", ""),
        ("*", "*"),
        ("/a/b/?q=/x", "/a/b/"),
        ("/a?b?c#d", "/a"),
        ("//a///b", "/a/b"),
        ("/a/./b/../c", "/a/c"),
        ("/a/..", "/"),
        ("/../../a", "/a"),
        ("/a/b/..", "/a/"),
        ("/%61%2Fb%2e%2E/c", "/a%2Fb../c"),
        ("/x/%2e%2e/a", "/a"),
        ("/%e4%zz%", "/%E4%zz%"),
        ("/%é", "/%é"),
        ("/a%c3", "/a%C3"),
        ("http://h/a/../b?c", "/b"),
        ("HTTPS://h:8443", "/"),
        ("http://h?q=/x", "/"),
        ("/a?b=http://h/c", "/a"),
        ("/http://h/c", "/http:/h/c"),
    ];
    for (target, path) in table {
        assert_eq!(path::normalised(target), path, "{target}");
    }
}

/// Serves one connection with plain responses, and returns the end of its peer.
fn served() -> DuplexStream {
    let (peer, stream) = duplex(1024);
    let (stream, counts) = Heads::new(stream, None);
    tokio::spawn(async move {
        let service = service_fn(|request: Request<Incoming>| {
            counts.read();
            let counts = counts.clone();
            async move {
                if request.uri().path() == "/slow" {
                    sleep(SLOW).await;
                }
                counts.responded();
                Ok::<_, Infallible>(response::text(StatusCode::OK, "well\n"))
            }
        });
        let _ = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
    peer
}

/// Returns true if the connection is open after this time, in which the peer sends nothing.
async fn is_open_after(peer: &mut DuplexStream, time: Duration) -> bool {
    let mut bytes = [0; 1024];
    tokio::select! {
        biased;
        read = peer.read(&mut bytes) => read.is_ok_and(|length| length > 0),
        () = sleep(time) => true,
    }
}

async fn assert_responds(peer: &mut DuplexStream) {
    let mut bytes = [0; 1024];
    let length = peer.read(&mut bytes).await.unwrap();
    assert!(bytes[..length].starts_with(b"HTTP/1.1 200 "));
}

/// The time for a response to `/slow`, which is longer than that for a head.
const SLOW: Duration = Duration::from_secs(15);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn connection_with_half_a_head_is_closed_after_ten_seconds() {
    for sent in [&b""[..], b"G", &REQUEST[..REQUEST.len() - 2]] {
        let mut peer = served();
        peer.write_all(sent).await.unwrap();
        assert!(is_open_after(&mut peer, Duration::from_millis(9_900)).await);
        assert!(!is_open_after(&mut peer, Duration::from_millis(200)).await);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_bytes_of_a_head_do_not_extend_its_time() {
    let mut peer = served();
    for byte in &REQUEST[..9] {
        peer.write_all(&[*byte]).await.unwrap();
        assert!(is_open_after(&mut peer, Duration::from_secs(1)).await);
    }
    assert!(!is_open_after(&mut peer, Duration::from_millis(1_100)).await);
}

#[tokio::test(start_paused = true)]
async fn idle_connection_stays_open_and_its_next_head_has_ten_seconds() {
    let mut peer = served();
    for _ in 0..3 {
        peer.write_all(REQUEST).await.unwrap();
        assert_responds(&mut peer).await;
        assert!(is_open_after(&mut peer, IDLE - Duration::from_secs(1)).await);
    }
    peer.write_all(b"GET").await.unwrap();
    advance(Duration::from_millis(100)).await;
    assert!(!is_open_after(&mut peer, Duration::from_secs(10)).await);
}

#[tokio::test(start_paused = true)]
async fn slow_response_does_not_end_the_connection() {
    let mut peer = served();
    peer.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf")
        .await
        .unwrap();
    sleep(Duration::from_secs(1)).await;
    peer.write_all(b" body").await.unwrap();
    assert_responds(&mut peer).await;
}

#[tokio::test(start_paused = true)]
async fn head_that_begins_with_another_request_has_ten_seconds() {
    let mut peer = served();
    peer.write_all(&[REQUEST, b"GET"].concat()).await.unwrap();
    assert_responds(&mut peer).await;
    assert!(is_open_after(&mut peer, Duration::from_millis(9_900)).await);
    assert!(!is_open_after(&mut peer, Duration::from_millis(200)).await);
}

/// Serves over at most `connections` connections at a time, and returns the address.
async fn served_over(connections: usize) -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yaml");
    std::fs::write(&file, FILE).unwrap();
    let live = Live::load(file).unwrap();
    let nowhere = redis::Client::open("redis://127.0.0.1:1").unwrap();
    let decider = Decider::new(Limiter::new(nowhere), IDLE, Tags::None, false);
    let service = Service::new(live, decider, Arc::new(Metrics::new(Registry::default())));
    let (running, stopped) = watch::channel(false);
    tokio::spawn(async move {
        let _running = running;
        let incoming = Connections::at_most(connections, Listener::Tcp(socket, None));
        serve(incoming, service, stopped).await;
    });
    address
}

/// Much less than the time of a head, and enough for a busy machine.
const SOON: Duration = Duration::from_secs(5);

async fn is_well(stream: &mut TcpStream) -> bool {
    stream.write_all(b"GET /healthcheck HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut bytes = [0; 1024];
    let length = timeout(SOON, stream.read(&mut bytes)).await.unwrap().unwrap();
    bytes[..length].starts_with(b"HTTP/1.1 200 ")
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    timeout(SOON, stream.read(&mut [0])).await.is_ok_and(|read| read.unwrap_or(0) == 0)
}

fn is_open(stream: &TcpStream) -> bool {
    stream.try_read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[tokio::test]
async fn new_connection_takes_the_place_of_the_longest_half_head() {
    let address = served_over(4).await;
    let connect = async || TcpStream::connect(address).await.unwrap();
    let mut idle = connect().await;
    assert!(is_well(&mut idle).await);
    let mut halves = Vec::new();
    for sent in [&b""[..], b"G", &REQUEST[..REQUEST.len() - 2]] {
        let mut half = connect().await;
        half.write_all(sent).await.unwrap();
        halves.push(half);
    }
    let mut well = Vec::new();
    for taken in 0..halves.len() {
        let mut new = connect().await;
        assert!(is_well(&mut new).await);
        assert!(is_closed(&mut halves[taken]).await);
        assert!(halves[taken + 1..].iter().all(is_open) && is_open(&idle));
        well.push(new);
    }
    // No connection owes a head: the next one waits until one does.
    let mut next = connect().await;
    next.write_all(REQUEST).await.unwrap();
    assert!(is_well(&mut idle).await);
    assert!(is_open(&next) && well.iter().all(is_open));
    well[1].write_all(b"G").await.unwrap();
    assert!(is_closed(&mut well[1]).await);
    let mut bytes = [0; 1024];
    let length = timeout(SOON, next.read(&mut bytes)).await.unwrap().unwrap();
    assert!(bytes[..length].starts_with(b"HTTP/1.1 404 "));
    assert!(is_well(&mut idle).await);
}
