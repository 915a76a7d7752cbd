//! Reservations in a window: one reservation, the stored list of them, the stored window with its
//! list, and the calls on it.

pub mod list;
pub mod one;
pub mod stored;
pub mod window;
