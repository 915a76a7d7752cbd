//! Random logs in every format and order, compared with a model of the rules that shares no code
//! with the program.

mod formats;
mod rules;

use super::{DAY_S, Logs, gzip, replay_of, report, report_of};
use formats::{FORMATS, Format, IIS, Precision, clock};
use rules::{RULES, Rule};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The lines of each format, and of another form of the same format.
const LINES: usize = 200_000;
const OTHER_LINES: usize = 20_000;

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

/// Generates requests in two hours, in the order of their ends: the more requests, the more
/// clients. Of a thousand, `long` take up to an hour.
fn requests(lines: usize, long: u64) -> Vec<Request> {
    let (mut random, clients) = (Random(1), lines as u64 / 400);
    let mut request = || {
        let took_ms = match random.below(1_000) {
            dice if dice < long => random.below(3_600_000),
            dice if dice % 10 == 0 => random.below(5_000),
            _ => random.below(100),
        };
        let client = random.below(clients) * random.below(clients) / clients;
        Request { begin_ms: 3_600_000 + random.below(7_200_000), took_ms, client }
    };
    let mut requests: Vec<_> = (0..lines).map(|_| request()).collect();
    requests.sort_by_key(Request::end_ms);
    requests
}

impl Request {
    const fn end_ms(&self) -> u64 {
        self.begin_ms + self.took_ms
    }

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

    /// Returns the time at which the request counts, in microseconds after the day's beginning.
    fn at_us(&self, precision: Precision) -> u64 {
        let second = |ms: u64| ms / 1_000 * 1_000;
        let at_ms = match precision {
            Precision::Begin => self.begin_ms,
            Precision::BeginSecond => second(self.begin_ms),
            Precision::EndSecond => second(self.end_ms()),
            Precision::EndSecondLess => second(self.end_ms()) - self.took_ms,
        };
        at_ms * 1_000
    }
}

/// Returns the times at which requests count, if those of a second count at its beginning.
fn at_once(requests: &[Request], precision: Precision) -> Vec<(u64, u64)> {
    requests.iter().map(|request| (request.at_us(precision), request.client)).collect()
}

/// Returns the times at which requests count that are logged in this order and with the second of
/// their ends, if those of a second are spread evenly over it.
fn spread(requests: &[Request], precision: Precision) -> Vec<(u64, u64)> {
    let mut seconds: BTreeMap<u64, Vec<&Request>> = BTreeMap::new();
    for request in requests {
        seconds.entry(request.end_ms() / 1_000).or_default().push(request);
    }
    let mut calls = Vec::new();
    for (second, requests) in seconds {
        let len = requests.len() as u64;
        for (at, request) in (0..).zip(requests) {
            let less_ms = if precision == Precision::EndSecondLess { request.took_ms } else { 0 };
            let at_us = second * 1_000_000 + at * 1_000_000 / len - less_ms * 1_000;
            calls.push((at_us, request.client));
        }
    }
    calls
}

/// The denied calls, the denied clients, and the denied calls of the ten that are denied most.
type Figures = (u64, u64, Vec<u64>);

/// Returns the figures of a rule for calls in any order.
fn figures((_, denied): Rule, calls: &[(u64, u64)]) -> Figures {
    let mut of_clients: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (at_us, client) in calls {
        of_clients.entry(*client).or_default().push(DAY_S * 1_000_000 + at_us);
    }
    let of_client = |mut calls: Vec<u64>| {
        calls.sort_unstable();
        denied(&calls)
    };
    let mut of_clients: Vec<_> = of_clients.into_values().map(of_client).collect();
    of_clients.sort_unstable_by(|a, b| b.cmp(a));
    of_clients.retain(|denied| *denied > 0);
    let (denied, clients) = (of_clients.iter().sum(), of_clients.len() as u64);
    of_clients.truncate(10);
    (denied, clients, of_clients)
}

/// Checks the figures of every rule in a report. Each rule denies some calls and allows some.
fn check(report: &Value, rules: &[Rule], calls: &[(u64, u64)], name: &str) {
    assert_eq!(report["calls"], calls.len(), "{name}");
    let limits = report["limits"].as_array().expect("limits");
    assert_eq!(limits.len(), rules.len(), "{name}");
    for (rule, limit) in rules.iter().zip(limits) {
        let number = |value: &Value| value.as_u64().expect("a number");
        let most = limit["most_denied"].as_array().expect("keys").iter();
        let most = most.map(|key| number(&key["denied"])).collect();
        let found = (number(&limit["denied"]), number(&limit["keys_denied"]), most);
        let expected = figures(*rule, calls);
        let len = calls.len() as u64;
        assert!((len / 20..len * 19 / 20).contains(&expected.0), "{name} {}: {expected:?}", rule.0);
        assert_eq!(found, expected, "{name} {}", rule.0);
    }
}

/// Returns the arguments for rules.
fn arguments(rules: &[Rule]) -> Vec<&'static str> {
    rules.iter().flat_map(|(rule, _)| ["--rule", *rule]).collect()
}

/// Returns two of the rules, others for each `at`.
fn two_rules(at: usize) -> [Rule; 2] {
    [RULES[at % RULES.len()], RULES[(at / RULES.len() + at + 1) % RULES.len()]]
}

/// Returns the text of a log.
fn text((name, _, line): Format, requests: &[Request]) -> String {
    let lines = requests.iter().map(|request| line(*request) + "\n");
    let head = if name == "iis" { IIS } else { "" };
    [head.to_owned()].into_iter().chain(lines).collect()
}

/// Adds lines that cannot be read, and lines from the future, each at any place. Returns their
/// number.
fn spoil(format: Format, text: &mut String, requests: &[Request], random: &mut Random) -> u64 {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let head = usize::from(format.0 == "iis");
    let mut spoilt = 0;
    for request in requests.iter().step_by(requests.len() / 8) {
        let line = (format.2)(*request);
        let (begin, end) = (clock(request.begin_ms).0, clock(request.end_ms()).0);
        let end_s = (DAY_S + request.end_ms() / 1_000).to_string();
        let no_time = line.replace(&begin, "25:00:00").replace(&end, "25:00:00");
        let future = line.replace("2026", "2036").replace(&end_s, &end_s.replace("179", "210"));
        let binary = "\u{0}\u{16}\u{3}\u{1}\u{2}\u{0}".to_owned();
        for bad in [line[..20].to_owned(), binary, no_time.replace(&end_s, "now"), future] {
            let at = head + random.below((lines.len() - head) as u64) as usize;
            lines.insert(at, bad);
            spoilt += 1;
        }
        lines.insert(head, String::new());
    }
    *text = lines.join("\n");
    spoilt
}

#[test]
fn random_logs_of_every_format_are_denied_as_a_model_denies_them() {
    let logs = Logs::new();
    let (many, few) = (requests(LINES, 1), requests(OTHER_LINES, 1));
    let mut random = Random(2);
    let mut names = BTreeSet::new();
    for (at, format) in FORMATS.into_iter().enumerate() {
        let (name, precision, _) = format;
        let requests = if names.insert(name) { &many } else { &few };
        let (oldest, rest) = requests.split_at(requests.len() / 20);
        let (old, new) = rest.split_at(requests.len() / 20);
        let mut texts = [text(format, oldest), text(format, old), text(format, new)];
        let spoilt: u64 = texts.iter_mut().map(|text| spoil(format, text, old, &mut random)).sum();
        let [oldest, old, new] = texts;
        let oldest = logs.write("access.log.2.gz", gzip(oldest.as_bytes()));
        let old = logs.write("access.log.1.gz", gzip(old.as_bytes()));
        let new = logs.write("access.log", new);
        let rules = two_rules(at);
        let options = ["--in-second", "at-once", "--utc-offset", "+00:00"];
        let files = [new.as_str(), &oldest, &old];
        let report = report(&[&files[..], &arguments(&rules), &options].concat());
        let lines = &report["lines"];
        assert_eq!((&report["format"], &lines["late"]), (&name.into(), &0.into()));
        let read = (&lines["read"], &lines["bad"]);
        assert_eq!(read, (&(requests.len() as u64 + spoilt).into(), &spoilt.into()), "{name}");
        check(&report, &rules, &at_once(requests, precision), name);
    }
}

/// Two formats: one with the second of the end, one with the exact times of begin and end.
const ORDERED: [Format; 2] = [FORMATS[0], FORMATS[3]];

/// The number of lines for each order.
const ORDERED_LINES: usize = 20_000;

/// Replays files with all rules, and compares the figures.
fn check_files(format: Format, files: &[String], requests: &[Request], name: &str) {
    let calls = at_once(requests, format.1);
    for rules in RULES.chunks(3) {
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        let options = ["--in-second", "at-once"];
        let report = report(&[&files[..], &arguments(rules), &options].concat());
        assert_eq!((&report["lines"]["late"], &report["lines"]["bad"]), (&0.into(), &0.into()));
        check(&report, rules, &calls, &format!("{} {name}", format.0));
    }
}

#[test]
fn rotated_files_are_merged_whatever_the_order_of_their_names() {
    let logs = Logs::new();
    // Of three requests one takes up to an hour, so files end with requests that began in others.
    let requests = requests(ORDERED_LINES, 300);
    for format in ORDERED {
        let (a, rest) = requests.split_at(ORDERED_LINES / 2);
        let (b, c) = rest.split_at(ORDERED_LINES / 4);
        let write = |name: &str, requests| logs.write(name, text(format, requests));
        let [a, b, c] = [write("a", a), write("b", b), write("c", c)];
        for files in [[&a, &b, &c], [&b, &a, &c], [&c, &b, &a], [&b, &c, &a]] {
            let name = files.map(|file| &file[file.len() - 1..]).join("");
            check_files(format, &files.map(Clone::clone), &requests, &name);
        }
    }
}

#[test]
fn logs_of_several_hosts_are_merged_by_time() {
    let logs = Logs::new();
    let requests = requests(ORDERED_LINES, 300);
    for format in ORDERED {
        let mut random = Random(3);
        let mut hosts = [const { Vec::new() }; 4];
        for request in &requests {
            hosts[random.below(4) as usize].push(*request);
        }
        // One host begins late, one rotates its file.
        let (late, early): (Vec<_>, Vec<_>) =
            hosts[0].iter().partition(|request: &&Request| request.end_ms() > 7_000_000);
        hosts[0] = late;
        hosts[1].extend(early);
        hosts[1].sort_by_key(Request::end_ms);
        let (old, new) = hosts[2].split_at(hosts[2].len() / 2);
        let files = [
            logs.write("host-0.log", text(format, &hosts[0])),
            logs.write("host-1.log", text(format, &hosts[1])),
            logs.write("host-2.log", text(format, new)),
            logs.write("host-2.log.1.gz", gzip(text(format, old).as_bytes())),
            logs.write("host-3.log.gz", gzip(text(format, &hosts[3]).as_bytes())),
        ];
        check_files(format, &files, &requests, "of hosts");
    }
}

#[test]
fn lines_that_are_shuffled_are_sorted() {
    let logs = Logs::new();
    let requests = requests(ORDERED_LINES, 100);
    for format in ORDERED {
        for seconds in [5, 59] {
            let mut random = Random(4);
            let mut logged: Vec<_> = requests
                .iter()
                .map(|request| (request.end_ms() + random.below(seconds * 1_000), *request))
                .collect();
            logged.sort_by_key(|(at_ms, _)| *at_ms);
            let logged: Vec<_> = logged.into_iter().map(|(_, request)| request).collect();
            assert!(!logged.is_sorted_by_key(Request::end_ms));
            let file = logs.write("access.log", text(format, &logged));
            check_files(format, &[file], &requests, &format!("shuffled by {seconds} s"));
        }
    }
}

#[test]
fn lines_of_one_second_are_spread_as_a_model_spreads_them() {
    let logs = Logs::new();
    let requests = requests(ORDERED_LINES, 100);
    for format in [FORMATS[0], FORMATS[5]] {
        let file = logs.write("access.log", text(format, &requests));
        for rules in RULES.chunks(3) {
            let report = report(&[&[file.as_str()][..], &arguments(rules)].concat());
            check(&report, rules, &spread(&requests, format.1), format.0);
        }
    }
}

/// More lines than are kept to be put in order: see `lab/src/replay/order.rs`.
const MANY: usize = 300_000;

#[test]
fn late_lines_of_a_pipe_are_counted_or_reordered() {
    let format = FORMATS[1];
    let requests = requests(MANY, 0);
    let (old, new) = requests.split_at(MANY / 2);
    let rules = [RULES[0]];
    let options = [&["-", "--in-second", "at-once"][..], &arguments(&rules)].concat();
    // The lines behind the newest ones are older than those that were decided already.
    for late in [2_000, 4_000] {
        let (moved, first) = old.split_at(late);
        let piped = text(format, first) + &text(format, new) + &text(format, moved);
        let replayed = replay_of(piped.as_bytes(), &[&options[..], &["--json"]].concat());
        assert_eq!(replayed.status, Some(1));
        if late * 100 > MANY {
            assert_eq!(replayed.output, "");
            let reason = format!("{late} of {MANY} calls came 250,000 lines or more after later");
            assert!(replayed.errors.contains(&reason), "{}", replayed.errors);
            continue;
        }
        let doubted: Value = serde_json::from_str(&replayed.output).expect("a report");
        assert_eq!((&doubted["lines"]["late"], &doubted["calls"]), (&late.into(), &MANY.into()));
        assert!(doubted["doubts"][0].as_str().is_some_and(|doubt| doubt.contains("out of order")));
        let options = [&options[..], &["--reorder", "1d"]].concat();
        let report = report_of(piped.as_bytes(), &options);
        assert_eq!(report["lines"]["late"], 0);
        check(&report, &rules, &at_once(&requests, format.1), "reordered");
    }
}

#[test]
fn a_clock_ahead_by_less_than_a_minute_moves_only_its_own_lines() {
    let logs = Logs::new();
    let format = FORMATS[3];
    let mut random = Random(5);
    let mut requests = requests(ORDERED_LINES, 1);
    for request in &mut requests {
        if random.below(200) == 0 {
            request.begin_ms += 45_000;
        }
    }
    let file = logs.write("access.log", text(format, &requests));
    check_files(format, &[file], &requests, "of a clock ahead");
}
