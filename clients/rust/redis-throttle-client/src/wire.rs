//! The commands of calls, and the meaning of their replies. It does no I/O.

pub(crate) mod command;
pub(crate) mod replies;
pub(crate) mod words;
