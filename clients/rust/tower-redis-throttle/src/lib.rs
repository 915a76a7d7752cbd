#![doc = include_str!("../README.md")]

mod body;
mod function;
mod future;
mod key_of;
mod layer;
mod limit_error;
mod plan;
mod request;
mod service;
mod watched;

pub use body::ResponseBody;
pub use function::Answer;
pub use future::ResponseFuture;
pub use key_of::key_of;
pub use layer::{Builder, RateLimitLayer};
pub use limit_error::LimitError;
pub use redis_throttle_client as client;
pub use request::{Peer, RequestParts};
pub use service::RateLimit;
pub use watched::{WatchedBody, watch_body};
