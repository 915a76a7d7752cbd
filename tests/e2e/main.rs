//! Black-box tests. Each test starts its own server, calls it through a client library, and knows
//! the module only by its replies.

mod calls {
    mod bans;
    mod clock;
    mod concurrency;
    mod golden;
    mod protocol;
    mod top;
    mod transactions;
    mod wrong_type;
}
mod cluster {
    mod several;
    mod slots;
}
mod effects {
    mod bans;
    mod denied;
    mod expiry;
    mod quotas;
    mod refused;
    mod replication;
    mod reservations;
    mod settling;
    mod several;
    mod stream;
}
mod faults {
    mod crash_report;
    mod durability;
    mod failover;
    mod memory;
    mod panics;
    mod persistence;
    mod replicas;
}
mod leases {
    mod effects;
    mod sets;
}
mod loading {
    mod config;
    mod load;
    mod neighbours;
    mod unload;
}
mod metadata {
    mod commands;
    mod info;
    mod keys_created;
    mod metrics;
    mod rights;
}
mod policies {
    mod effects;
    mod errors;
    mod file;
    mod table;
}
mod redis_cell {
    mod effects;
    mod gcra;
    mod replies;
}
