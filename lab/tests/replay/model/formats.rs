//! Lines of every named format, written from a request.

use super::super::DAY_S;
use super::Request;

/// Returns a time of the day as `hh:mm:ss`, and the milliseconds.
pub fn clock(at_ms: u64) -> (String, u64) {
    let s = at_ms / 1_000;
    (format!("{:02}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60), at_ms % 1_000)
}

/// A format: its name, the time that a replay can count, and a line.
pub type Format = (&'static str, Precision, fn(Request) -> String);

/// The time that a replay counts.
#[derive(Clone, Copy, PartialEq)]
pub enum Precision {
    /// The millisecond of the beginning.
    Begin,
    /// The second of the beginning.
    BeginSecond,
    /// The second of the end.
    EndSecond,
    /// The second of the end, less the milliseconds that the request took.
    EndSecondLess,
}

pub const FORMATS: [Format; 17] = [
    ("combined", Precision::EndSecond, |request| {
        let (end, _) = clock(request.begin_ms + request.took_ms);
        let address = request.address(2);
        format!(
            "{address} - a [b - [10/Oct/2026:{end} +0000] \"GET /\\\" HTTP/1.1\" 200 5 \"-\" \"-\""
        )
    }),
    ("common", Precision::EndSecond, |request| {
        let (end, _) = clock(request.begin_ms + request.took_ms);
        format!("{} - - [10/Oct/2026:{end} +0000] \"GET / HTTP/1.1\" 200 5", request.address(2))
    }),
    ("vhost_combined", Precision::EndSecond, |request| {
        let (end, _) = clock(request.begin_ms + request.took_ms);
        let address = request.address(2);
        format!("ex.org:80 {address} - - [10/Oct/2026:{end} +0000] \"GET /\" 200 5 \"-\" \"-\"")
    }),
    ("alb", Precision::Begin, |request| {
        let (begin, ms) = clock(request.begin_ms);
        let (end, end_ms) = clock(request.begin_ms + request.took_ms);
        format!(
            "http 2026-10-10T{end}.{end_ms:03}000Z app/lb/1 {}:2817 10.0.0.1:80 0.1 0.1 0.1 \
             200 200 0 57 \"GET http://ex.org:80/ HTTP/1.1\" \"-\" - - arn:aws:t \"Root=1\" \
             \"-\" \"-\" 0 2026-10-10T{begin}.{ms:03}000Z \"forward\" \"-\" \"-\"",
            request.address(1)
        )
    }),
    ("nlb", Precision::BeginSecond, |request| {
        let (begin, _) = clock(request.begin_ms);
        let (end, _) = clock(request.begin_ms + request.took_ms);
        format!(
            "tls 2.0 2026-10-10T{end} net/lb/1 g3 {}:51341 10.0.0.1:443 5 2 98 246 - arn - E T \
             - ex.org - - - 2026-10-10T{begin}",
            request.address(1)
        )
    }),
    ("cloudfront", Precision::EndSecondLess, |request| {
        let (end, _) = clock(request.begin_ms + request.took_ms);
        let (s, ms) = (request.took_ms / 1_000, request.took_ms % 1_000);
        format!(
            "2026-10-10\t{end}\tSEA\t5\t{}\tGET\td1.net\t/\t200\t-\t-\t-\t-\tHit\tx==\tex.org\t\
             https\t23\t{s}.{ms:03}",
            request.address(1)
        )
    }),
    ("iis", Precision::EndSecondLess, |request| {
        let (end, _) = clock(request.begin_ms + request.took_ms);
        let (address, took_ms) = (request.address(1), request.took_ms);
        format!("2026-10-10 {end} 10.0.0.1 GET / - 443 - {address} x+y - 200 0 0 {took_ms}")
    }),
    ("envoy", Precision::Begin, |request| {
        let (begin, ms) = clock(request.begin_ms);
        let (address, took_ms) = (request.address(2), request.took_ms);
        format!(
            "[2026-10-10T{begin}.{ms:03}Z] \"GET / HTTP/1.1\" 200 - 0 135 {took_ms} 22 \
             \"203.0.113.9, {address}\" \"curl\" \"f2b1\" \"ex.org\" \"10.0.0.1:80\""
        )
    }),
    ("haproxy", Precision::Begin, |request| {
        let (begin, ms) = clock(request.begin_ms);
        let (address, took_ms) = (request.address(2), request.took_ms);
        format!(
            "Oct 10 00:00:01 host haproxy[14389]: {address}:33317 [10/Oct/2026:{begin}.{ms:03}] in \
             s/s1 10/0/30/69/+{took_ms} 200 2750 - - ---- 1/1/1/1/0 0/0 \"GET / HTTP/1.1\""
        )
    }),
    ("traefik", Precision::BeginSecond, |request| {
        let (begin, _) = clock(request.begin_ms);
        let (address, took_ms) = (request.address(2), request.took_ms);
        format!(
            "{address} - - [10/Oct/2026:{begin} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\" 1 \
             \"web\" \"http://10.0.0.1:80\" {took_ms}ms"
        )
    }),
    ("caddy", Precision::Begin, |request| {
        let end_ms = DAY_S * 1_000 + request.begin_ms + request.took_ms;
        let (address, took_ms) = (request.address(2), request.took_ms);
        format!(
            "{{\"ts\":{}.{:03},\"request\":{{\"client_ip\":\"{address}\"}},\"duration\":{}.{:03},\
             \"status\":200}}",
            end_ms / 1_000,
            end_ms % 1_000,
            took_ms / 1_000,
            took_ms % 1_000
        )
    }),
    ("gcp", Precision::Begin, |request| {
        let (begin, ms) = clock(request.begin_ms);
        let (s, part_ms) = (request.took_ms / 1_000, request.took_ms % 1_000);
        format!(
            "{{\"httpRequest\":{{\"latency\":\"{s}.{part_ms:03}s\",\"remoteIp\":\"{}\"}},\
             \"timestamp\":\"2026-10-10T{begin}.{ms:03}Z\"}}",
            request.address(2)
        )
    }),
    ("nginx-json", Precision::Begin, |request| {
        let end_ms = DAY_S * 1_000 + request.begin_ms + request.took_ms;
        let (address, took_ms) = (request.address(2), request.took_ms);
        format!(
            "{{\"msec\":\"{}.{:03}\",\"remote_addr\":\"{address}\",\"request_time\":\"{}.{:03}\"}}",
            end_ms / 1_000,
            end_ms % 1_000,
            took_ms / 1_000,
            took_ms % 1_000
        )
    }),
    ("traefik", Precision::Begin, |request| {
        let (begin, ms) = clock(request.begin_ms);
        let (address, took_ns) = (request.address(2), request.took_ms * 1_000_000);
        format!(
            "{{\"ClientAddr\":\"10.0.0.1:50000\",\"ClientHost\":\"{address}\",\
             \"DownstreamStatus\":200,\"Duration\":{took_ns},\"StartUTC\":\
             \"2026-10-10T{begin}.{ms:03}000001Z\",\"level\":\"info\",\"msg\":\"\"}}"
        )
    }),
    ("caddy", Precision::Begin, |request| {
        let end_ms = DAY_S * 1_000 + request.begin_ms + request.took_ms;
        let (address, took_ms) = (request.address(2), request.took_ms);
        // The name of the field before version 2.7, and the numbers of a short request.
        format!(
            "{{\"ts\":{}.{:03},\"request\":{{\"remote_ip\":\"{address}\"}},\
             \"duration\":{took_ms}e-3,\"status\":200}}",
            end_ms / 1_000,
            end_ms % 1_000,
        )
    }),
    ("envoy", Precision::Begin, |request| {
        let (begin, ms) = clock(request.begin_ms);
        let (address, took_ms) = (request.address(2), request.took_ms);
        format!(
            "[2026-10-10T{begin}.{ms:03}Z] \"GET / HTTP/1.1\" 200 - via_upstream - \
             \"reset: \\\"x\\\"\" 0 135 {took_ms} 22 \"{address}\" \"curl\" \"f2b1\" \
             \"ex.org\" \"10.0.0.1:80\" outbound|80||ex.org 10.0.0.2:1 10.0.0.3:80 \
             10.0.0.2:2 - default"
        )
    }),
    ("haproxy", Precision::Begin, |request| {
        let (begin, ms) = clock(request.begin_ms);
        let (address, took_ms) = (request.address(2), request.took_ms);
        format!(
            "<134>1 2026-10-10T00:00:01Z host haproxy 14389 - - {address}:33317 \
             [10/Oct/2026:{begin}.{ms:03}] fnt bck/srv1 0/0/{took_ms} 212 -- 0/0/0/0/3 0/0"
        )
    }),
];

pub const IIS: &str = "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port \
                       cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus \
                       sc-win32-status time-taken\n";
