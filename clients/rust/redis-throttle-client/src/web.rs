//! Requests and responses of the web, for middleware.

pub(crate) mod address;
pub(crate) mod counting;
