//! The page: an HTTP server for the static files of `lab/page/`, and for the simulation that they
//! ask for.
//!
//! ```text
//! serving ──> request ──> files       the static files, by fixed names
//!                │──────> access      the hosts and origins that may ask
//!                │──────> scenario    JSON to a scenario, within bounds
//!                └──────> answer      results to JSON and binary columns
//! ```

mod access;
pub mod answer;
mod files;
mod request;
pub mod scenario;
pub mod serving;
