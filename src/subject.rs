//! The subject of a call that limits one: its key, and what stands behind that among the arguments.

use crate::api::call::Call;
use crate::api::key::KeyName;
use crate::error::CommandError;
use redis_throttle_engine::grammar::error::GrammarError;

/// The key of a command that has one.
#[inline(always)]
pub fn only_key<'open, 'call>(
    call: &'open Call<'call>,
) -> Result<KeyName<'open, 'call>, CommandError> {
    call.take_keys()?.next().ok_or(CommandError::Grammar(GrammarError::Arity))
}

/// The name of that key.
#[inline(always)]
pub fn name<'call>(call: &Call<'call>) -> &'call [u8] {
    call.args().first().copied().unwrap_or_default()
}

/// What follows the key.
#[inline(always)]
pub fn args_after_key<'call>(call: &Call<'call>) -> &'call [&'call [u8]] {
    call.args().get(1..).unwrap_or_default()
}

/// What follows the key and the name of a rule.
#[inline(always)]
pub fn args_after_rule<'call>(call: &Call<'call>) -> &'call [&'call [u8]] {
    call.args().get(2..).unwrap_or_default()
}
