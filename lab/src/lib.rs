//! Shows what a limit does before it is set: to traffic that is drawn ([`page`]), and to the
//! requests of a log ([`replay`]). Also serves clients without a Redis ([`serve`]). Every decision
//! is the engine's, the module's own code.
//!
//! ```text
//! arguments ──> serve                             a server without a Redis
//!          ├──> page ─────> simulation ──> traffic     calls, drawn or by a pattern
//!          │                    ├────────> wording     texts and bounds of rules
//!          │                    └────────> rules       the engine on the bytes of keys
//!          └──> replay ───────────────────────^        calls, from the lines of a log
//! ```

pub mod arguments;
pub mod listening;
pub mod page;
pub mod replay;
pub mod rules;
pub mod serve;
pub mod simulation;
pub mod traffic;
pub mod wording;
