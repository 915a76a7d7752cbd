//! The program with the files that users copy: those of the page, of `deploy/` and of `examples/`.

#[path = "../../clients/rust/redis-throttle-client/tests/live/server.rs"]
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use redis_throttle_client::Backend;
use server::Server;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs the program, which must succeed without a warning. Returns its output.
fn output(about: &str, arguments: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_redis-throttle-gateway"));
    let output = program.args(arguments).output().expect("the gateway");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{about}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Runs `--check` with further arguments. Returns the commands of the samples.
fn checked(about: &str, arguments: &[&str]) -> String {
    output(about, &[&["--check"], arguments].concat())
}

/// Checks the text of a file.
fn checked_text(about: &str, text: &str) -> String {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
    fs::write(file.path(), text).expect("a file");
    checked(about, &["--config", file.path().to_str().expect("UTF-8")])
}

/// Returns the fenced blocks of YAML in docs/gateway.md that are files of the gateway.
fn blocks_of_the_page(page: &str) -> Vec<&str> {
    let fenced = page.split("\n```yaml\n").skip(1);
    let blocks = fenced.map(|rest| rest.split("```").next().expect("the end of a block"));
    blocks.filter(|block| block.starts_with("domain: ")).collect()
}

#[test]
fn files_of_the_page_load_and_have_the_keys_that_it_names() {
    let page = text("docs/gateway.md");
    let blocks = blocks_of_the_page(&page);
    assert!(blocks.len() >= 3, "{}", blocks.len());
    let commands: String = blocks.iter().map(|block| checked_text(block, block)).collect();
    let named = page.split('`').filter(|name| name.starts_with("rl:"));
    let keys: Vec<_> = named.map(|name| name.replace("|ann", "|sample")).collect();
    assert!(keys.len() >= 2, "{keys:?}");
    for key in keys {
        assert!(commands.contains(&format!(" {key} ")), "{key}:\n{commands}");
    }
}

#[test]
fn files_of_deploy_and_examples_load() {
    for path in ["deploy/gateway/limits.yaml", "examples/envoy/limits.yaml"] {
        let file = root().join(path);
        checked(path, &["--config", file.to_str().expect("UTF-8")]);
    }
}

#[tokio::test]
async fn server_loads_the_policies_that_are_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (limits, policies) = (file("edge.yaml"), file("policies"));
    let tree = "domain: edge
descriptors:
- {key: ip, rate_limit: {unit: minute, requests_per_unit: 9}, shadow_mode: true}
- {key: ip, value: \"10.*\", rate_limit: {unlimited: true}}
- {key: to, value: \"x*\", rate_limit: {unit: hour, requests_per_unit: 5, algorithm: gcra}}
";
    fs::write(&limits, tree).expect("a file");
    let printed = output("the policies", &["--print-policies", "--config", &limits]);
    fs::write(&policies, &printed).expect("a file");
    let redis = Server::of(Backend::Module, &["--rl.policy-file", &policies]).await;
    let listed: Vec<String> = redis.query(&["RL.POLICY", "LIST"]).await.expect("policies");
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!(listed[0], "ip SHADOW FIXED 9 1m ALIGNED");
    assert!(listed[1].starts_with("to_x") && listed[1].ends_with(" GCRA 5 5 1h"), "{listed:?}");
}

/// Returns the lines below the line `heading` that are indented further, without their common
/// indentation.
fn indented(text: &str, heading: &str) -> String {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut lines = text.lines().skip_while(|line| line.trim() != heading);
    let outer = depth(lines.next().unwrap_or_else(|| panic!("no {heading}")));
    let below: Vec<_> = lines.take_while(|line| depth(line) > outer).collect();
    let inner = below.iter().map(|line| depth(line)).min().unwrap_or(0);
    below.iter().map(|line| format!("{}\n", &line[inner..])).collect()
}

#[test]
fn kubernetes_pod_accepts_its_arguments_and_limits() {
    let manifests = text("deploy/gateway/kubernetes.yaml");
    let folder = tempfile::tempdir().expect("a folder");
    let limits = indented(&manifests, "api.yaml: |");
    fs::write(folder.path().join("api.yaml"), &limits).expect("a file");
    let mounted = folder.path().to_str().expect("UTF-8");
    let listed = indented(&manifests, "args:").replace("/etc/redis-throttle-gateway", mounted);
    let arguments: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    assert!(arguments.contains(&format!("--config={mounted}").as_str()), "{arguments:?}");
    let commands = checked("the arguments of the pod", &arguments);
    assert_eq!(commands.lines().count(), limits.matches("match:").count(), "{commands}");
}

#[test]
fn container_accepts_the_arguments_of_its_image() {
    let recipe = text("deploy/Dockerfile").replace("\\\n", "");
    let command = recipe.lines().rev().find_map(|line| line.strip_prefix("ENTRYPOINT "));
    let command = command.expect("the image of the gateway, which is the last");
    let words: Vec<_> = command.split('"').skip(1).step_by(2).collect();
    assert_eq!(words[0], "redis-throttle-gateway");
    let limits = root().join("deploy/gateway/limits.yaml");
    let limits = limits.to_str().expect("UTF-8");
    let is_config = |word: &&str| *word == "/etc/redis-throttle-gateway";
    assert!(words.iter().any(is_config), "{words:?}");
    let named = words[1..].iter().map(|word| if is_config(word) { limits } else { word });
    checked("the arguments of the image", &named.collect::<Vec<_>>());
}
