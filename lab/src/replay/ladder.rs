//! The rungs of a suggestion: rates, for each of which the burst is looked for, or windows, for
//! each of which the limit is.

use super::arguments::{ReplayArguments, SuggestedAlgorithm};
use redis_throttle_engine::algorithms::gcra::Gcra;
use redis_throttle_engine::bounds::{Limit, Period, Refill};
use redis_throttle_engine::grammar::number;
use redis_throttle_engine::policy::duration::duration_text;

/// A rate or a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// Units per period.
    Rate(Limit, Period),
    /// A window.
    Window(Period),
}

/// The rates and windows of one suggestion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder {
    /// The algorithm.
    pub algorithm: SuggestedAlgorithm,
    /// The rungs.
    pub rungs: Vec<Rung>,
}

/// The most rungs.
const RUNGS_MAX: usize = 16;

const RATES: &str = "1/1m,2/1m,5/1m,10/1m,20/1m,1/1s,2/1s,5/1s,10/1s,20/1s,50/1s,100/1s";
const WINDOWS: &str = "1s,10s,1m,10m,1h,1d";

impl Ladder {
    /// Reads the ladder that the arguments request.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong.
    pub fn new(algorithm: SuggestedAlgorithm, arguments: &ReplayArguments) -> Result<Self, String> {
        let is_fixed = algorithm == SuggestedAlgorithm::Fixed;
        let default = if is_fixed { WINDOWS } else { RATES };
        let text = arguments.ladder.as_deref().unwrap_or(default);
        let rung = |text: &str| if is_fixed { window(text) } else { rate(text) };
        let rungs = text.split(',').map(|text| rung(text.trim())).collect::<Option<Vec<_>>>();
        let expected = if is_fixed { "windows such as 1s,1m" } else { "rates such as 10/1m,1/1s" };
        let rungs = rungs.filter(|rungs| rungs.len() <= RUNGS_MAX).ok_or_else(|| {
            format!("invalid --ladder `{text}`: expected 1 to {RUNGS_MAX} {expected}")
        })?;
        Ok(Self { algorithm, rungs })
    }

    /// Returns the rule of a rung with this burst or limit; `None` if there is no such rule.
    pub fn rule(&self, rung: Rung, units: u64) -> Option<String> {
        let limit = Limit::new(units)?;
        match rung {
            Rung::Window(window) => Some(format!("FIXED {units} {}", duration_text(window.span()))),
            Rung::Rate(rate, period) => {
                Refill::new(limit, rate, period).ok()?;
                let name = match self.algorithm {
                    SuggestedAlgorithm::Tokenbucket => "TOKENBUCKET",
                    _ => "GCRA",
                };
                let period = duration_text(period.span());
                Some(format!("{name} {units} {} {period}", rate.units()))
            }
        }
    }
}

impl Rung {
    /// Returns the time between two units at this rate, in nanoseconds, or the window in
    /// microseconds.
    pub const fn step(self) -> u64 {
        match self {
            Self::Rate(rate, period) => (period.as_us() * 1_000).div_ceil(rate.units()),
            Self::Window(window) => window.as_us(),
        }
    }

    /// Returns the most units in any stretch of time as long as `horizon`, with a burst or limit of
    /// `units`, in millionths of a unit, rounded up.
    ///
    /// A burst adds to what the rate gives. A stretch of time touches one window more than fit in
    /// it.
    pub fn most_millionths(self, units: u64, horizon: Period) -> u128 {
        let million = 1_000_000;
        match self {
            Self::Rate(rate, period) => {
                let earned = u128::from(rate.units()) * u128::from(horizon.as_us()) * million;
                u128::from(units) * million + earned.div_ceil(u128::from(period.as_us()))
            }
            Self::Window(window) => {
                let windows = horizon.as_us().div_ceil(window.as_us()) + 1;
                u128::from(units) * u128::from(windows) * million
            }
        }
    }

    /// Returns the rung in words.
    pub fn text(self) -> String {
        match self {
            Self::Rate(rate, period) => {
                format!("{} per {}", rate.units(), duration_text(period.span()))
            }
            Self::Window(window) => duration_text(window.span()),
        }
    }
}

fn rate(text: &str) -> Option<Rung> {
    let (rate, period) = text.split_once('/')?;
    let (rate, period) = (number::limit(rate.as_bytes())?, number::period(period.as_bytes())?);
    // A rate above the module's bound has no rule with any burst.
    Refill::new(Limit::new(1)?, rate, period).ok().map(Gcra::new)?;
    Some(Rung::Rate(rate, period))
}

fn window(text: &str) -> Option<Rung> {
    number::period(text.as_bytes()).map(Rung::Window)
}
