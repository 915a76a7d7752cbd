//! The formats with a name: lines as the programs write them, found without being named.

use super::{DAY_S, Logs, failure, gzip, replay, report, report_of};
use serde_json::Value;

/// A format, and a log with three bad lines: one that is cut, one without a valid time, and one of
/// bytes that are no text.
struct Sample {
    name: &'static str,
    log: &'static str,
    /// The clients, and the microseconds after 2026-10-10 00:00:00 UTC of their calls.
    clients: [(&'static str, &'static [u64]); 2],
    options: &'static [&'static str],
}

const SAMPLES: [Sample; 19] = [
    Sample {
        name: "combined",
        log: include_str!("logs/combined.log"),
        clients: [("192.0.2.7", &[1_000_000, 2_000_000, 3_000_000]), ("2001:db8::1", &[2_000_000])],
        options: &[],
    },
    Sample {
        name: "common",
        log: include_str!("logs/common.log"),
        clients: [("192.0.2.7", &[1_000_000, 1_000_000]), ("2001:db8::1", &[2_000_000, 2_000_000])],
        options: &[],
    },
    Sample {
        name: "vhost_combined",
        log: include_str!("logs/vhost_combined.log"),
        clients: [("192.0.2.7", &[1_000_000, 2_000_000, 2_000_000]), ("2001:db8::1", &[2_000_000])],
        options: &[],
    },
    Sample {
        name: "alb",
        log: include_str!("logs/alb.log"),
        clients: [("192.0.2.7", &[1_000_500, 1_500_000]), ("2001:db8::1", &[1_900_000, 2_000_000])],
        options: &[],
    },
    Sample {
        name: "nlb",
        log: include_str!("logs/nlb.log"),
        clients: [("192.0.2.7", &[1_000_000, 1_000_000]), ("2001:db8::1", &[1_000_000, 2_000_000])],
        options: &[],
    },
    Sample {
        name: "cloudfront",
        log: include_str!("logs/cloudfront.log"),
        clients: [("192.0.2.7", &[500_000, 750_000]), ("2001:db8::1", &[875_000, 1_999_908])],
        options: &[],
    },
    Sample {
        name: "cloudfront",
        log: include_str!("logs/cloudfront-json.log"),
        clients: [("192.0.2.7", &[500_000, 750_000]), ("2001:db8::1", &[875_000, 1_999_908])],
        options: &[],
    },
    Sample {
        name: "envoy",
        log: include_str!("logs/envoy.log"),
        clients: [("192.0.2.7", &[1_250_000, 1_500_000]), ("2001:db8::1", &[1_500_000, 2_000_000])],
        options: &[],
    },
    Sample {
        name: "envoy",
        log: include_str!("logs/envoy-istio.log"),
        clients: [("192.0.2.7", &[1_250_000, 1_500_000]), ("2001:db8::1", &[1_500_000, 2_000_000])],
        options: &[],
    },
    Sample {
        name: "envoy",
        log: include_str!("logs/envoy-json.log"),
        clients: [("192.0.2.7", &[1_250_000, 1_500_000]), ("2001:db8::1", &[1_750_000, 2_000_000])],
        options: &[],
    },
    Sample {
        name: "caddy",
        log: include_str!("logs/caddy.log"),
        clients: [("192.0.2.7", &[1_000_000, 1_250_000]), ("2001:db8::1", &[1_500_000, 2_000_000])],
        options: &[],
    },
    Sample {
        name: "caddy",
        log: include_str!("logs/caddy-old.log"),
        clients: [("192.0.2.7", &[1_000_000, 1_250_000]), ("2001:db8::1", &[1_500_000, 2_000_000])],
        options: &[],
    },
    Sample {
        name: "traefik",
        log: include_str!("logs/traefik.log"),
        clients: [("192.0.2.7", &[1_000_000, 2_000_000]), ("2001:db8::1", &[1_000_000, 2_000_000])],
        options: &[],
    },
    Sample {
        name: "traefik",
        log: include_str!("logs/traefik-json.log"),
        clients: [("192.0.2.7", &[1_250_000, 1_500_000]), ("2001:db8::1", &[1_750_000, 2_000_000])],
        options: &[],
    },
    Sample {
        name: "haproxy",
        log: include_str!("logs/haproxy.log"),
        clients: [("192.0.2.7", &[1_655_000, 1_700_000]), ("2001:db8::1", &[1_700_000, 2_000_000])],
        options: &["--utc-offset", "+02:00"],
    },
    Sample {
        name: "haproxy",
        log: include_str!("logs/haproxy-tcp.log"),
        clients: [("192.0.2.7", &[1_655_000, 1_700_000]), ("2001:db8::1", &[1_700_000, 2_000_000])],
        options: &["--utc-offset", "+02:00"],
    },
    Sample {
        name: "iis",
        log: include_str!("logs/iis.log"),
        clients: [("192.0.2.7", &[500_000, 750_000]), ("2001:db8::1", &[875_000, 2_000_000])],
        options: &[],
    },
    Sample {
        name: "gcp",
        log: include_str!("logs/gcp.log"),
        clients: [("192.0.2.7", &[1_250_500, 1_500_000]), ("2001:db8::1", &[1_750_000, 2_000_001])],
        options: &[],
    },
    Sample {
        name: "nginx-json",
        log: include_str!("logs/nginx-json.log"),
        clients: [("192.0.2.7", &[500_000, 750_000]), ("2001:db8::1", &[875_000, 2_000_000])],
        options: &[],
    },
];

/// The options with which each line counts at its own time, and bad lines are left out.
const EXACT: [&str; 3] = ["--in-second", "at-once", "--skip-bad"];

/// Returns the first and the last time, after the day's beginning, and the number of calls and keys
/// and of lines that were not read.
fn figures(report: &Value) -> (u64, u64, u64, u64, u64) {
    let after = |field: &str| report[field].as_u64().expect("a time") - DAY_S * 1_000_000;
    let number = |value: &Value| value.as_u64().expect("a number");
    let (calls, keys) = (number(&report["calls"]), number(&report["keys"]));
    (after("from_us"), after("to_us"), calls, keys, number(&report["lines"]["bad"]))
}

#[test]
fn every_named_format_is_found_and_gives_times_and_clients() {
    let logs = Logs::new();
    for Sample { name, log, clients, options } in &SAMPLES {
        let options = [*options, &EXACT[..]].concat();
        let calls: usize = clients.iter().map(|(_, times)| times.len()).sum();
        let times = || clients.iter().flat_map(|(_, times)| *times).copied();
        let (first, last) = (times().min().unwrap(), times().max().unwrap());
        let expected = (first, last, calls as u64, clients.len() as u64, 3);
        let plain = logs.write("access.log", log);
        let packed = logs.write("access.log.gz", gzip(log.as_bytes()));
        // As some editors and systems leave it.
        let marked = logs.write("marked.log", format!("\u{feff}{}", log.replace('\n', "\r\n")));
        for file in [&plain, &packed, &marked] {
            let rule = [file, "--rule", "FIXED 1 100d"];
            let found = report(&[&rule[..], &options].concat());
            assert_eq!(found["format"], *name, "{file}");
            assert_eq!(figures(&found), expected, "{name} {file}: {found}");
            // Each key may call once.
            let denied = found["limits"][0]["denied"].as_u64().unwrap();
            assert_eq!(denied, expected.2 - expected.3, "{name}");
            let same = report(&[&rule[..], &options, &["--format", name]].concat());
            assert_eq!(same, found, "{name}");
        }
        let (head, lines): (Vec<_>, Vec<_>) = log.lines().partition(|line| line.starts_with('#'));
        let time = |line: &&str| {
            let alone = logs.write("alone.log", [&head[..], &[*line]].concat().join("\n"));
            let format = [&alone, "--json", "--format", name];
            // A bad line gives a report without a time.
            let replayed = replay(&[&format[..], &rule(), &options].concat());
            let report: Value = serde_json::from_str(&replayed.output).expect("a report");
            report["from_us"].as_u64().map(|us| us - DAY_S * 1_000_000)
        };
        let mut found: Vec<_> = lines.iter().filter_map(time).collect();
        found.sort_unstable();
        let mut expected_times: Vec<_> = times().collect();
        expected_times.sort_unstable();
        assert_eq!(found, expected_times, "{name}");
        let by_network = ["--key", "$remote_addr/24/64", "--rule", "FIXED 1 1s"];
        if *name != "envoy" {
            let report = report(&[&[plain.as_str()][..], &by_network, &options].concat());
            assert_eq!(report["keys"], expected.3, "{name}");
        }
        let bad = logs.write("bad.log", log.lines().last().unwrap()[..40].repeat(3));
        let error = failure(
            1,
            &[&[bad.as_str(), "--format", name][..], &options[..options.len() - 1], &rule()]
                .concat(),
        );
        assert!(error.starts_with("1 of 1 lines were not read"), "{name}: {error}");
        let error =
            failure(1, &[&[plain.as_str()][..], &options[..options.len() - 1], &rule()].concat());
        assert!(error.starts_with("3 of 7 lines were not read"), "{name}: {error}");
    }
}

fn rule() -> [&'static str; 2] {
    ["--rule", "FIXED 1 1s"]
}

#[test]
fn parts_of_requests_have_the_same_names_in_every_format() {
    let logs = Logs::new();
    for Sample { name, log, options, .. } in &SAMPLES {
        let file = logs.write("access.log", log);
        let conditions = ["--where", "path=/a", "--where", "method=GET", "--where", "status=200"];
        if matches!(*name, "nlb" | "haproxy") {
            continue;
        }
        let arguments = [&[file.as_str()][..], options, &EXACT, &conditions, &rule()].concat();
        assert_eq!(report(&arguments)["calls"], 1, "{name}");
    }
}

#[test]
fn clients_behind_proxies_are_taken_from_the_list_that_the_proxies_make() {
    let format = "$remote_addr [$time_iso8601] \"$http_x_forwarded_for\"";
    let log = "10.0.0.1 [2026-10-10T00:00:01Z] \"203.0.113.9, 192.0.2.7\"\n\
               10.0.0.1 [2026-10-10T00:00:02Z] \"192.0.2.7, 10.0.0.2\"\n\
               192.0.2.7 [2026-10-10T00:00:03Z] \"203.0.113.9\"\n";
    let of = |options: &[&str]| {
        report_of(log.as_bytes(), &[&["-", "--format", format], &rule()[..], options].concat())
    };
    assert_eq!(of(&[])["keys"], 2);
    assert_eq!(of(&["--trusted-proxies", "10.0.0.0/8"])["keys"], 1);
    assert_eq!(of(&["--trusted-proxies", "::ffff:10.0.0.0/104"])["keys"], 1);
    assert_eq!(of(&["--key", "${http_x_forwarded_for[-1]}"])["keys"], 3);
    // Envoy's line has no peer, and Caddy's list is an array of one text.
    let envoy = "[2026-10-10T00:00:01.250Z] \"GET / HTTP/1.1\" 200 - 0 135 153 22 \
                 \"203.0.113.9,192.0.2.7,10.0.0.2\" \"-\" \"f\" \"ex.org\" \"-\"\n";
    let caddy = "{\"ts\":1791590401.5,\"request\":{\"remote_ip\":\"10.0.0.1\",\"headers\":\
                 {\"X-Forwarded-For\":[\"203.0.113.9, 192.0.2.7\"]}},\"duration\":0.1}\n";
    for log in [envoy, caddy] {
        let options = ["-", "--trusted-proxies", "10.0.0.0/8", "--rule", "FIXED 1 1h"];
        let twice = format!("{log}{}", log.replace("203.0.113.9", "203.0.113.1"));
        let report = report_of(twice.as_bytes(), &options);
        assert_eq!((&report["calls"], &report["keys"]), (&2.into(), &1.into()), "{log}");
    }
}

#[test]
fn long_connections_of_a_load_balancer_are_sorted_by_their_beginnings() {
    // Of each two connections one lasts an hour; one begins each 10 s.
    let line = |begin: u64, end: u64| {
        let clock = |s: u64| format!("{:02}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60);
        let (end, begin) = (clock(end), clock(begin));
        format!(
            "tls 2.0 2026-10-10T{end} net/lb/1 g3 192.0.2.7:51341 10.0.0.1:443 5 2 98 246 - arn - \
             E T - ex.org - - - 2026-10-10T{begin}\n"
        )
    };
    let mut ends: Vec<_> =
        (0..2_000).map(|at| (at * 10 + if at % 2 == 0 { 3_600 } else { 1 }, at * 10)).collect();
    ends.sort();
    let log: String = ends.into_iter().map(|(end, begin)| line(begin, end)).collect();
    let report = report_of(log.as_bytes(), &["-", "--rule", "FIXED 1 9s"]);
    assert_eq!((&report["calls"], &report["lines"]["bad"]), (&2_000.into(), &0.into()));
    assert_eq!(report["limits"][0]["denied"], 0);
}

#[test]
fn a_length_of_time_is_not_taken_for_the_time() {
    let line = |second: u64| {
        format!(
            "{{\"time\":0.153,\"timestamp\":\"2026-10-10T00:00:{second:02}Z\",\"remote_addr\":\
             \"192.0.2.7\"}}\n"
        )
    };
    let log: String = (0..20).map(|second| line(second * 3)).collect();
    let report = report_of(log.as_bytes(), &["-", "--rule", "FIXED 1 2s"]);
    assert_eq!((&report["limits"][0]["denied"], figures(&report).1), (&0.into(), 57_000_000));
}

#[test]
fn what_cannot_be_right_is_refused_with_advice() {
    let logs = Logs::new();
    let json = logs.write("app.json", "{\"ts\":1791590401,\"ip\":\"192.0.2.7\"}\n");
    let error = failure(2, &[&[json.as_str()], &rule()[..]].concat());
    assert!(error.contains("JSON of no known format"), "{error}");
    let haproxy = SAMPLES.iter().find(|sample| sample.name == "haproxy").unwrap();
    let log = logs.write("haproxy.log", haproxy.log);
    let error = failure(1, &[&[log.as_str()], &rule()[..]].concat());
    assert!(error.contains("name it with --utc-offset, such as +02:00"), "{error}");
    let vhost = SAMPLES.iter().find(|sample| sample.name == "vhost_combined").unwrap();
    let log = logs.write("other.log", vhost.log);
    let error = failure(1, &[&[log.as_str(), "--format", "combined"], &rule()[..]].concat());
    assert!(error.contains("expected no space in $remote_addr"), "{error}");
    let one = logs.write("one.log", "#Fields: date time c-ip\n2026-10-10 00:00:01 192.0.2.7\n");
    let two = logs.write("two.log", "#Fields: date c-ip time\n2026-10-10 192.0.2.7 00:00:02\n");
    let error = failure(2, &[&[one.as_str(), &two], &rule()[..]].concat());
    assert!(error.contains("the files have different columns"), "{error}");
    let help = replay(&["--help"]).output;
    for Sample { name, .. } in &SAMPLES {
        assert!(help.contains(&format!("\n  {name} ")), "{name}");
    }
}
