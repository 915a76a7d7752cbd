//! Calls whose cost is given back if their caller does not use it.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::net::budget::Budget;
use crate::rules::item::{Keyed, Owned};
use crate::wire::words::Verb;
use crate::{Item, Limiter};

/// Allowed calls of a caller that may not act on them. Dropping them refunds them in a task.
pub(crate) struct Taken {
    limiter: Limiter,
    calls: Vec<Owned>,
}

impl Taken {
    pub fn new(limiter: &Limiter) -> Self {
        Self { limiter: limiter.whole(), calls: Vec::new() }
    }

    /// Adds a call that was allowed.
    pub fn add(&mut self, item: Item<'_>) {
        // A call that was sent has a key.
        let call = item.keyed(&self.limiter.0.keys).ok();
        self.calls.extend(call.map(|call| Owned::new(&item, &call)));
    }

    /// Keeps the calls, because the caller acts on them.
    pub fn keep(mut self) {
        self.calls.clear();
    }

    /// Refunds the calls, and waits for the replies within the caller's time. The refunds continue
    /// after that, and if this future is dropped.
    pub async fn give_back(mut self, budget: &Budget) {
        if let Some(refunds) = self.refunds() {
            // The task fails if the runtime shuts down; no caller waits then.
            let _ = timeout(budget.left(), refunds).await;
        }
    }

    fn refunds(&mut self) -> Option<JoinHandle<()>> {
        let (limiter, calls) = (self.limiter.clone(), std::mem::take(&mut self.calls));
        let runtime = Handle::try_current().ok().filter(|_| !calls.is_empty())?;
        Some(runtime.spawn(async move {
            for Owned { rule, subject, key, cost, .. } in calls {
                let call = Keyed::of_cost(&rule, key, cost);
                // Without a reply the units stay taken. The limit is then too strict, never too
                // lenient.
                let _ = limiter.change(Verb::Refund, &call, &subject, &limiter.budget()).await;
            }
        }))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.refunds();
    }
}
