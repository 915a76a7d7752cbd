//! Rate limiting as pure functions: they take a stored state, an instant and a cost, and return a
//! decision and the change to store.
//!
//! The crate does not depend on a server, does no I/O, reads no clock and uses no floats. No
//! decision allocates.
//!
//! The caller stores the bytes of a key, and passes the instant:
//!
//! ```
//! use redis_throttle_engine::bounds::Slots;
//! use redis_throttle_engine::grammar::error::GrammarError;
//! use redis_throttle_engine::grammar::rule::rule_with_cost;
//! use redis_throttle_engine::state;
//! use redis_throttle_engine::time::Instant;
//!
//! // GCRA: a burst of 2 calls, then 1 call per minute.
//! let call = rule_with_cost(&[b"GCRA", b"2", b"1", b"1m"], Slots::DEFAULT)?;
//! let now = Instant::from_us(1_700_000_000_000_000);
//! let mut key = Vec::new();
//! for allowed in [true, true, false] {
//!     let stored = (!key.is_empty()).then(|| state::decode(&key).expect("a state"));
//!     let outcome = call.rule.decide(stored, now, call.options.cost).expect("a state of GCRA");
//!     assert_eq!(outcome.decision.verdict.is_allowed(), allowed);
//!     // A denial stores nothing.
//!     let change = outcome.next.kept().map(|next| state::encode(&next.state));
//!     assert_eq!(change.is_some(), allowed);
//!     change.inspect(|change| change.apply(&mut key));
//! }
//! # Ok::<(), GrammarError>(())
//! ```
//!
//! A module uses modules from the rows above its own; `algorithms` also uses the row below. No two
//! files use each other:
//!
//! | modules | content |
//! |---|---|
//! | [`time`], [`bounds`], [`decision`] | the types: instants, limits, costs, decisions |
//! | [`fields`], [`msgpack`] | a state as named numbers, and the arrays that states are stored as |
//! | [`call`] | deciding, charging and refunding a call, for every algorithm |
//! | [`ban`] | a ban of a key, and the decisions while it lasts |
//! | [`algorithms`] | the table of algorithms, and a file for each |
//! | [`calendar`], [`reservations`] | calendar periods; windows with reservations |
//! | [`leases`], [`redis_cell`], [`rule_set`] | permits, redis-cell's GCRA, several rules at once |
//! | [`state`] | the codec: bytes of a key to a state and back |
//! | [`top`] | the keys that are denied or called most |
//! | [`policy`], [`grammar`] | named limits; the only parser of arguments |
//! | [`exposition`] | Prometheus' text format |
//! | `keyspace` | keys in memory and the commands on them; needs the feature `keyspace` |

#![forbid(unsafe_code)]

pub mod algorithms;
pub mod ban;
pub mod bounds;
pub mod calendar;
pub mod call;
pub mod decision;
pub mod exposition;
pub mod fields;
pub mod grammar;
#[cfg(any(test, feature = "keyspace"))]
pub mod keyspace;
pub mod leases;
pub mod msgpack;
pub mod policy;
pub mod redis_cell;
pub mod reservations;
pub mod rule_set;
pub mod state;
pub mod time;
pub mod top;

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tables;
