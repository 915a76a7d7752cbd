//! Leases, reservations and admissions: a caller holds them while its work lasts.

pub(crate) mod admission;
pub(crate) mod ending;
pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod reservation;
