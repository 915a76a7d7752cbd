//! Reservations in a window: one reservation, the stored list of them, the stored window with its
//! list, the calls on it, and the rules that support them.

pub mod list;
pub mod one;
pub mod rule;
pub mod stored;
pub mod window;
