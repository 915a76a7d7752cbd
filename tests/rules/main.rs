//! Black-box tests of behaviour that does not depend on the server's version: grammar, replies,
//! states, policies, reservations, and the memory of a million calls. The matrix runs them on the
//! oldest and the newest server only, and the tests of `tests/e2e` on every server.

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
