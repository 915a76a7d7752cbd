//! Rate limiting as pure functions: a stored state, an instant and a cost in; a decision and the
//! change to store out.
//!
//! Nothing here knows a server, does I/O, reads a clock or uses a float, and no decision allocates.
//! A module uses only modules from the rows above its own:
//!
//! | modules | content |
//! |---|---|
//! | [`time`], [`bounds`], [`decision`] | the types: instants, limits, costs, decisions |
//! | [`fields`], [`msgpack`] | a state as named numbers, and the arrays that states are stored as |
//! | [`call`] | deciding, charging and refunding a call, for every algorithm |
//! | [`calendar`], [`reservations`] | calendar periods; a window with reservations |
//! | [`algorithms`] | the table of algorithms, and a file for each |
//! | [`leases`], [`redis_cell`], [`rule_set`] | permits, redis-cell's GCRA, several rules at once |
//! | [`state`] | the codec: bytes of a key to a state and back |
//! | [`policy`], [`grammar`] | named limits; the only parser of arguments |
//! | [`exposition`] | Prometheus' text format |

#![forbid(unsafe_code)]

pub mod algorithms;
pub mod bounds;
pub mod calendar;
pub mod call;
pub mod decision;
pub mod exposition;
pub mod fields;
pub mod grammar;
pub mod leases;
pub mod msgpack;
pub mod policy;
pub mod redis_cell;
pub mod reservations;
pub mod rule_set;
pub mod state;
pub mod time;

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tables;
