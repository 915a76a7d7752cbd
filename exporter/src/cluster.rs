//! Finds the current nodes of a cluster: any node lists them in `CLUSTER NODES`.

use super::log::{LastState, write};
use super::server::{Server, query_all};
use redis::{ConnectionAddr, ConnectionInfo};
use std::sync::Arc;
use std::time::Duration;

/// A cluster, found through one of its nodes.
pub struct Cluster {
    /// The configured node. The cluster may list it under another address.
    pub seed: Arc<Server>,
    /// The nodes that the last successful search found, sorted by name.
    nodes: Vec<Arc<Server>>,
    last_state: LastState,
}

/// The reply of one node to `CLUSTER NODES`.
struct View {
    /// The name of the node that replied.
    myself: Option<String>,
    nodes: Vec<Arc<Server>>,
}

impl View {
    /// Returns true if the reply lists the node of this name.
    fn names(&self, node: &str) -> bool {
        self.nodes.iter().any(|named| named.name == node)
    }
}

impl Cluster {
    /// Creates a cluster without sending to a node yet.
    pub fn new(seed: Arc<Server>) -> Self {
        Self { seed, nodes: Vec::new(), last_state: LastState::default() }
    }

    /// Queries the configured node and all known nodes for the nodes of the cluster. Returns the
    /// nodes, and true if at least one node replied. If no node replies, returns the nodes known
    /// from earlier scrapes and false; without such nodes, only the configured node.
    pub fn nodes(&mut self, timeout: Duration) -> (Vec<Arc<Server>>, bool) {
        let mut command = redis::cmd("CLUSTER");
        command.arg("NODES");
        let mut candidates = vec![Arc::clone(&self.seed)];
        candidates.extend(self.nodes.iter().filter(|it| !Arc::ptr_eq(it, &self.seed)).cloned());
        let mut views = Vec::new();
        let mut reason = None;
        let replies = query_all(&candidates, &command, timeout, |_, text, _| Ok(text));
        for (node, (reply, _)) in candidates.iter().zip(replies) {
            let read = reply.map(|text| self.read(&text, node.information()));
            match read {
                Ok(view) if !view.nodes.is_empty() => views.push(view),
                Ok(_) => drop(reason.get_or_insert_with(|| "its reply lists no node".to_owned())),
                Err(error) => drop(reason.get_or_insert(error)),
            }
        }
        let nodes = union(&views);
        let found = match reason {
            Some(reason) if nodes.is_empty() => Err(reason),
            _ => Ok(()),
        };
        if self.last_state.changes(&found) {
            match &found {
                Err(reason) => {
                    write(&format!("the nodes of {} are unknown: {reason}", self.seed.name))
                }
                Ok(()) => write(&format!("the nodes of {} are known", self.seed.name)),
            }
        }
        if !nodes.is_empty() {
            self.nodes = nodes;
        }
        let known = match self.nodes.is_empty() {
            true => vec![Arc::clone(&self.seed)],
            false => self.nodes.clone(),
        };
        (known, found.is_ok())
    }

    /// Parses the reply of the node `source`. Nodes that are already known keep their connections.
    fn read(&self, text: &str, source: &ConnectionInfo) -> View {
        let mut view = View { myself: None, nodes: Vec::new() };
        for node in text.lines().filter_map(Node::read) {
            let Some(address) = node.address(source.addr()) else { continue };
            let mut known = self.nodes.iter().chain([&self.seed]);
            let server = match known.find(|known| *known.information().addr() == address) {
                Some(known) => Ok(Arc::clone(known)),
                None => Server::new(source.clone().set_addr(address)),
            };
            let Ok(server) = server else { continue };
            if node.is_myself {
                view.myself = Some(server.name.clone());
            }
            view.nodes.push(server);
        }
        view
    }
}

/// Returns the nodes of all replies, sorted by name. A node that no other node lists has left the
/// cluster, and may have joined another cluster. Its reply is used only if no replying node is
/// listed by another node.
fn union(views: &[View]) -> Vec<Arc<Server>> {
    let is_member = |view: &&View| {
        let myself = view.myself.as_deref();
        let others = views.iter().filter(|other| other.myself.as_deref() != myself);
        myself.is_some_and(|myself| others.into_iter().any(|other| other.names(myself)))
    };
    let mut believed: Vec<_> = views.iter().filter(is_member).collect();
    if believed.is_empty() {
        believed = views.iter().collect();
    }
    let mut nodes: Vec<_> = believed.into_iter().flat_map(|view| &view.nodes).cloned().collect();
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    nodes.dedup_by(|one, other| one.name == other.name);
    nodes
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
    /// Parses a line. Returns `None` for a node without a known address. A failing node is
    /// included, so that it is reported as down.
    fn read(line: &'line str) -> Option<Self> {
        let mut words = line.split(' ');
        let (address, flags) = (words.nth(1)?, words.next()?);
        if flags.split(',').any(|flag| flag == "handshake" || flag == "noaddr") {
            return None;
        }
        let (address, rest) = address.split_once('@')?;
        let hostname = rest.split(',').nth(1).unwrap_or("");
        // An IPv6 address has colons of its own.
        let (ip, port) = address.rsplit_once(':')?;
        let is_myself = flags.split(',').any(|flag| flag == "myself");
        let port = port.parse().ok().filter(|port| *port != 0)?;
        Some(Self { ip, hostname, port, is_myself })
    }

    /// Returns the address at which to connect to this node, with the transport of `source`, the
    /// node that replied. With TLS, the address has the host name, because a certificate is for a
    /// name. A node that has never met another node does not know its own address. Its host is then
    /// that of `source`.
    fn address(&self, source: &ConnectionAddr) -> Option<ConnectionAddr> {
        let named = |host: &str| {
            let host = if self.ip.is_empty() { host } else { self.ip };
            (host.to_owned(), self.port)
        };
        match source {
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
        let view = Cluster::new(seed).read(text, &information);
        union(&[view]).iter().map(|node| node.name.clone()).collect()
    }

    #[test]
    fn cluster_contains_every_listed_node_that_has_an_address() {
        let expected = ["10.0.0.1:7000", "10.0.0.2:7001", "::1:7002"];
        assert_eq!(names("redis://seed:1", TEXT), expected);
        assert_eq!(names("redis://seed:1", "what\n\nis this"), Vec::<String>::new());
    }

    /// Returns the names of the nodes that `union` returns. Each reply is given as the name of the
    /// node that replies, and the names of the other nodes that it lists.
    fn joined_names(views: &[(&str, &[&str])]) -> Vec<String> {
        let views: Vec<_> = views
            .iter()
            .map(|(myself, others)| {
                let names = [*myself].into_iter().chain(others.iter().copied());
                let nodes = names.map(|name| server(&format!("redis://{name}"))).collect();
                View { myself: Some((*myself).to_owned()), nodes }
            })
            .collect();
        union(&views).iter().map(|node| node.name.clone()).collect()
    }

    #[test]
    fn node_that_has_left_is_ignored_if_other_nodes_list_each_other() {
        // `d` was reset, or has joined another cluster. This also holds if `d` is the seed.
        let left = [("d:1", [].as_slice()), ("a:1", &["b:1"]), ("b:1", &["a:1"])];
        assert_eq!(joined_names(&left), ["a:1", "b:1"]);
        let joined = [("d:1", ["x:1"].as_slice()), ("a:1", &["b:1"]), ("b:1", &["a:1"])];
        assert_eq!(joined_names(&joined), ["a:1", "b:1"]);
        // `n` is new to most nodes, and `c` does not reply.
        let news = [("a:1", ["b:1", "c:1", "n:1"].as_slice()), ("b:1", &["a:1", "c:1"])];
        assert_eq!(joined_names(&news), ["a:1", "b:1", "c:1", "n:1"]);
        // No node lists another: a cluster of one, or of two of which one was reset.
        assert_eq!(joined_names(&[("a:1", &[])]), ["a:1"]);
        assert_eq!(joined_names(&[("a:1", &[]), ("d:1", &[])]), ["a:1", "d:1"]);
        // The same node replies twice, under two names.
        assert_eq!(joined_names(&[("a:1", &["b:1"]), ("a:1", &["b:1"])]), ["a:1", "b:1"]);
    }

    #[test]
    fn tls_node_is_addressed_by_the_host_name_on_its_certificate() {
        let expected = ["10.0.0.1:7000", "::1:7002", "two:7001"];
        assert_eq!(names("rediss://seed:1", TEXT), expected);
    }

    #[test]
    fn node_without_a_known_address_gets_the_host_of_the_queried_node() {
        let alone = "aa :7000@17000 myself,master - 0 0 0 connected 0-16383\n";
        assert_eq!(names("redis://seed:1", alone), ["seed:7000"]);
    }

    #[test]
    fn every_node_of_a_cluster_gets_the_user_and_password_of_the_configured_node() {
        let seed = server("redis://app:secret@seed:1");
        let information = seed.information().clone();
        for node in Cluster::new(seed).read(TEXT, &information).nodes {
            let settings = node.information().redis_settings();
            assert_eq!((settings.username(), settings.password()), (Some("app"), Some("secret")));
            assert!(!node.name.contains("secret"));
        }
    }
}
