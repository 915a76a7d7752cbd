//! What calls send, and what the answers mean. It does no I/O.

pub(crate) mod command;
pub(crate) mod replies;
pub(crate) mod words;
