//! The page: an HTTP server for the static files of `lab/page/`, and for the simulation that these
//! request.
//!
//! ```text
//! serving ──> request ──> files       the static files, by fixed names
//!                │──────> access      the hosts and origins that may send requests
//!                │──────> scenario    JSON to a scenario, within bounds
//!                └──────> result_body results to JSON and binary columns
//! ```

mod access;
mod files;
mod request;
pub mod result_body;
pub mod scenario;
pub mod serving;
