//! The life of a call, and what this process decides by itself.

pub(crate) mod closing;
pub(crate) mod denial_cache;
pub(crate) mod denials;
pub(crate) mod error_log;
pub(crate) mod events;
pub(crate) mod fallback;
pub(crate) mod forgotten;
pub(crate) mod json_log;
pub(crate) mod local;
pub(crate) mod permits;
pub(crate) mod prefetch;
pub(crate) mod several;
pub(crate) mod state;
pub(crate) mod steps;
pub(crate) mod taken;
pub(crate) mod wait;
