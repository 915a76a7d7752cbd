//! Reservations in a window: what one is, the list of them as stored, a window that has them, and
//! the change of both.

pub mod list;
pub mod one;
pub mod stored;
pub mod window;
