//! `RL.POLICY`: the commands for operators. Each change is written to the server's log, in up to
//! [`LINES_MAX`] lines per command.

use crate::api::call::Call;
use crate::api::reply::Context;
use crate::clock;
use crate::commands::row::{Action, PolicyVerb};
use crate::commands::table::COMMANDS;
use crate::error::CommandError;
use crate::fault::{self, Point};
use crate::policies::{file as policy_file, statistics as policy_statistics, table as policies};
use redis_throttle_engine::grammar;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::policy::{Assignment, Definition, ModeChange};
use redis_throttle_engine::policy::name::FullName;
use redis_throttle_engine::policy::pattern::Pattern;
use redis_throttle_engine::policy::table::Change;
use redis_throttle_engine::time::Span;

/// The largest number of names in one `DEL`. It must stay below the number of arguments that a
/// [`Call`] reads.
const NAMES_MAX: usize = 32;

/// The largest number of changes that one command logs with a line each. The server waits for every
/// line: 10,000 lines took up to 160 ms. If its log is a full pipe, the server blocks.
const LINES_MAX: usize = 100;

/// The reply of `HELP`.
const HELP: &[&str] = &[
    "RL.POLICY <subcommand> [<arg> ...]. Changes apply to this server only.",
    "SET <name>[@<variant>] [SHADOW|OFF|BLOCK|ENFORCE <percent>] [EX <duration>] [<rule> ...]",
    "    Create or replace a policy; a mode without a rule keeps the rule. With EX, override the",
    "    current policy for that long. A restart loses the policy unless SAVE writes it.",
    "DEL <name> [<name> ...]",
    "    Delete policies, at most 32 at once. Return how many of them existed.",
    "GET <name>",
    "    Return the policy in effect under a name, or null.",
    "LIST [<pattern>]",
    "    Return the policies in the format of the policy file, without overrides by EX.",
    "LOAD",
    "    Read rl.policy-file again, all of it or nothing.",
    "SAVE",
    "    Write rl.policy-file, without overrides by EX.",
    "STATS [<pattern>]",
    "    Return the call counters, since the start or RESETSTAT.",
    "RESETSTAT",
    "    Reset the call counters.",
    "HELP",
    "    Print this help.",
];

/// Finds the subcommand that the first argument names, and runs it. Most servers find it
/// themselves.
#[cold]
pub fn find(call: &Call<'_>) -> Result<(), CommandError> {
    let name = call.args().first().ok_or(GrammarError::Arity)?;
    let found = COMMANDS.iter().find_map(|command| {
        let Action::Policy(verb) = command.action else { return None };
        let (_, own_name) = command.description.name.to_str().ok()?.split_once('|')?;
        own_name.as_bytes().eq_ignore_ascii_case(name).then_some((verb, command))
    });
    let (verb, command) = found.ok_or(CommandError::UnknownSubcommand)?;
    // The arity counts the command's own name, and is a minimum if negative, as in the server.
    let (len, arity) = (call.args().len() + 1, command.description.arity);
    let is_right = match usize::try_from(arity) {
        Ok(exactly) => len == exactly,
        Err(_) => len >= arity.unsigned_abs() as usize,
    };
    if is_right { run(verb, call) } else { Err(CommandError::Grammar(GrammarError::Arity)) }
}

/// Runs a subcommand.
#[cold]
pub fn run(verb: PolicyVerb, call: &Call<'_>) -> Result<(), CommandError> {
    let args = call.args().get(1..).unwrap_or_default();
    match verb {
        PolicyVerb::Set => set(call.context(), args),
        PolicyVerb::Del => delete(call.context(), args),
        PolicyVerb::Get => get(call.context(), args),
        PolicyVerb::List => list(call.context(), args),
        PolicyVerb::Load => load(call.context()),
        PolicyVerb::Save => save(call.context()),
        PolicyVerb::Stats => policy_statistics::show(call.context(), args),
        PolicyVerb::ResetStat => policy_statistics::reset(call.context()),
        PolicyVerb::Help => {
            call.context().reply_texts(HELP.iter());
            Ok(())
        }
    }
}

/// Creates or replaces a policy, or changes its mode.
fn set(context: Context<'_>, args: &[&[u8]]) -> Result<(), CommandError> {
    let assignment = grammar::policy::assignment(args)?;
    let now = clock::now();
    let ends_at = |lasts: Option<Span>| lasts.map(|span| now.after(span));
    fault::point(Point::Decide);
    let change = match assignment {
        Assignment::Whole(Definition { name, setting, lasts }) => {
            policies::table().set(&name, setting, ends_at(lasts), now)?
        }
        Assignment::Mode(ModeChange { name, enforcement, lasts }) => {
            policies::table().set_mode(&name, enforcement, ends_at(lasts), now)?
        }
    };
    log_changes(context, "SET", &[change]);
    context.reply_ok();
    Ok(())
}

/// Deletes policies, and replies with the number of those that existed.
fn delete(context: Context<'_>, args: &[&[u8]]) -> Result<(), CommandError> {
    if args.len() > NAMES_MAX {
        return Err(CommandError::Grammar(GrammarError::TooManyNames));
    }
    let names = args.iter().map(|name| grammar::policy::policy_name(name));
    let names = names.collect::<Result<Vec<FullName>, _>>()?;
    fault::point(Point::Decide);
    let changes = policies::table().delete(&names, clock::now());
    log_changes(context, "DEL", &changes);
    context.reply_integer(i64::try_from(changes.len()).unwrap_or(i64::MAX));
    Ok(())
}

/// Replies with the policy in effect under a name.
fn get(context: Context<'_>, args: &[&[u8]]) -> Result<(), CommandError> {
    let name = args.first().ok_or(GrammarError::Arity)?;
    let name = grammar::policy::policy_name(name)?;
    let text = policies::table().get(&name, clock::now());
    fault::point(Point::Reply);
    match text {
        Some(text) => context.reply_text(&text),
        None => context.reply_null(),
    }
    Ok(())
}

/// Replies with the policies in the format of the policy file, without overrides.
fn list(context: Context<'_>, args: &[&[u8]]) -> Result<(), CommandError> {
    let pattern = match args {
        [] => Pattern::ANY,
        [pattern] => Pattern::new(pattern).ok_or(GrammarError::Pattern)?,
        _ => return Err(CommandError::Grammar(GrammarError::Arity)),
    };
    let lines = policies::table().list(pattern);
    fault::point(Point::Reply);
    context.reply_texts(lines.iter());
    Ok(())
}

/// Reads the policy file again.
fn load(context: Context<'_>) -> Result<(), CommandError> {
    let changes = policy_file::load(clock::now())?;
    log_changes(context, "LOAD", &changes);
    context.reply_ok();
    Ok(())
}

/// Writes the policy file.
fn save(context: Context<'_>) -> Result<(), CommandError> {
    policy_file::save()?;
    context.reply_ok();
    Ok(())
}

/// Writes a line for each change to the server's log. Above [`LINES_MAX`] changes, writes lines for
/// the first ones, and one more line with the counts.
fn log_changes(context: Context<'_>, verb: &str, changes: &[Change]) {
    if changes.is_empty() {
        return;
    }
    let user = context.user_name().map_or_else(|| "nobody".to_owned(), |name| escape(&name));
    for Change { name, before, after } in changes.iter().take(LINES_MAX) {
        let name = name.as_str();
        context.log_warning(&format!("RL.POLICY {verb} by {user}: {name}: {before} -> {after}"));
    }
    if changes.len() > LINES_MAX {
        context.log_warning(&format!("RL.POLICY {verb} by {user}: {}", summary(changes)));
    }
}

/// Summarizes the changes, for a log that has lines only for the first ones.
fn summary(changes: &[Change]) -> String {
    let added = changes.iter().filter(|change| change.is_addition()).count();
    let removed = changes.iter().filter(|change| change.is_removal()).count();
    let (all, changed) = (changes.len(), changes.len() - added - removed);
    let (_, digest) = policies::table().count_and_digest(clock::now());
    format!(
        "{all} changes, the first {LINES_MAX} above: {added} added, {changed} changed, \
         {removed} removed, digest {digest:016x}"
    )
}

/// Formats a name that a user chose as one word of a log line. Escapes bytes that could end the
/// line or the word, or imitate other text, and cuts off a long name.
fn escape(name: &[u8]) -> String {
    const LEN_MAX: usize = 64;
    let start = name.get(..LEN_MAX).unwrap_or(name);
    let end = if start.len() < name.len() { ".." } else { "" };
    format!("{}{end}", start.escape_ascii())
}
