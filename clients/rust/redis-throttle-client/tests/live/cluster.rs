//! The limiter against a cluster of three nodes.

mod proxy;
mod server;

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::{Duration, Instant};

use proxy::Proxy;
use redis_throttle_client::{Backend, Cluster, Error, Limiter, Options, Reason, Rule, Source};
use server::{Server, backend, until};

const SLOTS: u32 = 16_384;
const CLUSTER: [&str; 4] = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn api() -> Rule {
    Rule::gcra("api", 6, 10, "60s").unwrap()
}

/// Starts three primaries that share the slots.
async fn three_nodes() -> Vec<Server> {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Server::with(&CLUSTER).await);
    }
    joined(&nodes).await;
    nodes
}

/// Starts three primaries that share the slots, each behind a proxy. Clients know only the proxies.
async fn three_nodes_behind_proxies() -> (Vec<Server>, Vec<Proxy>) {
    let (mut nodes, mut proxies) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let proxy = Proxy::start().await;
        let port = proxy.port.to_string();
        let options = [&CLUSTER[..], &["--cluster-announce-port", &port]].concat();
        let node = Server::with(&options).await;
        let bus = (node.port + 10_000).to_string();
        node.run(&["CONFIG", "SET", "cluster-announce-bus-port", &bus]).await;
        proxy.lead_to(node.port);
        nodes.push(node);
        proxies.push(proxy);
    }
    joined(&nodes).await;
    (nodes, proxies)
}

/// Joins three nodes to a cluster.
async fn joined(nodes: &[Server]) {
    for (at, node) in (0..).zip(nodes) {
        let (first, last) = (at * SLOTS / 3, (at + 1) * SLOTS / 3 - 1);
        let slots = ["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()];
        node.run(&slots).await;
        node.run(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port.to_string()]).await;
    }
    until("the cluster is whole", async || {
        for node in nodes {
            let info: String = node.query(&["CLUSTER", "INFO"]).await.unwrap();
            if !info.contains("cluster_state:ok") || !info.contains("cluster_known_nodes:3") {
                return false;
            }
        }
        true
    })
    .await;
}

/// Starts a replica of `owner`, which the other nodes then know.
async fn replica_of(owner: &Server, others: &[Server]) -> Server {
    let replica = Server::with(&CLUSTER).await;
    replica.run(&["CLUSTER", "MEET", "127.0.0.1", &others[0].port.to_string()]).await;
    let identity: String = owner.query(&["CLUSTER", "MYID"]).await.unwrap();
    until("the replica knows its primary", async || {
        let known: String = replica.query(&["CLUSTER", "NODES"]).await.unwrap();
        known.contains(&identity)
    })
    .await;
    replica.run(&["CLUSTER", "REPLICATE", &identity]).await;
    until("the others know the replica", async || {
        let info: String = replica.query(&["INFO", "replication"]).await.unwrap();
        let known: String = others[0].query(&["CLUSTER", "NODES"]).await.unwrap();
        info.contains("master_link_status:up") && known.contains("slave")
    })
    .await;
    replica
}

/// Returns a limiter after its cluster has replied.
async fn found(node: &Server, options: Options) -> Limiter {
    let cluster = Cluster::new([node.url()]).unwrap();
    let limiter = Limiter::with_options(cluster, options).unwrap();
    until("the cluster replies", async || limiter.ready().await.is_ok()).await;
    limiter
}

#[tokio::test]
async fn call_that_is_not_polled_keeps_no_other_from_reading_the_slots() {
    let cluster = Cluster::new(["redis://127.0.0.1:1"]).unwrap();
    let options = Options::default().timeout(ms(100)).breaker_failures(1).breaker_pause(ms(50));
    let (limiter, api) = (Limiter::with_options(cluster, options).unwrap(), api());
    let reason = async || limiter.check(api.of("42")).await.unwrap().reason;
    until("the breaker opens", async || reason().await == Some(Reason::Circuit)).await;
    let mut held = None;
    until("a probe waits for the slots", async || {
        let mut probe = Box::pin(limiter.check(api.of("42")));
        let ended = poll_fn(|context| Poll::Ready(probe.as_mut().poll(context).is_ready())).await;
        held = Some(probe);
        !ended
    })
    .await;
    until("another call reads them", async || reason().await != Some(Reason::Circuit)).await;
    drop(held);
}

#[tokio::test]
async fn node_that_names_no_slots_is_passed_over() {
    let nodes = three_nodes().await;
    let empty = Server::with(&CLUSTER).await;
    let cluster = Cluster::new([empty.url(), nodes[0].url()]).unwrap();
    let options = Options::default().timeout(ms(10_000));
    let limiter = Limiter::with_options(cluster, options).unwrap();
    assert_eq!(source(&limiter, &api(), "42").await, Source::Server);
}

async fn sum(nodes: &[Server], section: &str, name: &str) -> u64 {
    let mut sum = 0;
    for node in nodes {
        sum += node.info(section, name).await;
    }
    sum
}

async fn sum_decided(nodes: &[Server], command: &str) -> u64 {
    let mut sum = 0;
    for node in nodes {
        sum += node.decided(command).await;
    }
    sum
}

async fn moved(nodes: &[Server]) -> u64 {
    sum(nodes, "errorstats", "errorstat_MOVED").await
}

/// Returns true if the node serves the key without a redirection.
async fn has(node: &Server, key: &str) -> bool {
    node.query::<redis::Value>(&["EXISTS", key]).await.is_ok()
}

async fn source(limiter: &Limiter, rule: &Rule, subject: &str) -> Source {
    limiter.check(rule.of(subject)).await.unwrap().source
}

#[tokio::test]
async fn limiter_sends_every_call_to_the_right_node() {
    let nodes = three_nodes().await;
    let limiter = found(&nodes[0], Options::default().timeout(ms(10_000))).await;
    let (api, before) = (api(), moved(&nodes).await);
    for subject in 0..60 {
        assert_eq!(source(&limiter, &api, &subject.to_string()).await, Source::Server);
    }
    // No single node served all calls.
    let mut decided = Vec::new();
    for node in &nodes {
        decided.push(node.decided("rl.gcra").await);
    }
    assert!(decided.iter().all(|calls| (1..60).contains(calls)), "{decided:?}");
    // Without the module, each node is searched first.
    let looked = if backend() == Backend::Module { 0 } else { 6 };
    let calls: u64 = decided.iter().sum();
    assert!((60..=60 + looked).contains(&calls), "{decided:?}");

    let bucket = Rule::token_bucket("t", 9, 9, "9s").unwrap();
    let both = [api.of("1"), bucket.of("2")];
    let decided = sum_decided(&nodes, "rl.all").await;
    for tag in ["acme", "umbrella", "initech", "hooli"] {
        assert!(limiter.check_all(&both, Some(tag)).await.unwrap().allowed);
    }
    assert_eq!(sum_decided(&nodes, "rl.all").await - decided, 4);
    // Without a tag, the keys are in two slots, and the server rejects the call.
    let apart = limiter.check_all(&both, None).await.unwrap_err();
    assert!(matches!(apart, Error::CommandRejected { .. }), "{apart}");

    let (once, jobs) =
        (Rule::fixed("once", 1, "9s").unwrap(), Rule::lease("jobs", 1, "60s").unwrap());
    let each = limiter.check_each(&[api.of("e1"), once.of("e2").cost(2)]).await.unwrap();
    assert!(!each.allowed);
    assert_eq!(limiter.peek(api.of("e1").cost(0)).await.unwrap().remaining, 6);
    for subject in 0..9 {
        let subject = subject.to_string();
        let held = limiter.lease(jobs.of(&subject)).await.unwrap();
        assert!(held.renew().await.unwrap());
        held.release().await;
        limiter.forget(jobs.of(&subject)).await.unwrap();
    }
    assert_eq!(moved(&nodes).await, before);
}

/// The back end that a concurrent call finds may be that of another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limiter_loads_a_library_flushed_on_all_nodes_during_concurrent_calls() {
    let nodes = three_nodes().await;
    let options = || Options::default().timeout(ms(10_000));
    let many = Rule::gcra("many", 1000, 1, "1h").unwrap();
    let warm = found(&nodes[0], options()).await;
    for round in 0..6 {
        for node in &nodes {
            if backend() == Backend::Functions {
                node.run(&["FUNCTION", "FLUSH"]).await;
            }
            node.run(&["SCRIPT", "FLUSH"]).await;
        }
        // The same with a client that does not know the slots yet.
        let cold = Cluster::new([nodes[0].url()]).unwrap();
        let cold = Limiter::with_options(cold, options()).unwrap();
        let limiter = if round % 2 == 0 { &warm } else { &cold };
        if round % 2 == 1 {
            let is_there = async || limiter.forget(many.of("none")).await.is_ok();
            until("the driver is there", is_there).await;
        }
        let calling = (0..60).map(|subject| {
            let (limiter, many) = (limiter.clone(), many.clone());
            tokio::spawn(async move { limiter.check(many.of(&subject.to_string())).await })
        });
        for call in calling.collect::<Vec<_>>() {
            let decision = call.await.unwrap().unwrap();
            assert_eq!((decision.source, decision.remaining), (Source::Server, 999 - round));
        }
    }
}

#[tokio::test]
async fn limiter_decides_again_after_a_failover() {
    let mut nodes = three_nodes().await;
    let (api, key) = (api(), "rl:api:f");
    let mut at = 0;
    for (index, node) in nodes.iter().enumerate() {
        if has(node, key).await {
            at = index;
        }
    }
    let mut owner = nodes.remove(at);
    let replica = replica_of(&owner, &nodes).await;

    let options = Options::default().timeout(ms(1000)).breaker_pause(ms(50)).breaker_failures(2);
    let limiter = found(&nodes[0], options).await;
    assert_eq!(source(&limiter, &api, "f").await, Source::Server);
    let mut elsewhere = Vec::new();
    for subject in 0..40 {
        if has(&nodes[0], &format!("rl:api:{subject}")).await {
            elsewhere.push(subject.to_string());
        }
    }
    owner.end();
    for _ in 0..5 {
        assert_eq!(source(&limiter, &api, "f").await, Source::Error);
    }
    // The failed node's circuit breaker is open; those of the others are not.
    for subject in &elsewhere {
        assert_eq!(source(&limiter, &api, subject).await, Source::Server, "{subject}");
    }
    until("the replica has taken over", async || {
        source(&limiter, &api, "f").await == Source::Server
    })
    .await;
    // The driver needs time to connect to the replica. From then on, no call is redirected.
    nodes.push(replica);
    let undisturbed = async || {
        let before = moved(&nodes).await;
        for subject in 100..130 {
            if source(&limiter, &api, &subject.to_string()).await != Source::Server {
                return false;
            }
        }
        moved(&nodes).await == before
    };
    until("nothing is redirected", undisturbed).await;
    assert!(undisturbed().await);
}

#[tokio::test]
async fn limiter_leaves_silent_connections_and_a_demoted_primary() {
    let (mut nodes, mut proxies) = three_nodes_behind_proxies().await;
    let (api, key) = (api(), "rl:api:f");
    let mut at = 0;
    for (index, node) in nodes.iter().enumerate() {
        if has(node, key).await {
            at = index;
        }
    }
    let cluster = Cluster::new(proxies.iter().map(Proxy::url)).unwrap();
    let limiter = Limiter::new(cluster);
    let decided = async |limiter: &Limiter| source(limiter, &api, "f").await == Source::Server;
    until("the cluster decides", async || decided(&limiter).await).await;
    let (owner, proxy) = (nodes.remove(at), proxies.remove(at));
    let healed = async |what| {
        let began = Instant::now();
        until(what, async || decided(&limiter).await).await;
        // As long as for one server: see `HEALED_WITHIN`.
        assert!(began.elapsed() < Duration::from_secs(6), "{what}: {:?}", began.elapsed());
    };

    // The connection to the owner falls silent, and new ones are forwarded.
    proxy.silence();
    assert_eq!(source(&limiter, &api, "f").await, Source::Error);
    healed("a new connection decides").await;

    // It falls silent again, and the owner's address leads to nothing until a replica takes over.
    let replica = replica_of(&owner, &nodes).await;
    proxy.lead_to(0);
    proxy.silence();
    for _ in 0..6 {
        assert_eq!(source(&limiter, &api, "f").await, Source::Error);
    }
    replica.run(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    until("the others know the new primary", async || {
        let known: String = nodes[0].query(&["CLUSTER", "NODES"]).await.unwrap();
        let owner = format!(":{}@", proxy.port);
        known.lines().any(|node| node.contains(&owner) && node.contains("slave"))
    })
    .await;
    healed("the new primary decides").await;
}
