//! Random logs of 200,000 lines in every format and order, compared with a model of the rules that
//! shares no code with the program.

use super::{DAY_S, Logs, gzip, report};
use std::collections::HashMap;

const LINES: usize = 200_000;

/// A request: its times in milliseconds after 2026-10-10 00:00:00 UTC, and its client.
#[derive(Clone, Copy)]
struct Request {
    begin_ms: u64,
    took_ms: u64,
    client: u64,
}

/// A generator of random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

/// Makes requests of 500 clients in two hours, most of them short and some of minutes.
fn requests() -> Vec<Request> {
    let mut random = Random(1);
    let mut request = || {
        let took_ms = match random.below(1_000) {
            0 => 1_000 * random.below(600),
            1..100 => random.below(5_000),
            _ => random.below(100),
        };
        let client = random.below(500) * random.below(500) / 500;
        Request { begin_ms: 3_600_000 + random.below(7_200_000), took_ms, client }
    };
    (0..LINES).map(|_| request()).collect()
}

impl Request {
    /// Returns the client's address, written in one of the ways of a format.
    fn address(self, ways: u64) -> String {
        let client = self.client;
        let [_, _, high, low] = (client as u32).to_be_bytes();
        match (client % 3, self.begin_ms % ways) {
            (0, _) => format!("2001:db8:{client:x}::7"),
            (_, 1) => format!("::ffff:192.0.{high}.{low}"),
            _ => format!("192.0.{high}.{low}"),
        }
    }
}

/// Returns a time of the day as `date` and `hh:mm:ss`, and the milliseconds.
fn clock(at_ms: u64) -> (String, u64) {
    let s = at_ms / 1_000;
    (format!("{:02}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60), at_ms % 1_000)
}

/// A format: its name, the time that a replay can count, and a line.
type Format = (&'static str, Precision, fn(Request) -> String);

/// The time that a replay counts.
#[derive(Clone, Copy, PartialEq)]
enum Precision {
    /// The millisecond of the beginning.
    Begin,
    /// The second of the beginning.
    BeginSecond,
    /// The second of the end.
    EndSecond,
    /// The second of the end, less the milliseconds that the request took.
    EndSecondLess,
}

const FORMATS: [Format; 13] = [
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
        let address = request.address(2);
        format!(
            "Oct 10 00:00:01 host haproxy[14389]: {address}:33317 [10/Oct/2026:{begin}.{ms:03}] in \
             s/s1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 \"GET / HTTP/1.1\""
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
        let address = request.address(2);
        format!(
            "{{\"httpRequest\":{{\"remoteIp\":\"{address}\"}},\"timestamp\":\"2026-10-10T{begin}.\
             {ms:03}Z\"}}"
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
];

const IIS: &str = "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username \
                   c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status \
                   time-taken\n";

/// Returns the calls that `FIXED 5 60` and `GCRA 3 10 60` deny.
fn denied(calls: &[(u64, u64)]) -> [u64; 2] {
    let mut windows: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut arrivals: HashMap<u64, u64> = HashMap::new();
    let mut denied = [0, 0];
    for (at_ms, client) in calls {
        let (start_ms, taken) = windows.entry(*client).or_insert((*at_ms, 0));
        if *at_ms >= *start_ms + 60_000 {
            (*start_ms, *taken) = (*at_ms, 0);
        }
        if *taken == 5 {
            denied[0] += 1;
        } else {
            *taken += 1;
        }
        // A unit returns each 6 s, and 3 are free at once.
        let arrival_ms = arrivals.entry(*client).or_insert(0);
        let next_ms = (*arrival_ms).max(*at_ms) + 6_000;
        if next_ms > *at_ms + 18_000 {
            denied[1] += 1;
        } else {
            *arrival_ms = next_ms;
        }
    }
    denied
}

#[test]
fn random_logs_of_every_format_and_order_are_denied_as_a_model_denies_them() {
    let logs = Logs::new();
    let requests = requests();
    for (name, precision, line) in FORMATS {
        let mut calls: Vec<(u64, u64)> = requests
            .iter()
            .map(|request| {
                let (begin_ms, end_ms) = (request.begin_ms, request.begin_ms + request.took_ms);
                let at_ms = match precision {
                    Precision::Begin => begin_ms,
                    Precision::BeginSecond => begin_ms / 1_000 * 1_000,
                    Precision::EndSecond => end_ms / 1_000 * 1_000,
                    Precision::EndSecondLess => end_ms / 1_000 * 1_000 - request.took_ms,
                };
                (at_ms, request.client)
            })
            .collect();
        calls.sort();
        let mut logged = requests.clone();
        logged.sort_by_key(|request| request.begin_ms + request.took_ms);
        let text = |requests: &[Request]| -> String {
            let head = if name == "iis" { IIS } else { "" };
            let lines = requests.iter().map(|request| line(*request) + "\n");
            [head.to_owned()].into_iter().chain(lines).collect()
        };
        let (oldest, rest) = logged.split_at(LINES / 3);
        let (old, new) = rest.split_at(LINES / 3);
        let files = [
            logs.write("access.log.2.gz", gzip(text(oldest).as_bytes())),
            logs.write("access.log.1.gz", gzip(text(old).as_bytes())),
            logs.write("access.log", text(new)),
        ];
        let [oldest, old, new] = files.each_ref().map(String::as_str);
        let expected = denied(&calls);
        assert!(expected.iter().all(|denied| (10_000..190_000).contains(denied)), "{expected:?}");
        let rules = ["--rule", "FIXED 5 60", "--rule", "GCRA 3 10 60"];
        let options = ["--in-second", "at-once", "--utc-offset", "+00:00"];
        let report = report(&[&[new, oldest, old], &rules[..], &options].concat());
        assert_eq!((&report["format"], &report["lines"]["bad"]), (&name.into(), &0.into()));
        assert_eq!(report["calls"], LINES, "{name}");
        let found = [0, 1].map(|at: usize| report["limits"][at]["denied"].as_u64().unwrap());
        assert_eq!(found, expected, "{name}");
    }
}
