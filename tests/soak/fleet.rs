//! A primary and its replica, and the faults that are injected into them. Both have an append-only
//! file that is synced at every write. No fault may lose an allowed call: each fault waits until
//! the data that it needs is stored.

use redis::Value;

use support::server::send_signal;
use support::{Client, Server, eventually};

pub struct Fleet {
    primary: Server,
    replica: Server,
    /// Connections to the primary and to the replica.
    pub client: Client,
    pub reader: Client,
    now_us: i128,
    slots: i128,
}

/// A fault, and the name under which it is counted.
pub type Fault = (&'static str, fn(&mut Fleet));

pub const FAULTS: [Fault; 7] = [
    ("faults: kill -9, restart from the log", Fleet::crash),
    ("faults: failover to the replica after WAIT", Fleet::fail_over),
    ("faults: DEBUG RELOAD", Fleet::reload),
    ("faults: shutdown, restart from a snapshot", Fleet::shut_down),
    ("faults: rewrite of the log", Fleet::rewrite_log),
    ("faults: replica disconnected", Fleet::disconnect_replica),
    ("faults: kill -9 during a rewrite of the log", Fleet::crash_in_rewrite),
];

fn start() -> Server {
    Server::setup()
        .with_tcp()
        .line("appendonly yes")
        .line("appendfsync always")
        .line("enable-debug-command yes")
        // With a save point, the server saves a snapshot when it is shut down.
        .line("save 86400 1000000")
        .start()
}

impl Fleet {
    pub fn start(now_us: i128, slots: i128) -> Self {
        let (primary, replica) = (start(), start());
        let (client, reader) = (primary.client(), replica.client());
        let mut fleet = Self { primary, replica, client, reader, now_us, slots };
        fleet.follow();
        fleet.set_up();
        fleet
    }

    pub fn now_us(&self) -> i128 {
        self.now_us
    }

    /// Freezes the clock of both servers at this time.
    pub fn freeze(&mut self, now_us: i128) {
        self.now_us = now_us;
        let us = now_us.try_into().expect("a clock of 64 bits");
        self.client.freeze(us);
        self.reader.freeze(us);
    }

    /// Changes `rl.sliding-log-slots` on both servers.
    pub fn set_slots(&mut self, slots: i128) {
        self.slots = slots;
        let line = format!("CONFIG SET rl.sliding-log-slots {slots}");
        self.client.ok(&line);
        self.reader.ok(&line);
    }

    /// Sets the clock and the slots of each server, which a restart resets.
    fn set_up(&mut self) {
        self.freeze(self.now_us);
        self.set_slots(self.slots);
    }

    fn follow(&mut self) {
        self.reader.ok(&format!("REPLICAOF 127.0.0.1 {}", self.primary.port()));
    }

    /// Waits until the replica has acknowledged all writes.
    pub fn wait(&mut self) {
        let client = &mut self.client;
        eventually("WAIT counts the replica", || {
            // WAIT waits only for the writes of its own connection, so a new connection must write
            // first.
            client.ok("SET mark 1");
            (client.integer("WAIT 1 500") == 1).then_some(())
        });
    }

    fn restart_primary(&mut self) {
        self.primary.start_again_as(|setup| setup.line("appendonly yes"));
        self.client = self.primary.client();
        self.set_up();
    }

    fn crash(&mut self) {
        self.primary.crash();
        self.restart_primary();
    }

    fn crash_in_rewrite(&mut self) {
        self.client.run("BGREWRITEAOF");
        self.crash();
    }

    fn rewrite_log(&mut self) {
        self.client.run("BGREWRITEAOF");
        self.wait_for_rewrite();
    }

    fn wait_for_rewrite(&mut self) {
        let client = &mut self.client;
        eventually("the append-only file is rewritten", || {
            let state = client.info("persistence");
            let is_done = |field: &str| state[field] == "0";
            let done = is_done("aof_rewrite_in_progress") && is_done("aof_rewrite_scheduled");
            (done && state["aof_last_bgrewrite_status"] == "ok").then_some(())
        });
    }

    fn reload(&mut self) {
        self.wait_for_rewrite();
        self.client.ok("DEBUG RELOAD");
    }

    /// Stops the primary with SIGTERM, and restarts it from its snapshot alone.
    fn shut_down(&mut self) {
        self.wait_for_rewrite();
        // The log file continues after a restart, so it may already contain this text.
        let farewells = || self.primary.log().matches("bye bye").count();
        let before = farewells();
        let pid = self.client.info("server")["process_id"].clone();
        assert!(send_signal("-TERM", &pid), "the server is there");
        eventually("the server has saved and ended", || (farewells() > before).then_some(()));
        self.primary.start_again_as(|setup| setup.line("appendonly no"));
        self.client = self.primary.client();
        self.client.ok("CONFIG SET appendonly yes");
        self.wait_for_rewrite();
        self.set_up();
    }

    /// Kills the primary, promotes the replica, and starts the killed server as its replica.
    fn fail_over(&mut self) {
        self.wait();
        self.primary.crash();
        self.reader.ok("REPLICAOF NO ONE");
        std::mem::swap(&mut self.primary, &mut self.replica);
        std::mem::swap(&mut self.client, &mut self.reader);
        self.replica.start_again_as(|setup| setup.line("appendonly yes"));
        self.reader = self.replica.client();
        self.follow();
        self.set_up();
    }

    fn disconnect_replica(&mut self) {
        let killed = self.client.run("CLIENT KILL TYPE replica");
        assert!(matches!(killed, Value::Int(_)), "{killed:?}");
    }
}
