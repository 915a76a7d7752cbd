//! Reservations in a window: one reservation, the stored list, a window that has them, and the
//! change of both.

pub mod list;
pub mod one;
pub mod stored;
pub mod window;
