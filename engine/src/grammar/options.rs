//! The options that follow the positional arguments of a rule, in any order.

use super::error::GrammarError;
use super::number;
use crate::bounds::Cost;

/// What may follow the positional arguments.
pub struct Options {
    /// `COST n`; 1 without it.
    pub cost: Cost,
    /// `PARTIAL`
    pub partial: bool,
    /// `ALIGNED`
    pub aligned: bool,
}

/// The options, of which most calls have none.
#[inline(always)]
pub fn options(args: &[&[u8]], may_align: bool) -> Result<Options, GrammarError> {
    if args.is_empty() {
        return Ok(Options { cost: Cost::ONE, partial: false, aligned: false });
    }
    some_options(args, may_align)
}

fn some_options(mut args: &[&[u8]], may_align: bool) -> Result<Options, GrammarError> {
    let mut cost = None;
    let (mut partial, mut aligned) = (false, false);
    while let [name, rest @ ..] = args {
        args = rest;
        if name.eq_ignore_ascii_case(b"COST") {
            args = set_cost(&mut cost, args)?;
        } else if name.eq_ignore_ascii_case(b"PARTIAL") {
            if partial {
                return Err(GrammarError::RepeatedPartial);
            }
            partial = true;
        } else if may_align && name.eq_ignore_ascii_case(b"ALIGNED") {
            if aligned {
                return Err(GrammarError::RepeatedAligned);
            }
            aligned = true;
        } else if may_align {
            return Err(GrammarError::OptionOrAligned);
        } else {
            return Err(GrammarError::Option);
        }
    }
    let cost = cost_of(cost, partial)?;
    Ok(Options { cost, partial, aligned })
}

/// Takes the number that follows `COST`; what is left are the arguments after it.
#[inline(always)]
pub fn set_cost<'a, 'b>(
    cost: &mut Option<Cost>,
    args: &'b [&'a [u8]],
) -> Result<&'b [&'a [u8]], GrammarError> {
    if cost.is_some() {
        return Err(GrammarError::RepeatedCost);
    }
    let [value, rest @ ..] = args else {
        return Err(GrammarError::MissingCost);
    };
    *cost = Some(number::cost(value).ok_or(GrammarError::Cost)?);
    Ok(rest)
}

/// The cost of a call, of which nothing can be no part.
#[inline(always)]
pub fn cost_of(cost: Option<Cost>, partial: bool) -> Result<Cost, GrammarError> {
    let cost = cost.unwrap_or(Cost::ONE);
    if partial && cost.is_zero() { Err(GrammarError::PartialOfNothing) } else { Ok(cost) }
}
