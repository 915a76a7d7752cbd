#![doc = include_str!("../README.md")]

mod body;
mod body_input;
mod function;
mod future;
mod key_of;
mod layer;
mod limit_error;
mod parts;
mod request;
mod service;

pub use body::ResponseBody;
pub use body_input::{WatchedBody, watch_body};
pub use function::Answer;
pub use future::ResponseFuture;
pub use key_of::key_of;
pub use layer::{Builder, RateLimitLayer};
pub use limit_error::LimitError;
pub use parts::{Peer, RequestParts};
pub use redis_throttle_client as client;
pub use service::RateLimit;
