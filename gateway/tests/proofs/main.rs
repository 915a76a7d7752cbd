//! The chain of `examples/envoy`: the real Envoy in front of its application, the gateway's program
//! and a real Redis. Without CI, the tests are skipped if Envoy was not fetched.

mod chain;
mod changes;
mod example;
#[allow(dead_code)]
#[path = "../envoy/gateway.rs"]
mod gateway;
mod limits;
mod load;
mod outages;
mod program;
#[path = "../../../clients/rust/redis-throttle-client/tests/live/server.rs"]
mod server;
#[path = "../http/wire.rs"]
mod wire;
