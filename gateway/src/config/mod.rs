//! The configuration: one domain per file, in one of two forms.
//!
//! ```text
//! folder ── files ──> limits_file ──> yaml           text as a tree with places
//!                      ├─────> own            limits: [{match: ..., policy: ...}]
//!                      ├─────> ratelimit      descriptors: as of envoyproxy/ratelimit
//!                      └─────> http_section   how HTTP requests become descriptors
//! domain   the result         report   mistakes and warnings, with file, line and column
//! ```

mod bounds;
mod domain;
mod fields;
mod folder;
mod glob;
mod http_section;
mod limits_file;
mod naming;
mod own;
mod rate;
mod ratelimit;
mod report;
mod rule_words;
mod template;
mod yaml;

#[cfg(test)]
mod tests;

pub use domain::{Domain, Http, Limit, OnError, Source, Template, Terms, Unit};
pub use folder::Configuration;
pub(crate) use folder::{Texts, files};
pub use report::{At, Remark};

pub(crate) use bounds::COST_MAX;
pub(crate) use domain::{Branch, Level, Lookup, Pattern, sorted};
pub(crate) use naming::{extend, extend_by_entry, joined};
pub(crate) use rule_words::rule;
pub(crate) use template::is_name;
