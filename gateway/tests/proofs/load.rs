//! Requests without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;

use crate::wire::get;

const CLIENTS: usize = 4;

/// Clients that send requests until they are stopped.
pub struct Load {
    stopped: Arc<AtomicBool>,
    clients: Vec<JoinHandle<usize>>,
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
                    assert!(matches!(reply.status, 200 | 429), "{reply:?}");
                    // Without a decision there would be none.
                    assert!(reply.field("ratelimit").contains("route_search.user"), "{reply:?}");
                    answers += 1;
                }
                answers
            })
        });
        Self { clients: clients.collect(), stopped }
    }

    /// Stops the clients, and returns the number of their answers.
    pub async fn stop(self) -> usize {
        self.stopped.store(true, Ordering::Relaxed);
        let mut answers = 0;
        for client in self.clients {
            answers += client.await.expect("only decisions");
        }
        answers
    }
}
