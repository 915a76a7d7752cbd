//! Black-box tests of what the engine and the module decide alone: grammar, replies, states,
//! policies, reservations, and the memory of a million calls. No version of a server can change
//! them, so they run on the oldest and the newest server only. `tests/e2e` has the tests that every
//! server must pass.

mod byte_fuzz;
mod changed_limits;
mod corrupt_state;
mod errors;
mod grammar_fuzz;
mod hostile;
mod inspect;
mod lease_holders;
mod leases;
mod leave;
mod longer_rule;
mod memory;
mod peek;
mod played_pages;
mod policy_statistics;
mod promise;
mod quotas;
mod repair;
mod replies;
mod reservations;
mod reserve_several;
mod reserve_uses;
mod reserved_quotas;
mod settling;
mod several;
mod use_changes;
mod use_several;
mod uses;
