//! What is held while work lasts: leases, reservations and admissions.

pub(crate) mod admission;
pub(crate) mod ending;
pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod reservation;
