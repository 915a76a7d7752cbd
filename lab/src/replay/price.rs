//! The cost of a call: a number, or a field of the line.

use super::arguments::ReplayArguments;
use super::bad::Bad;
use super::fields::{Names, Values};
use super::template::Template;
use redis_throttle_engine::bounds::Cost;

/// The cost of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Price {
    /// This many units.
    Fixed(u64),
    /// The value of a field.
    Field(Template),
}

impl Price {
    /// Reads the argument `--cost`; `None` without it.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong.
    pub fn parse(arguments: &ReplayArguments, names: &mut Names) -> Result<Option<Self>, String> {
        let Some(cost) = arguments.cost.as_deref() else { return Ok(None) };
        if cost.bytes().all(|byte| byte.is_ascii_digit()) {
            let units = units(cost.as_bytes());
            let units = units.ok_or_else(|| {
                format!("invalid cost: expected a field or an integer up to {}", Cost::MAX)
            })?;
            return Ok(Some(Self::Fixed(units)));
        }
        Template::parse(cost, names).map(|template| Some(Self::Field(template)))
    }

    /// Reads the cost of a line.
    ///
    /// # Errors
    ///
    /// [`Bad`] if the line has none, or no valid one.
    pub fn read(&self, line: &[u8], values: &Values, copies: &mut Vec<u8>) -> Result<u64, Bad> {
        match self {
            Self::Fixed(units) => Ok(*units),
            Self::Field(template) => {
                let value = template.fill(line, values, copies).map_err(|_| Bad::NoCost)?;
                units(value).ok_or(Bad::Cost)
            }
        }
    }
}

/// Reads a cost. The `-` of a log is none.
fn units(text: &[u8]) -> Option<u64> {
    if text == b"-" {
        return Some(0);
    }
    let units: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Cost::new(units).map(Cost::units)
}
