//! The format of a log: named by the arguments, or found by its first lines.

use super::address::address;
use super::arguments::ReplayArguments;
use super::failure::Failure;
use super::fields::{Names, Values};
use super::form::{Form, Layout, Plan};
use super::formats::{self, COMBINED};
use super::intake::COMMENT;
use super::lines::Lines;
use super::stamp::{NoStamp, Stamps};
use super::template::Template;

/// The lines by which a format is found.
const LINES: usize = 100;

/// The first time of a log that is found by itself.
const YEAR_2000_US: u64 = 946_684_800_000_000;

/// Returns the plan for the lines of the first file.
///
/// # Errors
///
/// [`Failure`] for an invalid format, for lines of JSON of no known form, and for a file that
/// cannot be read.
pub fn plan(arguments: &ReplayArguments, lines: &mut Lines) -> Result<Plan, Failure> {
    let name = if arguments.json_lines { Some("json") } else { arguments.format.as_deref() };
    let named = match name {
        Some("json") => return Ok(Plan::json()),
        Some(name) if formats::named(name).next().is_none() => {
            return Ok(Plan::text(name, arguments)?);
        }
        named => named,
    };
    let path = arguments.files.first().map_or("", String::as_str);
    let preview = lines.preview().map_err(|error| Failure::of_file(path, &error))?;
    let head: Vec<_> = preview.filter(|line| !line.is_empty()).take(LINES).collect();
    let plans: Vec<Plan> = match named {
        Some(name) => formats::named(name).flat_map(Plan::of).collect(),
        None => formats::every().flat_map(Plan::of).collect(),
    };
    let best = best(plans.iter(), &head);
    if let Some(plan) = best.or(named.and(plans.first())) {
        return Ok(plan.clone());
    }
    let is_json = head.first().is_some_and(|line| line.starts_with(b"{"));
    if is_json && arguments.key.is_none() {
        return Err(Failure::usage(
            "the lines are JSON of no known format: name the fields, as in --json-lines --time ts \
             --key client_ip",
        ));
    }
    // The first lines that are not read will say why.
    let text = if is_json { Ok(Plan::json()) } else { Plan::text(COMBINED, arguments) };
    let name = if is_json { "json" } else { "combined" };
    let is_guess = !is_json && named.is_none();
    Ok(Plan { name: name.to_owned(), is_guess, ..text? })
}

/// Returns the plan that reads most lines, if it reads more than half of them; the first of
/// several.
fn best<'a>(plans: impl Iterator<Item = &'a Plan>, head: &[&[u8]]) -> Option<&'a Plan> {
    let scored = plans.map(|plan| (score(plan, head).unwrap_or(0), plan));
    let best = scored.reduce(|best, next| if next.0 > best.0 { next } else { best });
    let lines = head.iter().filter(|line| !line.starts_with(COMMENT)).count();
    best.filter(|(score, _)| score * 2 > lines).map(|(_, plan)| plan)
}

/// Returns the number of lines that have the form, a time and the address of a client.
fn score(plan: &Plan, head: &[&[u8]]) -> Result<usize, Failure> {
    let mut names = Names::new(plan.aliases);
    let key = Template::parse(plan.key.unwrap_or_default(), &mut names)?;
    let time = Template::parse(&plan.time, &mut names)?;
    let marker = match &plan.layout {
        // The last variable is read, so that the line has all texts before it.
        Layout::Text(format) => format.last(),
        Layout::Json | Layout::Columns(_) => plan.marker,
    };
    let marker = marker.map(|name| names.field(name));
    let mut form = Form::new(plan, names)?;
    let (mut values, mut copies, mut stamps) = (Values::default(), Vec::new(), Stamps::default());
    let mut reads = |line: &[u8]| {
        if line.starts_with(COMMENT) {
            form.comment(line);
            return false;
        }
        if form.read(line, &mut values).is_err()
            || marker.is_some_and(|marker| values.get(line, marker).is_none())
        {
            return false;
        }
        let time = time.fill(line, &values, &mut copies).map(|time| stamps.read(time));
        // A small number is a length of time, and no time.
        let has_time = match time {
            Ok(Ok(stamp)) => stamp.us >= YEAR_2000_US,
            Ok(Err(reason)) => reason == NoStamp::NoOffset,
            Err(_) => false,
        };
        let has_key = key.is_empty(line, &values)
            || key
                .fill(line, &values, &mut copies)
                .is_ok_and(|key| key == b"unix:" || address(key).is_some());
        has_time && has_key
    };
    Ok(head.iter().filter(|line| reads(line)).count())
}
