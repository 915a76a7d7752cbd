//! Requests without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;

use crate::chain::Envoy;
use crate::wire::{Reply, get};

const CLIENTS: usize = 4;

/// Clients that send requests until they are stopped.
pub struct Load {
    stopped: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<usize, Reply>>>,
}

impl Load {
    pub fn start(port: u16) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let clients = (0..CLIENTS).map(|client| {
            let stopped = stopped.clone();
            tokio::spawn(async move {
                let mut answers = 0;
                while !stopped.load(Ordering::Relaxed) {
                    let user = format!("{client}-{}", answers / 5);
                    let reply = get(port, "/search", &[("x-user", &user)]).await;
                    // Without a decision, there is no such field.
                    let is_decided = reply.field("ratelimit").contains("route_search.user");
                    if !is_decided || !matches!(reply.status, 200 | 429) {
                        return Err(reply);
                    }
                    answers += 1;
                }
                Ok(answers)
            })
        });
        Self { clients: clients.collect(), stopped }
    }

    /// Stops the clients. Each of their answers must be a decision.
    pub async fn stop(self, envoy: &Envoy) {
        self.stopped.store(true, Ordering::Relaxed);
        for client in self.clients {
            match client.await.expect("a client") {
                Ok(answers) => assert!(answers > 20, "{answers}"),
                Err(reply) => panic!("{reply:?}\n{}", envoy.counts().await),
            }
        }
        assert_eq!(envoy.undecided().await, 0);
    }
}
