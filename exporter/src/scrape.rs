//! A scrape: queries the servers and builds the page.

use super::arguments::Arguments;
use super::cluster::Cluster;
use super::deadline::Deadline;
use super::page::Page;
use super::server::{Server, query_all};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The servers and clusters that are queried at each scrape.
pub struct Exporter {
    servers: Vec<Arc<Server>>,
    clusters: Mutex<Vec<Cluster>>,
    /// The time when the last scrape began, and the page of that scrape while a client still reads
    /// it. The lock is held for a whole scrape, while other threads query the servers and parse
    /// their replies.
    last: Mutex<Option<(Instant, Weak<String>)>>,
    timeout: Duration,
}

impl Exporter {
    /// Creates an exporter without connecting yet, because a server may start later.
    ///
    /// # Errors
    ///
    /// Returns a reason if an address is unusable or named twice.
    pub fn new(arguments: Arguments) -> Result<Self, String> {
        let mut names = HashSet::new();
        let mut open = |information| -> Result<Arc<Server>, String> {
            let server = Server::new(information)?;
            match names.insert(server.name.clone()) {
                true => Ok(server),
                false => Err(format!("{} is given twice: name each server once", server.name)),
            }
        };
        let servers =
            arguments.servers.into_iter().map(&mut open).collect::<Result<Vec<_>, _>>()?;
        let seeds = arguments.clusters.into_iter().map(&mut open);
        let clusters = seeds.map(|seed| seed.map(Cluster::new)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            servers,
            clusters: Mutex::new(clusters),
            last: Mutex::new(None),
            timeout: arguments.timeout,
        })
    }

    /// Returns the page of a scrape that began after this call. All calls made during a scrape wait
    /// until that scrape ends, and then share the next scrape.
    pub fn page(&self) -> Arc<String> {
        let called = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = last.as_ref().filter(|(begun, _)| *begun >= called);
        if let Some(page) = shared.and_then(|(_, page)| page.upgrade()) {
            return page;
        }
        let begun = Instant::now();
        let page = Arc::new(self.scrape());
        *last = Some((begun, Arc::downgrade(&page)));
        page
    }

    /// Scrapes all servers. Takes at most one timeout for each cluster, and one for all servers
    /// together, however many servers hang.
    fn scrape(&self) -> String {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut servers = self.servers.clone();
        let mut page = Page::default();
        page.begin("rl_up", "Whether the server replied to RL.METRICS: 1 yes, 0 no.");
        page.begin("rl_scrape_duration_seconds", "Time until the server's reply was parsed.");
        page.begin(
            "rl_exporter_discovery_up",
            "Whether a node listed the nodes of its cluster: 1 yes, 0 no.",
        );
        page.begin("rl_exporter_info", "The version of the exporter.");
        for cluster in clusters.iter_mut() {
            let (nodes, found) = cluster.nodes(self.timeout);
            let name = &cluster.seed.name;
            page.about("rl_exporter_discovery_up", "cluster", name, i32::from(found));
            for node in nodes {
                // A server that is both configured and in a cluster, or in two clusters, is listed
                // once.
                if !servers.iter().any(|server| server.name == node.name) {
                    servers.push(node);
                }
            }
        }
        let replies = query_all(&servers, &redis::cmd("RL.METRICS"), self.timeout, parse);
        page.about("rl_exporter_info", "version", env!("CARGO_PKG_VERSION"), 1);
        for (server, (reply, took)) in servers.iter().zip(replies) {
            let read = reply.map(|samples| page.add(samples));
            server.log(&read);
            page.about("rl_up", "server", &server.name, i32::from(read.is_ok()));
            let took_s = format_args!("{:.6}", took.as_secs_f64());
            page.about("rl_scrape_duration_seconds", "server", &server.name, took_s);
        }
        page.text()
    }
}

/// Parses the metrics of a server, and stops at the deadline.
fn parse(server: &Server, text: String, deadline: Deadline) -> Result<Page, String> {
    Page::parse(&server.name, &text, || deadline.check())
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::IntoConnectionInfo as _;

    #[test]
    fn parse_stops_once_the_deadline_has_passed() {
        let information = "redis://h:1".into_connection_info().expect("a URL");
        let server = Server::new(information).expect("a server");
        let parsed =
            |deadline| parse(&server, "rl_b 1\n".to_owned(), deadline).map(|page| page.text());
        let far = Deadline::after(Duration::MAX);
        assert_eq!(parsed(far).as_deref(), Ok("rl_b{server=\"h:1\"} 1\n"));
        let passed = Deadline::after(Duration::ZERO);
        assert_eq!(parsed(passed), Err(passed.unparsed()));
    }
}
