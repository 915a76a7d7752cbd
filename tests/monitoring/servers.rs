//! The servers on the exporter's page, and the page when some servers do not reply.

use crate::exporter::{Exporter, TIMEOUT_MS, program, refusal};
use crate::http;
use crate::promtool::assert_promtool_accepts;
use saphyr::{LoadableYamlNode as _, Yaml};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use support::cluster::Cluster;
use support::server::{free_port, send_signal};
use support::{Client, Server, eventually, module, text};

fn server() -> Server {
    Server::setup().with_tcp().start()
}

fn name(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}

fn url(server: &Server) -> String {
    format!("redis://{}", name(server))
}

/// Returns the number of RL.METRICS calls that a server has executed.
fn scrapes(client: &mut Client) -> i64 {
    let statistics = client.info("commandstats");
    let calls = statistics.get("cmdstat_rl.metrics").map_or("calls=0", String::as_str);
    calls.split(['=', ',']).nth(1).and_then(|calls| calls.parse().ok()).expect("a number")
}

#[test]
fn page_of_two_servers_has_each_metric_once_and_names_the_server_of_each_sample() {
    let (one, two) = (server(), server());
    one.client().decide("RL.GCRA user:42 6 10 60");
    for _ in 0..3 {
        two.client().decide("RL.GCRA user:42 2 1 1h");
    }
    let exporter = Exporter::of_servers(&[&url(&one), &url(&two)]);
    let page = exporter.page();
    assert_promtool_accepts(&page);
    let heads: Vec<_> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let mut once = heads.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(heads.len(), once.len(), "{heads:?}");
    let samples = exporter.samples();
    let decisions = |server: &Server, outcome: &str| {
        let labels = format!("server=\"{}\",command=\"gcra\",outcome=\"{outcome}\"", name(server));
        samples[&format!("rl_decisions_total{{{labels}}}")]
    };
    assert_eq!((decisions(&one, "allowed"), decisions(&one, "denied")), (1.0, 0.0));
    assert_eq!((decisions(&two, "allowed"), decisions(&two, "denied")), (2.0, 1.0));
    assert_eq!(exporter.up(), BTreeMap::from([(name(&one), true), (name(&two), true)]));
    let info = format!("rl_exporter_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(samples[&info], 1.0);
}

#[test]
fn scrape_is_one_command_on_a_kept_connection() {
    let server = server();
    let exporter = Exporter::of_servers(&[&url(&server)]);
    exporter.page();
    let mut client = server.client();
    let connections =
        |client: &mut Client| client.info_number("stats", "total_connections_received");
    let processed = |client: &mut Client| client.info_number("stats", "total_commands_processed");
    let (scraped, connected) = (scrapes(&mut client), connections(&mut client));
    let before = processed(&mut client);
    for _ in 0..5 {
        exporter.page();
    }
    let own_looks = 1;
    assert_eq!(processed(&mut client) - before, 5 + own_looks);
    assert_eq!(scrapes(&mut client) - scraped, 5);
    assert_eq!(connections(&mut client), connected);
}

#[test]
fn dead_server_is_down_and_the_first_scrape_after_its_restart_shows_it_up() {
    let (mut one, two) = (server(), server());
    let exporter = Exporter::of_servers(&[&url(&one), &url(&two)]);
    let state = |one_up: bool| BTreeMap::from([(name(&one), one_up), (name(&two), true)]);
    let (up, down) = (state(true), state(false));
    assert_eq!(exporter.up(), up);
    one.crash();
    assert_eq!(exporter.up(), down);
    assert_eq!(exporter.up(), down);
    one.start_again();
    assert_eq!(exporter.up(), up);
    // There was no scrape meanwhile, so the exporter still has its connection to the ended process.
    one.start_again();
    assert_eq!(exporter.up(), up);
    let log = exporter.log();
    let of_one: Vec<_> = log.lines().filter(|line| line.starts_with(&name(&one))).collect();
    assert_eq!(of_one.len(), 3, "a change of state is a line: {log}");
}

#[test]
fn exporter_that_starts_before_its_server_shows_the_server_once_it_runs() {
    let mut server = server();
    server.crash();
    let exporter = Exporter::of_servers(&[&url(&server)]);
    assert_eq!(exporter.up(), BTreeMap::from([(name(&server), false)]));
    server.start_again();
    assert_eq!(exporter.up(), BTreeMap::from([(name(&server), true)]));
}

#[test]
fn exporter_serves_its_page_even_if_its_output_is_not_read() {
    let mut server = server();
    let address = format!("127.0.0.1:{}", free_port());
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let mut exporter = Command::new(program())
        .args(["--server", &url(&server), "--listen", &address])
        .stdout(full())
        .stderr(full())
        .spawn()
        .expect("the exporter can be run");
    let scrape = || http::send(&address, "GET /metrics HTTP/1.0\r\n\r\n");
    let first = eventually("the exporter listens", || {
        assert!(exporter.try_wait().unwrap().is_none(), "it has ended");
        scrape()
    });
    server.crash();
    let second = scrape();
    let _ = exporter.kill();
    let _ = exporter.wait();
    let up = |page: &http::Response| page.body.contains(&format!("\"{}\"}} 1\n", name(&server)));
    assert!(up(&first), "{}", first.body);
    assert!(!up(&second.expect("a response")));
}

/// Listens on a port and handles each connection with `behave`. Returns its address.
fn port_of(behave: impl Fn(std::net::TcpStream) + Send + Sync + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let behave = behave.clone();
            thread::spawn(move || behave(stream));
        }
    });
    name
}

/// Listens on a port and replies to every command with this text. Returns its address.
fn port_that_replies(text: &str) -> String {
    let reply = format!("${}\r\n{text}\r\n", text.len());
    port_of(move |mut stream| {
        let mut bytes = [0; 1024];
        while std::io::Read::read(&mut stream, &mut bytes).is_ok_and(|read| read > 0) {
            let _ = stream.write_all(reply.as_bytes());
        }
    })
}

#[test]
fn server_on_a_socket_is_named_by_its_path() {
    let server = server();
    let path = server.file("socket").display().to_string();
    let exporter = Exporter::of_servers(&[&format!("redis+unix://{path}")]);
    assert_eq!(exporter.up(), BTreeMap::from([(path, true)]));
}

#[test]
fn servers_that_hang_or_trickle_cost_one_timeout_and_no_sample_of_other_servers() {
    let healthy = server();
    let forever = || thread::sleep(Duration::from_secs(600));
    let silent = port_of(move |stream| {
        forever();
        drop(stream);
    });
    // The server sends one byte at a time: every read ends in time, but the reply never does.
    let trickling = port_of(|mut stream| {
        let _ = stream.write_all(b"$1000000\r\n");
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let stopped = server();
    let pid = stopped.client().info("server")["process_id"].clone();
    let urls = [&silent, &trickling].map(|name| format!("redis://{name}"));
    let all = [urls[0].as_str(), &urls[1], &url(&stopped), &url(&healthy)];
    let exporter = Exporter::of_servers(&all);
    assert!(exporter.up()[&name(&stopped)]);
    let signal = |signal: &str| {
        assert!(send_signal(signal, &pid));
    };
    signal("-STOP");
    let expected = BTreeMap::from([
        (silent, false),
        (trickling, false),
        (name(&stopped), false),
        (name(&healthy), true),
    ]);
    for _ in 0..3 {
        let started = Instant::now();
        let up = exporter.up();
        let took = started.elapsed();
        assert_eq!(up, expected);
        // The timeout of one server, plus a margin for a busy machine.
        assert!(took < Duration::from_millis(TIMEOUT_MS + 1500), "{took:?}");
    }
    // The exporter has at most one thread per hanging server, however often it is scraped.
    let status = fs::read_to_string(format!("/proc/{}/status", exporter.pid())).unwrap();
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).expect("a count");
    assert!(threads.trim().parse::<u32>().unwrap() <= 1 + 4 + 1, "{threads}");
    signal("-CONT");
    eventually("the server that was stopped is up again", || {
        exporter.up()[&name(&stopped)].then_some(())
    });
}

#[test]
fn exporter_shows_a_server_as_down_when_its_reply_is_not_metrics() {
    let healthy = server();
    let without = Server::setup().without_module().with_tcp().start();
    let odd = port_that_replies("rl_errors_total 1\n<b>rl_up{server=\"x\"} 1</b>\n");
    let odd_url = format!("redis://{odd}");
    let exporter = Exporter::of_servers(&[&odd_url, &url(&without), &url(&healthy)]);
    let page = exporter.page();
    assert_promtool_accepts(&page);
    assert!(!page.contains("<b>"), "{page}");
    assert!(!page.contains(&format!("rl_errors_total{{server=\"{odd}\"}}")), "{page}");
    let expected = [(name(&healthy), true), (name(&without), false), (odd, false)];
    assert_eq!(exporter.up(), BTreeMap::from(expected));
    assert!(exporter.log().contains("unknown command"), "{}", exporter.log());
}

#[test]
fn exporter_reports_a_server_down_when_a_line_is_too_long_or_has_too_many_labels() {
    let healthy = server();
    let sample_of = |labels: usize| {
        let labels: String = (0..labels).map(|label| format!("l{label}=\"\",")).collect();
        format!("rl_odd{{{labels}}} 1\n")
    };
    // The line of the first sample has 3.2 MB.
    let [long, many, most] = [sample_of(300_000), sample_of(65), sample_of(64)]
        .map(|line| port_that_replies(&format!("rl_errors_total 1\n{line}")));
    let urls = [&long, &many, &most].map(|name| format!("redis://{name}"));
    let exporter = Exporter::of_servers(&[&urls[0], &urls[1], &urls[2], &url(&healthy)]);
    let names = [long.clone(), many.clone(), most.clone(), name(&healthy)];
    assert_eq!(exporter.up(), names.into_iter().zip([false, false, true, true]).collect());
    let (page, log) = (exporter.page(), exporter.log());
    for (server, expected) in [(long, "65536 bytes"), (many, "64 labels")] {
        let reason = format!("invalid line 2 of RL.METRICS: expected at most {expected}");
        assert!(log.contains(&format!("{server} is down: {reason}\n")), "{log}");
        assert!(!page.contains(&format!("rl_errors_total{{server=\"{server}\"")), "{server}");
    }
    assert!(page.contains(&format!("rl_odd{{server=\"{most}\",l0=")), "{most}");
    assert!(page.contains(&format!("rl_decisions_total{{server=\"{}\"", name(&healthy))));
}

#[test]
fn user_needs_only_one_command_and_no_output_contains_the_password() {
    let server = server();
    let mut client = server.client();
    client.ok("ACL SETUSER metrics on >hunter2 -@all +rl.metrics");
    let with = |password: &str| format!("redis://metrics:{password}@{}", name(&server));
    let up = BTreeMap::from([(name(&server), true)]);
    let exporter = Exporter::start(&[], &[("REDIS_THROTTLE_SERVERS", &with("hunter2"))]);
    assert_eq!(exporter.up(), up);
    let refused = client.run("ACL LOG");
    assert_eq!(refused, redis::Value::Array(Vec::new()), "its connection sends no other command");
    let wrong = Exporter::start(&["--server", &with("hunter3")], &[]);
    assert_eq!(wrong.up(), BTreeMap::from([(name(&server), false)]));
    client.ok("ACL SETUSER metrics -rl.metrics");
    assert_eq!(exporter.up(), BTreeMap::from([(name(&server), false)]));
    assert!(exporter.log().to_lowercase().contains("permission"), "{}", exporter.log());
    let line = fs::read(format!("/proc/{}/cmdline", exporter.pid())).unwrap();
    let texts = [
        exporter.log(),
        wrong.log(),
        exporter.page(),
        wrong.page(),
        exporter.greeting.clone(),
        String::from_utf8_lossy(&line).into_owned(),
        refusal(&["--server", &with("hunter2"), "--server", &with("hunter2")]),
        refusal(&["--server", "redis://u:hunter2@host:port"]),
        refusal(&["--server", &with("hunter2"), "--listen", "nowhere"]),
    ];
    for text in texts {
        assert!(!text.contains("hunter"), "{text}");
    }
}

#[test]
fn cluster_is_found_by_any_node_and_remains_visible_without_that_node() {
    let mut cluster = Cluster::start();
    let names: Vec<_> = cluster.nodes.iter().map(name).collect();
    let exporter = Exporter::start(&["--cluster", &url(&cluster.nodes[1])], &[]);
    let all = |up: bool| -> BTreeMap<String, bool> {
        names.iter().map(|name| (name.clone(), up || *name != names[1])).collect()
    };
    assert_eq!(exporter.up(), all(true));
    let mut client = cluster.nodes[2].client();
    let scraped = scrapes(&mut client);
    assert_eq!(exporter.up(), all(true));
    assert_eq!(scrapes(&mut client) - scraped, 1);
    cluster.nodes[1].crash();
    assert_eq!(exporter.up(), all(false));
    assert_eq!(exporter.up(), all(false));
    cluster.nodes[1].start_again();
    assert_eq!(exporter.up(), all(true));
}

/// Returns true if the exporter finds the cluster's nodes through this node.
fn found(exporter: &Exporter, seed: &str) -> bool {
    exporter.samples()[&format!("rl_exporter_discovery_up{{cluster=\"{seed}\"}}")] == 1.0
}

#[test]
fn removed_node_removes_no_other_node_from_the_page() {
    let cluster = Cluster::start();
    let names: Vec<_> = cluster.nodes.iter().map(name).collect();
    // One exporter queries the node that will be removed, and the other a node that remains.
    let by_leaver = Exporter::start(&["--cluster", &url(&cluster.nodes[2])], &[]);
    let by_other = Exporter::start(&["--cluster", &url(&cluster.nodes[0])], &[]);
    for exporter in [&by_leaver, &by_other] {
        assert_eq!(exporter.up().len(), 3);
        assert!(exporter.page().contains("rl_exporter_discovery_up"));
    }
    let id = text(&cluster.nodes[2].client().run("CLUSTER MYID"));
    cluster.nodes[2].client().ok("CLUSTER RESET");
    for node in &cluster.nodes[..2] {
        node.client().ok(&format!("CLUSTER FORGET {id}"));
    }
    let left: BTreeMap<_, _> = names[..2].iter().map(|name| (name.clone(), true)).collect();
    for exporter in [&by_leaver, &by_other] {
        assert_eq!(exporter.up(), left);
        assert_eq!(exporter.up(), left);
    }
    assert!(found(&by_leaver, &names[2]) && found(&by_other, &names[0]));
}

#[test]
fn cluster_that_does_not_list_its_nodes_is_displayed_and_logged_once() {
    let cluster = Cluster::start();
    let (node, alone) = (&cluster.nodes[0], server());
    node.client().ok("ACL SETUSER metrics on >hunter2 -@all +rl.metrics");
    let refused = format!("redis://metrics:hunter2@{}", name(node));
    for (seed, url) in [(name(node), refused), (name(&alone), url(&alone))] {
        let exporter = Exporter::start(&["--cluster", &url], &[]);
        for _ in 0..2 {
            assert_eq!(exporter.up(), BTreeMap::from([(seed.clone(), true)]));
            assert!(!found(&exporter, &seed));
        }
        let log = exporter.log();
        assert_eq!(log.matches(&format!("the nodes of {seed} are unknown: ")).count(), 1, "{log}");
    }
}

#[test]
fn unreachable_cluster_is_displayed_as_one_server_that_is_down() {
    let exporter = Exporter::start(&["--cluster", "redis://127.0.0.1:1"], &[]);
    assert!(!found(&exporter, "127.0.0.1:1"));
    assert_eq!(exporter.up(), BTreeMap::from([("127.0.0.1:1".to_owned(), false)]));
}

#[test]
fn tls_needs_a_certificate_of_the_configured_authority() {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |line: &str| {
        let words = line.split(' ').map(|word| word.replace('~', " "));
        let output = Command::new("openssl")
            .args(words)
            .current_dir(folder.path())
            .output()
            .expect("openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority -days 2"));
    openssl(&format!(
        "req {key} -keyout key -out request -subj /CN=server -addext subjectAltName=IP:127.0.0.1"
    ));
    openssl(
        "x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -out cert -days 2 \
             -copy_extensions copy"
            .replace("             ", "")
            .as_str(),
    );
    let port = support::server::free_port();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let _server = Server::setup()
        .line(&format!("tls-port {port}"))
        .line(&format!("tls-cert-file {}", path("cert")))
        .line(&format!("tls-key-file {}", path("key")))
        .line("tls-auth-clients no")
        .start();
    let (name, url) = (format!("127.0.0.1:{port}"), format!("rediss://127.0.0.1:{port}"));
    let trusting = Exporter::start(&["--server", &url], &[("SSL_CERT_FILE", &path("ca.pem"))]);
    assert_eq!(trusting.up(), BTreeMap::from([(name.clone(), true)]), "{}", trusting.log());
    let wary = Exporter::of_servers(&[&url]);
    assert_eq!(wary.up(), BTreeMap::from([(name, false)]), "{}", wary.log());
}

/// Returns the elements of a list in the compose file.
fn compose_list(service: &str, keys: &[&str]) -> Vec<String> {
    let text =
        include_str!("../../deploy/compose.yaml").replace("${METRICS_PASSWORD:?choose one}", "pw");
    let documents = Yaml::load_from_str(&text).expect("YAML");
    let service = &documents[0]["services"][service];
    let list = keys.iter().fold(service, |node, key| &node[*key]).as_sequence().expect("a list");
    list.iter().map(|word| word.as_str().expect("a text").to_owned()).collect()
}

#[test]
fn compose_server_accepts_calls_reports_healthy_and_admits_the_exporter() {
    let folder = tempfile::tempdir().unwrap();
    let module = module::path().display().to_string();
    let installed = "/usr/lib/redis/modules/libredis_throttle.so";
    let mut words: Vec<_> = compose_list("limiter", &["command"]);
    assert_eq!(words.remove(0), "valkey-server");
    words.iter_mut().for_each(|word| *word = word.replace(installed, &module));
    let port = free_port().to_string();
    let mut server = Command::new(std::env::var("SERVER").unwrap_or("redis-server".to_owned()))
        .args(words)
        .args(["--port", &port, "--bind", "127.0.0.1", "--dir"])
        .arg(folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("a server");
    let exporter = Exporter::of_servers(&[&format!("redis://metrics:pw@127.0.0.1:{port}")]);
    let is_up = || {
        let ended = server.try_wait().expect("a child can be waited for");
        exporter.up()[&format!("127.0.0.1:{port}")].then_some(()).or(ended.map(|_| ()))
    };
    eventually("the server is up, or has ended", is_up);
    let is_up = exporter.up()[&format!("127.0.0.1:{port}")];
    let check = compose_list("limiter", &["healthcheck", "test"]);
    assert_eq!(check[..2], ["CMD", "valkey-cli"]);
    let healthy = Command::new("redis-cli").args(["-p", &port]).args(&check[2..]).output();
    // Sends SHUTDOWN first, because the started process may be a script around the server.
    let _ = Command::new("redis-cli").args(["-p", &port, "SHUTDOWN", "NOSAVE"]).output();
    let _ = server.kill();
    let _ = server.wait();
    assert!(is_up, "{}", exporter.log());
    let healthy = healthy.expect("redis-cli");
    assert!(healthy.status.success(), "{healthy:?}");
}
