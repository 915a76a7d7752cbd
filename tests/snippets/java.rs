//! Runs programs in Java with the drivers that `java/pom.xml` pins: calls with the default options
//! of a driver and with those of the page, and Redisson's `RGcra`.

use super::lossy::{Loss, LossyWay};
use super::{decisions, pages, run_and_count};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use support::cluster::Cluster;
use support::{BASE_US, Server, eventually};

/// Builds the programs of the folder and returns their class path.
///
/// # Panics
///
/// Panics if Maven is missing or a program is wrong; the message is what Maven says.
fn class_path() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snippets/java");
        let mut build = Command::new("timeout");
        build.args(["300", "mvn", "-B", "-q", "-C", "-Dspotless.check.skip", "compile"]);
        build.current_dir(&folder);
        let output = build.output().expect("timeout can be run");
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "Maven and Java 17 are needed to build tests/snippets/java:\n{said}"
        );
        let target = folder.join("target");
        format!("{0}/classes:{0}/dependency/*", target.display())
    })
}

/// Runs a program and returns its output.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = pages::within_deadline("java");
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path()]);
    command.arg(format!("snippets.{program}")).args(arguments).stdin(Stdio::null());
    let output = command.output().expect("Java can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?} failed:\n{errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Makes one call through a driver whose replies are lost. Returns the number of calls that the
/// server decided, and how the call ended.
pub fn one_call(driver: &str, loss: Loss) -> (i64, String) {
    class_path();
    run_and_count(loss, |port| run("Calls", &[driver, &port.to_string(), "1"]))
}

/// Makes one call through a cluster client that loses the replies of the key's node. Returns the
/// number of calls that the nodes decided, and how the call ended.
pub fn one_call_in(cluster: &Cluster, driver: &str, loss: Loss) -> (i64, String) {
    class_path();
    let decided = || cluster.nodes.iter().map(decisions).sum::<i64>();
    let node = &cluster.nodes[cluster.settled_owner("user:0")];
    let before = decided();
    let way = LossyWay::to(node.port(), loss);
    let (port, lossy) = (node.port().to_string(), way.port.to_string());
    let printed = run("Calls", &[driver, &port, "1", &lossy]);
    let sent = eventually("the program has left", || way.calls_when_all_have_left());
    let sent = before + i64::try_from(sent).expect("a few calls");
    eventually("the node has decided all it got", || (decided() >= sent).then_some(()));
    (decided() - before, printed)
}

#[test]
fn rgcra_of_redisson_gets_the_replies_that_the_page_on_redis_gcra_shows() {
    let calls = pages::calls("docs/alternatives/redis-gcra.md", "## The command");
    let server = Server::setup().with_tcp().line("rl.gcra yes").start();
    server.client().freeze(BASE_US);
    let (mut counts, mut expected) = (Vec::new(), String::new());
    for (call, reply) in &calls {
        let numbers = call.strip_prefix("GCRA user:42 5 10 60").expect("one rule");
        counts.push(numbers.strip_prefix(" TOKENS ").unwrap_or("1"));
        expected += &format!("{reply}\n{reply}\n");
    }
    let port = server.port().to_string();
    let arguments = [&[port.as_str(), "user:42", "5", "10", "60"], counts.as_slice()].concat();
    assert_eq!(run("Gcra", &arguments), expected);
    let decided = |name| server.client().info_number("rl", name);
    let results = (decided("rl_redis_gcra_allowed"), decided("rl_redis_gcra_denied"));
    assert_eq!(results, (4, 4), "each form of RGcra has called the command");
}
