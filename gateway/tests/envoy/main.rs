//! The gateway as Envoy meets it: a gRPC client, the program's service, and a server with the
//! module. The server's clock is frozen where time matters.

mod gateway;
mod limits;
#[path = "../../../clients/rust/redis-throttle-client/tests/live/server.rs"]
mod server;
mod without_reply;
