//! The options that follow the positional arguments, in any order.

use super::error::GrammarError;
use super::name::is_name;
use super::number;
use crate::bounds::{Cost, Leave};
use crate::call::CallOptions;

impl CallOptions {
    /// The options of a call without options.
    pub const NONE: Self = Self { cost: Cost::ONE, partial: false, leave: None };

    /// Checks that the options fit a command that grants the whole cost or nothing.
    ///
    /// # Errors
    ///
    /// Returns [`GrammarError::PartialNotHere`] for `PARTIAL`.
    pub fn in_full(self) -> Result<(), GrammarError> {
        if self.partial { Err(GrammarError::PartialNotHere) } else { Ok(()) }
    }

    /// Checks that the options fit a command that settles an earlier decision.
    ///
    /// # Errors
    ///
    /// Returns [`GrammarError::PartialNotHere`] for `PARTIAL` and, checked next,
    /// [`GrammarError::LeaveNotHere`] for `LEAVE`.
    pub fn unconditional(self) -> Result<(), GrammarError> {
        self.in_full()?;
        if self.leave.is_some() { Err(GrammarError::LeaveNotHere) } else { Ok(()) }
    }
}

/// The options as given in a call, before the defaults are filled in. Only this type parses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenOptions {
    /// `COST n`
    pub cost: Option<Cost>,
    /// `PARTIAL`
    pub partial: bool,
    /// `LEAVE n` or `LEAVE p%`
    pub leave: Option<Leave>,
}

impl GivenOptions {
    /// The names of all options of a call.
    pub const NAMES: [&str; 3] = ["COST", "PARTIAL", "LEAVE"];

    /// Parses the option `name` and takes its value from `args`. Returns false if `name` is not one
    /// of these options.
    ///
    /// # Errors
    ///
    /// Returns an error if the option is invalid.
    #[inline(always)]
    pub fn read(&mut self, name: &[u8], args: &mut &[&[u8]]) -> Result<bool, GrammarError> {
        if is_cost(name) {
            if self.cost.is_some() {
                return Err(GrammarError::RepeatedCost);
            }
            let [value, rest @ ..] = *args else {
                return Err(GrammarError::MissingCost);
            };
            self.cost = Some(number::cost(value).ok_or(GrammarError::Cost)?);
            *args = rest;
        } else if is_partial(name) {
            if self.partial {
                return Err(GrammarError::RepeatedPartial);
            }
            self.partial = true;
        } else if is_leave(name) {
            read_leave(&mut self.leave, args)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Checks the options against each other once all are parsed, and fills in the defaults.
    ///
    /// # Errors
    ///
    /// Returns [`GrammarError::PartialOfNothing`] for a partial cost of 0.
    #[inline(always)]
    pub fn check(self) -> Result<CallOptions, GrammarError> {
        let call = self.or_default();
        if call.partial && call.cost.is_zero() {
            return Err(GrammarError::PartialOfNothing);
        }
        Ok(call)
    }

    /// Returns true if any option is given.
    pub fn is_any(self) -> bool {
        self != Self::default()
    }

    /// Fills in the defaults.
    #[inline(always)]
    pub fn or_default(self) -> CallOptions {
        let Self { cost, partial, leave } = self;
        CallOptions { cost: cost.unwrap_or(Cost::ONE), partial, leave }
    }

    /// Returns true if `word` is the name of one of these options.
    pub fn has(word: &[u8]) -> bool {
        is_cost(word) || is_partial(word) || is_leave(word)
    }

    /// Returns true if `args`, which were parsed before, include the option `COST`.
    pub fn give_cost(args: &[&[u8]]) -> bool {
        args.iter().any(|word| is_cost(word))
    }

    /// Returns true if `error` is about one of these options.
    pub const fn explain(error: GrammarError) -> bool {
        use GrammarError::{
            Cost, Leave, MissingCost, MissingLeave, PartialOfNothing, RepeatedCost, RepeatedLeave,
            RepeatedPartial,
        };
        matches!(
            error,
            Cost | MissingCost
                | RepeatedCost
                | PartialOfNothing
                | RepeatedPartial
                | Leave
                | MissingLeave
                | RepeatedLeave
        )
    }
}

/// Parses the value of `LEAVE` from `args`.
#[cold]
fn read_leave(leave: &mut Option<Leave>, args: &mut &[&[u8]]) -> Result<(), GrammarError> {
    if leave.is_some() {
        return Err(GrammarError::RepeatedLeave);
    }
    let [value, rest @ ..] = *args else {
        return Err(GrammarError::MissingLeave);
    };
    *leave = Some(number::leave(value).ok_or(GrammarError::Leave)?);
    *args = rest;
    Ok(())
}

/// Parses the options of a lease: `LEAVE` is the only one.
///
/// # Errors
///
/// Returns an error if `LEAVE` is invalid, and [`GrammarError::LeaseOption`] for any other option.
#[cold]
pub fn leave_only(mut args: &[&[u8]]) -> Result<Option<Leave>, GrammarError> {
    let mut leave = None;
    while let [name, rest @ ..] = args {
        if !is_leave(name) {
            return Err(GrammarError::LeaseOption);
        }
        args = rest;
        read_leave(&mut leave, &mut args)?;
    }
    Ok(leave)
}

#[inline(always)]
fn is_cost(word: &[u8]) -> bool {
    is_name::<4>(word, "COST")
}

#[inline(always)]
fn is_partial(word: &[u8]) -> bool {
    is_name::<7>(word, "PARTIAL")
}

#[inline(always)]
fn is_leave(word: &[u8]) -> bool {
    is_name::<5>(word, "LEAVE")
}

/// The options of a rule.
pub struct Options {
    /// The options of the call.
    pub call: CallOptions,
    /// `ALIGNED`
    pub aligned: bool,
}

/// Parses the options of a rule. Most calls have none.
#[inline(always)]
pub fn options(args: &[&[u8]], may_align: bool) -> Result<Options, GrammarError> {
    if args.is_empty() {
        return Ok(Options { call: CallOptions::NONE, aligned: false });
    }
    some_options(args, may_align)
}

fn some_options(mut args: &[&[u8]], may_align: bool) -> Result<Options, GrammarError> {
    let (mut given, mut aligned) = (GivenOptions::default(), false);
    while let [name, rest @ ..] = args {
        args = rest;
        if given.read(name, &mut args)? {
            continue;
        }
        if !may_align {
            return Err(GrammarError::Option);
        }
        if !name.eq_ignore_ascii_case(b"ALIGNED") {
            return Err(GrammarError::OptionOrAligned);
        }
        if aligned {
            return Err(GrammarError::RepeatedAligned);
        }
        aligned = true;
    }
    Ok(Options { call: given.check()?, aligned })
}
