//! Requests without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;

use crate::chain::Envoy;
use crate::wire::{Response, get};

const CLIENTS: usize = 4;

/// Clients that send requests until they are stopped.
pub struct Load {
    stopped: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<usize, Response>>>,
}

impl Load {
    pub fn start(port: u16) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let clients = (0..CLIENTS).map(|client| {
            let stopped = stopped.clone();
            tokio::spawn(async move {
                let mut responses = 0;
                while !stopped.load(Ordering::Relaxed) {
                    let user = format!("{client}-{}", responses / 5);
                    let response = get(port, "/search", &[("x-user", &user)]).await;
                    // Without a decision, there is no such field.
                    let is_decided = response.field("ratelimit").contains("route_search.user");
                    if !is_decided || !matches!(response.status, 200 | 429) {
                        return Err(response);
                    }
                    responses += 1;
                }
                Ok(responses)
            })
        });
        Self { clients: clients.collect(), stopped }
    }

    /// Stops the clients. Each response must carry a decision.
    pub async fn stop(self, envoy: &Envoy) {
        self.stopped.store(true, Ordering::Relaxed);
        for client in self.clients {
            match client.await.expect("a client") {
                Ok(responses) => assert!(responses > 20, "{responses}"),
                Err(response) => panic!("{response:?}\n{}", envoy.counts().await),
            }
        }
        assert_eq!(envoy.undecided().await, 0);
    }
}
