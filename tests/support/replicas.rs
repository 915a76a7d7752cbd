//! Servers that replicate from each other.

use super::{Server, eventually};

/// Starts a replica of the server, and waits until it has received everything written so far.
pub fn replica_of(primary: &Server) -> Server {
    replica_with(primary, Server::setup())
}

/// Starts a replica with this setup, and waits until it has received everything written so far.
pub fn replica_with(primary: &Server, setup: super::server::Setup) -> Server {
    let replica = setup.line(&format!("replicaof 127.0.0.1 {}", primary.port())).start();
    wait_for_offset(primary, &replica);
    replica
}

/// Waits until the replica has received everything its primary has sent.
pub fn wait_for_offset(primary: &Server, replica: &Server) {
    let (mut of_primary, mut of_replica) = (primary.client(), replica.client());
    eventually("the replica has caught up", || {
        let state = of_replica.info("replication");
        let up = state.get("master_link_status").is_some_and(|status| status == "up");
        let offset = of_primary.info_number("replication", "master_repl_offset").to_string();
        (up && state["slave_repl_offset"] == offset).then_some(())
    });
}
