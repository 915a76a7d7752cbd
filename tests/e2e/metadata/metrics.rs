//! `RL.METRICS`: all counters in the text format of Prometheus.

use redis::Value;

use support::acl::{is_at_least, make_user, may};
use support::metrics::{scrape, traffic};
use support::{BASE_US, Server, eventually, replica_of, text};

#[test]
fn every_info_field_is_a_metric_with_the_same_value() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for round in 0..2 {
        let info = client.info("rl");
        let samples = scrape(&mut client);
        let build = format!(
            "rl_build_info{{version=\"{}\",tzdb_version=\"{}\",clock_source=\"{}\"}}",
            info["rl_version"], info["rl_tzdb_version"], info["rl_clock_source"],
        );
        assert_eq!(samples[&build], "1", "{samples:?}");
        for (field, number) in &info {
            let name = field.strip_prefix("rl_").expect("a field of the module");
            let sample = match name.rsplit_once('_') {
                Some((command, outcome @ ("allowed" | "denied"))) => {
                    format!("rl_decisions_total{{command=\"{command}\",outcome=\"{outcome}\"}}")
                }
                _ if ["errors", "panics"].contains(&name) => format!("rl_{name}_total"),
                _ if name == "keys_created" => {
                    let family = samples
                        .iter()
                        .filter(|(sample, _)| sample.starts_with("rl_keys_created_total{"));
                    let numbers = family.map(|(_, number)| number.parse::<u64>().unwrap());
                    assert_eq!(numbers.sum::<u64>().to_string(), *number, "{samples:?}");
                    continue;
                }
                _ if name == "policies_digest" => {
                    let sample = format!("rl_policies_info{{digest=\"{number}\"}}");
                    assert_eq!(samples.get(&sample).map(String::as_str), Some("1"), "{samples:?}");
                    continue;
                }
                _ if name.contains("version") || name == "clock_source" => continue,
                _ => field.clone(),
            };
            assert_eq!(samples.get(&sample), Some(number), "{field}: {sample}");
        }
        let allowed = &samples[r#"rl_decisions_total{command="gcra",outcome="allowed"}"#];
        assert_eq!(allowed, if round == 0 { "0" } else { "2" });
        assert_eq!(samples["rl_errors_total"], round.to_string());
        traffic(&mut client);
    }
}

#[test]
fn metrics_are_one_bulk_string_in_resp2_and_resp3_with_a_fixed_order() {
    let server = Server::start();
    let (mut client, mut client3) = (server.client(), server.client3());
    traffic(&mut client);
    let bytes = client.bytes("RL.METRICS");
    assert_eq!(client3.run("RL.METRICS"), Value::BulkString(bytes.clone()));
    let text = String::from_utf8(bytes).expect("UTF-8");
    assert!(text.is_ascii() && text.ends_with('\n') && !text.contains("\n\n"), "{text}");
    let shape = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
    };
    let before = shape(&text);
    client.ok("CONFIG RESETSTAT");
    traffic(&mut client);
    assert_eq!(shape(&String::from_utf8(client.bytes("RL.METRICS")).unwrap()), before);
}

#[test]
fn every_metric_has_its_help_and_type_before_its_samples_and_appears_once() {
    let server = Server::start();
    let mut client = server.client();
    traffic(&mut client);
    let text = text(&client.run("RL.METRICS"));
    let mut families: Vec<&str> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(help) = lines.next() {
        let help = help.strip_prefix("# HELP ").expect("help comes first");
        let (name, words) = help.split_once(' ').expect("a text");
        assert!(words.len() > 5 && words.ends_with('.'), "{help}");
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        assert_eq!(lines.next(), Some(format!("# TYPE {name} {kind}").as_str()));
        let mut samples = 0;
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            assert_eq!(line.split(['{', ' ']).next(), Some(name), "{line}");
            samples += 1;
        }
        assert!(samples > 0, "{name} has no sample");
        assert!(!families.contains(&name), "{name} is there twice");
        families.push(name);
    }
    assert!(families.len() >= 5, "{families:?}");
}

#[test]
fn metrics_take_no_argument() {
    let server = Server::start();
    let mut client = server.client();
    let error = client.error("RL.METRICS search");
    assert!(error.contains("wrong number of arguments"), "{error}");
    assert_eq!(scrape(&mut client)["rl_errors_total"], "0", "the server itself refuses it");
}

#[test]
fn transactions_and_read_only_scripts_can_read_the_metrics() {
    let server = Server::start();
    let mut client = server.client();
    traffic(&mut client);
    let expected = client.run("RL.METRICS");
    client.ok("MULTI");
    client.run("RL.METRICS");
    assert_eq!(client.run("EXEC"), Value::Array(vec![expected.clone()]));
    for eval in ["EVAL", "EVAL_RO"] {
        let reply = client.call(&[eval, "return redis.call('RL.METRICS')", "0"]);
        assert_eq!(reply, expected, "{eval}");
    }
}

#[test]
fn scraping_user_needs_no_access_to_keys() {
    let server = Server::start();
    let mut client = server.client();
    make_user(&mut client, "watcher", "-@all +rl.metrics");
    assert!(may(&mut client, "watcher", "RL.METRICS"));
    if is_at_least(&mut client, (7, 2), (8, 0)) {
        make_user(&mut client, "reader", "-@all +@read -@write");
        make_user(&mut client, "careful", "+@all -@dangerous -@admin");
        make_user(&mut client, "quick", "-@all +@fast");
        assert!(may(&mut client, "reader", "RL.METRICS"));
        assert!(may(&mut client, "careful", "RL.METRICS"));
        assert!(!may(&mut client, "quick", "RL.METRICS"), "it is long with many policies");
    }
    if is_at_least(&mut client, (7, 4), (8, 0)) {
        make_user(&mut client, "limits", "-@all +@rl");
        assert!(!may(&mut client, "limits", "RL.METRICS"), "its reply may be megabytes long");
    }
    let mut watcher = server.client();
    watcher.ok("AUTH watcher any");
    assert_eq!(scrape(&mut watcher)["rl_clock_frozen"], "0");
}

#[test]
fn replica_reports_its_own_metrics_even_when_it_is_stale() {
    let mut primary = Server::setup().with_tcp().start();
    traffic(&mut primary.client());
    let replica = replica_of(&primary);
    let mut client = replica.client();
    client.decide("RL.PEEK k GCRA 5 5 1h");
    let samples = scrape(&mut client);
    assert_eq!(samples[r#"rl_decisions_total{command="peek",outcome="allowed"}"#], "1");
    assert_eq!(samples[r#"rl_decisions_total{command="gcra",outcome="allowed"}"#], "0");
    client.ok("CONFIG SET replica-serve-stale-data no");
    primary.crash();
    eventually("the link is down", || {
        (client.info("replication")["master_link_status"] == "down").then_some(())
    });
    assert!(client.error("GET k").starts_with("MASTERDOWN"));
    assert_eq!(scrape(&mut client), samples);
}

#[test]
fn metrics_are_available_while_the_server_loads() {
    // The server loads 20,000 keys at 2 ms each: it is still loading when the test ends.
    let mut server = Server::setup().line("enable-debug-command yes").start();
    let mut client = server.client();
    client.run("DEBUG POPULATE 20000");
    client.ok("SAVE");
    let slowly = ["key-load-delay 2000", "loading-process-events-interval-bytes 1024"];
    server.start_again_loading(&slowly);
    let mut client = server.client();
    assert!(client.error("RL.GCRA k 5 5 1h").starts_with("LOADING"));
    assert_eq!(scrape(&mut client)["rl_errors_total"], "0");
    assert!(client.error("GET k").starts_with("LOADING"), "it still loads");
}
