//! What operators do with policies: `RL.POLICY`. Every change is a line in the server's log.

use super::api::{self, Call, Context};
use super::commands::PolicyVerb;
use super::error::CommandError;
use super::fault::{self, Point};
use super::{clock, policies};
use crate::grammar::{self, GrammarError};
use crate::policy::{Change, FullName};

/// How many names one call may delete: the server's arguments are looked at up to there.
const NAMES_MAX: usize = 32;

/// Runs a subcommand.
#[cold]
pub fn run(verb: PolicyVerb, call: &Call<'_>) -> Result<(), CommandError> {
    let args = call.args().get(1..).unwrap_or_default();
    match verb {
        PolicyVerb::Set => set(call.context(), args),
        PolicyVerb::Del => delete(call.context(), args),
        _ => Err(CommandError::Grammar(GrammarError::Arity)),
    }
}

/// Makes a policy, or replaces it.
fn set(context: Context<'_>, args: &[&[u8]]) -> Result<(), CommandError> {
    let definition = grammar::definition(args)?;
    let now = clock::now();
    let ends_at = definition.lasts.map(|span| now.after(span));
    fault::point(Point::Decide);
    let change = policies::table().set(&definition.name, definition.setting, ends_at, now)?;
    tell(context, "SET", &[change]);
    context.reply_ok();
    Ok(())
}

/// Deletes policies, and tells how many there were.
fn delete(context: Context<'_>, args: &[&[u8]]) -> Result<(), CommandError> {
    if args.len() > NAMES_MAX {
        return Err(CommandError::Grammar(GrammarError::TooManyNames));
    }
    let names = args.iter().map(|name| grammar::policy_name(name));
    let names = names.collect::<Result<Vec<FullName>, _>>()?;
    fault::point(Point::Decide);
    let changes = policies::table().delete(&names, clock::now());
    tell(context, "DEL", &changes);
    context.reply_integer(i64::try_from(changes.len()).unwrap_or(i64::MAX));
    Ok(())
}

/// Writes a line for each change to the server's log.
fn tell(context: Context<'_>, verb: &str, changes: &[Change]) {
    if changes.is_empty() {
        return;
    }
    let user = context.user_name().map_or_else(|| "nobody".to_owned(), |name| escaped(&name));
    for Change { name, before, after } in changes {
        let name = name.as_str();
        api::log_warning(&format!("RL.POLICY {verb} by {user}: {name}: {before} -> {after}"));
    }
}

/// A name that somebody has chosen, as a word of the log: what could end a line, or its word, or be
/// taken for something else, is escaped, and the name cut off where it is long.
fn escaped(name: &[u8]) -> String {
    const LEN_MAX: usize = 64;
    let start = name.get(..LEN_MAX).unwrap_or(name);
    let end = if start.len() < name.len() { ".." } else { "" };
    format!("{}{end}", start.escape_ascii())
}
