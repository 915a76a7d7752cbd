//! Which servers a cluster has now: any node knows, by `CLUSTER NODES`.

use super::server::{Server, ask_all};
use redis::{ConnectionAddr, ConnectionInfo};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A cluster, known by one of its nodes at first.
pub struct Cluster {
    /// The node that was named, which is not always one of the cluster's own addresses.
    seed: Arc<Server>,
    /// The nodes as they were last told, the one that told in front.
    nodes: Vec<Arc<Server>>,
}

impl Cluster {
    /// A cluster that nobody has asked yet.
    pub fn new(seed: Arc<Server>) -> Self {
        Self { seed, nodes: Vec::new() }
    }

    /// Asks one node after the other which nodes there are, until one tells or `timeout` is over.
    /// When none does, they are those of the last time, or only the one that was named.
    pub fn nodes(&mut self, timeout: Duration) -> Vec<Arc<Server>> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("NODES");
        let started = Instant::now();
        let candidates: Vec<_> = self.nodes.iter().chain([&self.seed]).cloned().collect();
        for candidate in candidates {
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            // A node that hangs must leave time to ask another.
            let patience = left.min(timeout / 2).max(Duration::from_millis(1));
            let answers = ask_all(std::slice::from_ref(&candidate), &command, patience);
            if let Some((Ok(text), _)) = answers.into_iter().next() {
                let told = self.read(&text, candidate.information());
                if !told.is_empty() {
                    self.nodes = told;
                    return self.nodes.clone();
                }
            }
            // Next time the others come first.
            if self.nodes.first().is_some_and(|first| Arc::ptr_eq(first, &candidate)) {
                self.nodes.rotate_left(1);
            }
        }
        if self.nodes.is_empty() { vec![Arc::clone(&self.seed)] } else { self.nodes.clone() }
    }

    /// The nodes of a text, those that are known already with the connection they have.
    fn read(&self, text: &str, asked: &ConnectionInfo) -> Vec<Arc<Server>> {
        let mut nodes: Vec<Arc<Server>> = Vec::new();
        for node in text.lines().filter_map(Node::read) {
            let Some(address) = node.address(asked.addr()) else { continue };
            let known = self.nodes.iter().find(|known| *known.information().addr() == address);
            let server = match known {
                Some(known) => Ok(Arc::clone(known)),
                None => Server::new(asked.clone().set_addr(address)),
            };
            // The node that told leads the list.
            let place = if node.is_myself { 0 } else { nodes.len() };
            if let Ok(server) = server {
                nodes.insert(place, server);
            }
        }
        nodes
    }
}

/// A line of `CLUSTER NODES`: `id ip:port@bus-port,hostname flags ...`.
#[derive(Debug, PartialEq, Eq)]
struct Node<'line> {
    ip: &'line str,
    hostname: &'line str,
    port: u16,
    is_myself: bool,
}

impl<'line> Node<'line> {
    /// None for a node whose address is not known yet, or not any more. One that fails is told, so
    /// that it is seen to be down.
    fn read(line: &'line str) -> Option<Self> {
        let mut words = line.split(' ');
        let (address, flags) = (words.nth(1)?, words.next()?);
        if flags.split(',').any(|flag| flag == "handshake" || flag == "noaddr") {
            return None;
        }
        let (address, rest) = address.split_once('@')?;
        let hostname = rest.split(',').nth(1).unwrap_or("");
        // An address of IPv6 has colons of its own.
        let (ip, port) = address.rsplit_once(':')?;
        let is_myself = flags.split(',').any(|flag| flag == "myself");
        let port = port.parse().ok().filter(|port| *port != 0)?;
        Some(Self { ip, hostname, port, is_myself })
    }

    /// Where to connect to, in the way the node that told was. A certificate is for a name; and a
    /// node that has never met another does not know its own address.
    fn address(&self, asked: &ConnectionAddr) -> Option<ConnectionAddr> {
        let named = |host: &str| {
            let host = if self.ip.is_empty() { host } else { self.ip };
            (host.to_owned(), self.port)
        };
        match asked {
            ConnectionAddr::Tcp(host, _) => {
                let (host, port) = named(host);
                Some(ConnectionAddr::Tcp(host, port))
            }
            ConnectionAddr::TcpTls { host, insecure, tls_params, .. } => {
                let (ip, port) = named(host);
                let host = if self.hostname.is_empty() { ip } else { self.hostname.to_owned() };
                let tls_params = tls_params.clone();
                Some(ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
aa 10.0.0.2:7001@17001,two master - 0 1 2 connected 0-5460
bb 10.0.0.1:7000@17000 myself,slave aa 0 1 3 connected
cc ::1:7002@17002,, master,fail - 1 1 4 disconnected 5461-16383
dd :0@0 master,noaddr - 1 1 4 disconnected
ee 10.0.0.5:7005@17005 handshake - 1 0 0 connected
";

    fn server(url: &str) -> Arc<Server> {
        Server::new(redis::IntoConnectionInfo::into_connection_info(url).unwrap()).unwrap()
    }

    fn names(seed: &str, text: &str) -> Vec<String> {
        let seed = server(seed);
        let information = seed.information().clone();
        let nodes = Cluster::new(seed).read(text, &information);
        nodes.iter().map(|node| node.name.clone()).collect()
    }

    #[test]
    fn the_nodes_of_a_cluster_are_those_with_an_address_and_who_told_is_first() {
        let expected = ["10.0.0.1:7000", "10.0.0.2:7001", "::1:7002"];
        assert_eq!(names("redis://seed:1", TEXT), expected);
        assert_eq!(names("redis://seed:1", "what\n\nis this"), Vec::<String>::new());
    }

    #[test]
    fn with_tls_a_node_is_called_by_the_name_on_its_certificate() {
        let expected = ["10.0.0.1:7000", "two:7001", "::1:7002"];
        assert_eq!(names("rediss://seed:1", TEXT), expected);
    }

    #[test]
    fn a_node_that_has_met_no_other_is_where_it_was_asked() {
        let alone = "aa :7000@17000 myself,master - 0 0 0 connected 0-16383\n";
        assert_eq!(names("redis://seed:1", alone), ["seed:7000"]);
    }

    #[test]
    fn every_node_is_asked_with_the_user_and_the_password_that_were_named() {
        let seed = server("redis://app:secret@seed:1");
        let information = seed.information().clone();
        for node in Cluster::new(seed).read(TEXT, &information) {
            let settings = node.information().redis_settings();
            assert_eq!((settings.username(), settings.password()), (Some("app"), Some("secret")));
            assert!(!node.name.contains("secret"));
        }
    }
}
