//! Changes while requests come in: none of them may lose its decision.

use std::fs;
use std::time::Duration;

use crate::chain::{Chain, Envoy, UNDER_LOAD, envoy_program, example};
use crate::gateway::{Gateway, Setup};
use crate::load::Load;
use crate::server::{Server, until};

#[tokio::test]
async fn reload_under_load_loses_no_decision() {
    let Some(chain) = Chain::start(UNDER_LOAD, 1).await else { return };
    let load = Load::start(chain.envoy.port());
    let file = chain.folder.path().join("limits.yaml");
    let limits = example("limits.yaml", UNDER_LOAD.limits);
    for burst in 1..=10 {
        // A broken file in between leaves the old one in force.
        fs::write(&file, limits.replace("GCRA 20", "GCRA")).expect("a file");
        let text = limits.replace("GCRA 20 20 60", &format!("GCRA {burst} {burst} 60"));
        if burst % 2 == 0 {
            fs::write(&file, text).expect("a file");
        } else {
            let next = chain.folder.path().join("next");
            fs::write(&next, text).expect("a file");
            fs::rename(next, &file).expect("a file");
        }
        let policy = format!("\"route_search.user\";q={burst};");
        let in_force = async || {
            let response = chain.envoy.get("/search", "probe").await;
            response.field("ratelimit-policy").starts_with(&policy)
        };
        until("the file is in force", in_force).await;
    }
    load.stop(&chain.envoy).await;
}

#[tokio::test]
async fn rolling_restart_of_two_gateways_loses_no_decision() {
    let Some(mut chain) = Chain::start(UNDER_LOAD, 2).await else { return };
    let load = Load::start(chain.envoy.port());
    for gateway in &mut chain.gateways {
        gateway.terminate().await;
        let healthy = async || chain.envoy.count("cluster.gateway.membership_healthy").await;
        until("Envoy knows", async || healthy().await == 1).await;
        gateway.begin().await;
        until("Envoy knows", async || healthy().await == 2).await;
    }
    load.stop(&chain.envoy).await;
}

#[tokio::test]
async fn closing_old_connections_under_load_loses_no_decision() {
    let Some(program) = envoy_program() else { return };
    let redis = Server::start().await;
    let setup = Setup { connection_age: Duration::from_millis(50), ..Setup::default() };
    let limits = example("limits.yaml", UNDER_LOAD.limits).replace("domain: api\n", "");
    let gateway = Gateway::with(redis.client(), &limits, setup).await;
    let folder = tempfile::tempdir().expect("a folder");
    let ports = [gateway.address.port()];
    let envoy = Envoy::start(&program, &ports, folder.path(), UNDER_LOAD.envoy).await;
    let load = Load::start(envoy.port());
    let opened = async || envoy.count("cluster.gateway.upstream_cx_total").await;
    until("many connections were closed", async || opened().await > 20).await;
    load.stop(&envoy).await;
}
