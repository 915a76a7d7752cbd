//! Replays the requests of a log against limits, and reports what they would have denied.
//!
//! ```text
//!  detecting ──> formats            what the lines look like
//!  a thread:   merge ──> source ──> lines       files to lines, in the order of time
//!                └─────> intake ──> form, stamp, template, address, condition, policies, keys
//!                           │       a line to a call: its key's number, its time, its cost
//!                           v events, in batches
//!  this one:   order                late lines, and the lines of one second
//!                └─────> deciding ──> trial ──> states, tally     rules on stored bytes
//!                           │   └───> suggest ──> ladder          the smallest limits
//!                           v
//!              report ──> text, html                              what is printed
//! ```

pub mod address;
pub mod arguments;
mod bad;
mod chunked;
mod columns;
pub mod condition;
mod counts;
mod deciding;
mod detecting;
mod escaping;
mod event;
pub mod failure;
pub mod fields;
mod form;
pub mod format;
mod formats;
mod html;
mod intake;
pub mod json;
mod keys;
mod ladder;
pub mod lines;
mod link;
mod merge;
mod moments;
mod order;
mod policies;
mod price;
mod progress;
mod report;
mod source;
pub mod stamp;
mod states;
mod suggest;
mod tally;
pub mod template;
mod text;
mod trial;
mod wording;

use arguments::{InSecond, ReplayArguments};
use counts::Counts;
use deciding::Deciding;
use event::Event;
use failure::{BAD_LINES, Failure};
use form::Plan;
use intake::Intake;
use lines::Lines;
use link::Link;
use merge::Merge;
use order::{KEPT_LEN, Timeline, WINDOW_MAX_US};
use policies::Policies;
use progress::Progress;
use redis_throttle_engine::grammar::number;
use report::{BadLine, LimitReport, LinesReport, LinkReport, Report};
use std::io::{ErrorKind, Write as _, stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use wording::count;

/// The calls that one thread hands to the other at once.
const BATCH_LEN: usize = 4_096;

/// If this number of request times are whole numbers and none has a fraction, their unit is
/// doubtful.
const WHOLE_TIMES: u64 = 10;

/// If more requests than one in this number, and more than a few, began before the first one
/// ended, the unit of their times is doubtful.
const EARLY_ONE_IN: u64 = 20;
const EARLY_FEW: u64 = 10;

/// The batches that may wait.
const BATCHES_MAX: usize = 8;

/// Runs a replay: the report goes to the standard output, all else to the standard error.
pub fn run(arguments: &ReplayArguments) -> ExitCode {
    let printed = replay(arguments).and_then(|report| {
        print(arguments, &report)?;
        Ok(report.doubts.is_empty())
    });
    match printed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(BAD_LINES),
        Err(failure) => {
            let _ = writeln!(stderr(), "redis-throttle-lab: {failure}");
            ExitCode::from(failure.status)
        }
    }
}

/// Writes the report to the standard output, then the HTML to its file.
fn print(arguments: &ReplayArguments, report: &Report) -> Result<(), Failure> {
    let text = if arguments.json {
        let json = serde_json::to_string_pretty(report);
        json.map_err(|error| format!("cannot write JSON: {error}"))? + "\n"
    } else {
        text::text(report)
    };
    let mut output = stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => {}
        // A reader such as `head` closes the output when it has enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => return Err(format!("cannot write the report: {error}").into()),
    }
    let Some(path) = &arguments.html else { return Ok(()) };
    let written = std::fs::write(path, html::document(report));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()).into())
}

/// Replays the files.
///
/// # Errors
///
/// [`Failure`] if an argument or a file is wrong, or if too many lines could not be read.
fn replay(arguments: &ReplayArguments) -> Result<Report, Failure> {
    let window_us = reorder_us(&arguments.reorder)?;
    check_html(arguments)?;
    let policies = arguments.policies.as_deref().map(Policies::read).transpose()?;
    let read = Arc::new(AtomicU64::new(0));
    let path = arguments.files.first().map_or("", String::as_str);
    let first = Lines::open(path, Arc::clone(&read));
    let mut first = first.map_err(|error| Failure::of_file(path, &error))?;
    let plan = detecting::plan(arguments, &mut first)?;
    let mut deciding = Deciding::new(arguments, policies.as_ref().map(Policies::list))?;
    let mut intake = Intake::new(arguments, &plan, policies)?;
    let spreads = arguments.in_second == InSecond::Spread;
    let mut timeline = Timeline::new(window_us, spreads, intake.has_request_time());
    let mut merge = Merge::new(&arguments.files, &mut intake, Arc::clone(&read), Some(first))?;
    let progress = Progress::new(&arguments.files);
    let (sender, receiver) = sync_channel(BATCHES_MAX);
    let (produced, decided) = thread::scope(|scope| {
        let producer = scope.spawn(|| produce(&mut merge, &mut intake, sender));
        let show = || progress.show(read.load(Ordering::Relaxed));
        let decided = decide(receiver, &mut timeline, &mut deciding, show);
        (producer.join(), decided)
    });
    progress.finish();
    // A failure of the limits ends both threads.
    decided?;
    produced.unwrap_or_else(|_| Err(Failure::usage("the reader stopped: please report this")))?;
    intake.check(arguments.files.len())?;
    check_order(arguments, timeline.late(), deciding.calls)?;
    Ok(report(arguments, &plan, &intake, &timeline, &deciding))
}

/// Refuses a log of which more than 1 % could not be put in order: its figures would be wrong.
fn check_order(arguments: &ReplayArguments, late: u64, calls: u64) -> Result<(), Failure> {
    if late.saturating_mul(100) <= calls {
        return Ok(());
    }
    let is_pipe = arguments.files.iter().any(|file| file == lines::STANDARD_INPUT);
    let advice = if is_pipe {
        "Name the files in place of the pipe: they are merged by time. Or keep"
    } else {
        "Keep"
    };
    let text = format!(
        "{late} of {calls} calls came {} lines or more after later ones, more than 1 %, so the \
         figures would be wrong. {advice} more lines to put them in order: --reorder 1d, or as \
         long as the log.",
        wording::grouped(KEPT_LEN as u64)
    );
    Err(Failure { status: BAD_LINES, text })
}

/// Refuses an HTML file that would replace a file which the replay reads.
fn check_html(arguments: &ReplayArguments) -> Result<(), Failure> {
    let Some(html) = arguments.html.as_ref().and_then(|html| html.canonicalize().ok()) else {
        return Ok(());
    };
    let mut inputs = arguments.files.iter().chain(&arguments.policies);
    if inputs.any(|path| std::fs::canonicalize(path).is_ok_and(|path| path == html)) {
        let text = "invalid --html: expected a file that the replay does not read";
        return Err(Failure::usage(text));
    }
    Ok(())
}

/// Reads all calls, until the receiver is gone.
fn produce(
    merge: &mut Merge,
    intake: &mut Intake,
    sender: SyncSender<Vec<Event>>,
) -> Result<(), Failure> {
    let mut batch = Vec::with_capacity(BATCH_LEN);
    while let Some(event) = merge.next_event(intake)? {
        batch.push(event);
        if batch.len() == BATCH_LEN {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH_LEN));
            if sender.send(full).is_err() {
                return Ok(());
            }
        }
    }
    let _ = sender.send(batch);
    Ok(())
}

/// Decides all calls, in the order of time.
fn decide(
    receiver: Receiver<Vec<Event>>,
    timeline: &mut Timeline,
    deciding: &mut Deciding,
    show: impl Fn(),
) -> Result<(), Failure> {
    let mut ordered = Vec::new();
    for batch in receiver {
        for event in batch {
            timeline.push(event, &mut |event| ordered.push(event));
        }
        // Without a receiver, the reader ends too.
        deciding.call_all(&ordered)?;
        ordered.clear();
        show();
    }
    // Many calls are kept until now: they are decided in batches, so that few of them stand twice.
    let mut decided = Ok(());
    timeline.finish(&mut |event| {
        ordered.push(event);
        if ordered.len() >= BATCH_LEN && decided.is_ok() {
            decided = deciding.call_all(&ordered);
            ordered.clear();
        }
    });
    decided?;
    deciding.call_all(&ordered)
}

/// Reads the window of time in which lines are put in order.
fn reorder_us(text: &str) -> Result<u64, Failure> {
    if matches!(text, "0" | "0s") {
        return Ok(0);
    }
    let window_us = number::period(text.as_bytes()).map(|period| period.as_us());
    window_us.filter(|us| *us <= WINDOW_MAX_US).ok_or_else(|| {
        Failure::usage(format!("invalid --reorder `{text}`: expected 0 to 366d, such as 1h"))
    })
}

fn report(
    arguments: &ReplayArguments,
    plan: &Plan,
    intake: &Intake,
    timeline: &Timeline,
    deciding: &Deciding,
) -> Report {
    let Counts { lines, bad, left_out, without_key, denied_before, .. } = intake.counts;
    let first_bad = intake.samples.iter().cloned().map(|sample| BadLine {
        file: sample.file,
        line: sample.line,
        reason: sample.reason,
        text: sample.text,
    });
    let lines = LinesReport {
        read: lines,
        bad,
        first_bad: first_bad.collect(),
        left_out,
        without_key,
        late: timeline.late(),
        denied_before,
    };
    let limits = deciding.limits(&intake.keys);
    Report {
        version: env!("CARGO_PKG_VERSION"),
        files: arguments.files.clone(),
        format: plan.name.clone(),
        from_us: deciding.span_us.map(|(from_us, _)| from_us),
        to_us: deciding.span_us.map(|(_, to_us)| to_us),
        calls: deciding.calls,
        keys: intake.keys.len() as u64,
        key: intake.key().to_owned(),
        doubts: doubts(arguments, plan, intake, (timeline.late(), deciding.calls)),
        notes: notes(arguments, intake, &lines),
        lab_link: lab_link(arguments, intake, &limits),
        limits,
        policies: deciding.policies(),
        suggestion: deciding.suggestion(arguments, &intake.keys),
        lines,
    }
}

/// Returns the link to the lab's page that the arguments request.
fn lab_link(
    arguments: &ReplayArguments,
    intake: &Intake,
    limits: &[LimitReport],
) -> Option<LinkReport> {
    let limit = limits.first().filter(|_| arguments.open)?;
    let rules = arguments.rules.clone();
    let choices = if arguments.all {
        vec![rules]
    } else {
        rules.into_iter().map(|rule| vec![rule]).collect()
    };
    let link = link::link(&limit.timeline, intake.keys.len() as u64, &choices)?;
    let Link { address, keys, from_us, to_us } = link;
    Some(LinkReport { address, keys, from_us, to_us })
}

/// Returns why the figures may be wrong.
fn doubts(
    arguments: &ReplayArguments,
    plan: &Plan,
    intake: &Intake,
    (late, calls): (u64, u64),
) -> Vec<String> {
    let mut doubts = intake.cuts.clone();
    let Counts { lines, request_times, long_requests, forwarded, .. } = intake.counts;
    let Counts { fine_times, whole_times, early_requests, .. } = intake.counts;
    if late > 0 {
        doubts.push(format!(
            "{} out of order by more than {} lines and {}, and count later than they were. Keep \
             more lines with --reorder, as long as the longest request or as the log.",
            count(late, "line is", "lines are"),
            wording::grouped(KEPT_LEN as u64),
            arguments.reorder
        ));
    }
    if lines > 0 && calls == 0 {
        doubts.push("no line gave a call: see --key, --where and --time.".to_owned());
    }
    if arguments.trusted_proxies.is_some() && lines > 0 && forwarded == 0 {
        doubts.push("no line names a client behind the --trusted-proxies.".to_owned());
    }
    let named = arguments.request_time.as_deref().map_or(plan.knows_unit, has_unit);
    if !named && fine_times == 0 && whole_times >= WHOLE_TIMES {
        doubts.push(
            "all request times are whole numbers, which times in seconds seldom are. Name the \
             unit, as in --request-time FIELD:ms, or FIELD:s if that is true."
                .to_owned(),
        );
    } else if !named && long_requests.saturating_mul(10) > request_times {
        doubts.push(format!(
            "{} of {request_times} took longer than 10 minutes, if their times are seconds. Name \
             the unit, as in --request-time FIELD:ms, or FIELD:s if that is true.",
            count(long_requests, "request", "requests")
        ));
    } else if !named && early_requests > (request_times / EARLY_ONE_IN).max(EARLY_FEW) {
        doubts.push(format!(
            "{} of {request_times} began before the log does, if their times are seconds. Name the \
             unit, as in --request-time FIELD:ms, or FIELD:s if that is true.",
            count(early_requests, "request", "requests")
        ));
    }
    doubts
}

/// Returns true if the argument of --request-time names a unit.
fn has_unit(text: &str) -> bool {
    text.contains(':')
}

/// Returns what to know about the figures.
fn notes(arguments: &ReplayArguments, intake: &Intake, lines: &LinesReport) -> Vec<String> {
    let mut notes = Vec::new();
    if intake.counts.whole_seconds > 0 {
        let place = match arguments.in_second {
            InSecond::AtOnce => "are placed at its beginning",
            InSecond::Spread => "are spread evenly over it",
        };
        notes.push(format!(
            "Times are whole seconds: the lines of one second {place} (--in-second), which \
             hides or makes bursts. Log exact times if you can: see --help."
        ));
    }
    if intake.counts.request_times > 0 {
        notes.push(format!(
            "The time that a request took is subtracted, at most {}: a call counts when its \
             request began.",
            wording::length(intake.counts.longest_us)
        ));
    }
    if arguments.utc_offset.is_some() {
        notes.push(
            "Times without an offset are read with --utc-offset: after a change of daylight \
             saving time they are wrong by an hour, so replay each side of it by itself, with its \
             own offset."
                .to_owned(),
        );
    }
    if lines.without_key > 0 {
        let part = if intake.key_is_joined() { "the user, the address or all of " } else { "" };
        notes.push(format!(
            "{} no key: {part}`{}` is empty or `-`. No limit counts them.",
            count(lines.without_key, "line has", "lines have"),
            intake.key()
        ));
    }
    if lines.denied_before > 0 || !arguments.conditions.is_empty() {
        let status = match lines.denied_before {
            0 => String::new(),
            denied => format!("{} status 429. ", count(denied, "line has", "lines have")),
        };
        notes.push(format!(
            "{status}Denied clients change traffic: they retry, wait or give up, so a log with a \
             limit in force shows other calls than one without."
        ));
    }
    if let Some(unknown) =
        intake.policies().map(|policies| policies.unknown).filter(|count| *count > 0)
    {
        notes.push(format!(
            "{} no policy of the file, and {} allowed.",
            count(unknown, "call names", "calls name"),
            if unknown == 1 { "is" } else { "are" }
        ));
    }
    notes
}
