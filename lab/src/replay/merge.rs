//! The calls of several files, merged by their times.
//!
//! A file is opened again when its first time comes, so rotated files are open one after the other.

use super::event::Event;
use super::failure::Failure;
use super::intake::Intake;
use super::lines::{Lines, STANDARD_INPUT};
use super::source::Source;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The most files.
pub const FILES_MAX: usize = 500;

/// The first time of a file is looked for in this many lines.
const FIRST_LINES: usize = 1_000;

/// The first time is the earliest of this many, because one of them may be wrong.
const FIRST_TIMES: usize = 10;

/// The calls of several files.
pub struct Merge {
    /// The files that were not opened yet, with their first times, the earliest last.
    waiting: Vec<(u64, String)>,
    open: Vec<Open>,
    /// The path and the lines of the file that was opened to find the format.
    first: Option<(String, Lines)>,
    /// The time of each open file's next call, the time of its first one, and its place. Of calls
    /// with the same time, that of the older file comes first.
    next: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// The bytes read so far.
    read: Arc<AtomicU64>,
}

/// An open file, and its next call.
struct Open {
    source: Source,
    first_us: Option<u64>,
    head: Option<Event>,
}

impl Merge {
    /// Looks for the first time of each file. Adds the bytes that are read later to `read`. The
    /// first file is `first`, if that was opened.
    ///
    /// # Errors
    ///
    /// [`Failure`] if a file cannot be read.
    pub fn new(
        paths: &[String],
        intake: &mut Intake,
        read: Arc<AtomicU64>,
        first: Option<Lines>,
    ) -> Result<Self, Failure> {
        if paths.len() > FILES_MAX {
            let text = format!("too many files: expected at most {FILES_MAX}; join some with cat");
            return Err(Failure::usage(text));
        }
        if paths.iter().filter(|path| *path == STANDARD_INPUT).count() > 1 {
            return Err(Failure::usage("the standard input, `-`, is named twice"));
        }
        let mut waiting = Vec::new();
        for path in paths {
            // A pipe cannot be opened again, and one file needs no order.
            let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
            let is_pipe = path == STANDARD_INPUT || !is_file && fs::exists(path).unwrap_or(false);
            let is_first = is_pipe || paths.len() == 1;
            let first_us = if is_first { 0 } else { first_time_us(path, intake)? };
            waiting.push((first_us, path.clone()));
        }
        let first = paths.first().cloned().zip(first);
        // Files with the same first time keep their order.
        waiting.reverse();
        waiting.sort_by_key(|(first_us, _)| Reverse(*first_us));
        Ok(Self { waiting, open: Vec::new(), next: BinaryHeap::new(), read, first })
    }

    /// Returns the call with the earliest time among the next ones of all files; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`Failure`] if a file cannot be read, or of the intake.
    pub fn next_event(&mut self, intake: &mut Intake) -> Result<Option<Event>, Failure> {
        loop {
            let due_us = self.next.peek().map(|Reverse((at_us, ..))| *at_us);
            let opens =
                |(first_us, _): &mut (u64, String)| due_us.is_none_or(|due| *first_us <= due);
            let Some((_, path)) = self.waiting.pop_if(opens) else { break };
            let lines = match self.first.take_if(|(first, _)| *first == path) {
                Some((_, lines)) => lines,
                None => {
                    let lines = Lines::open(&path, Arc::clone(&self.read));
                    lines.map_err(|error| Failure::of_file(&path, &error))?
                }
            };
            self.open.push(Open { source: Source::new(path, lines), first_us: None, head: None });
            self.refill(self.open.len() - 1, intake)?;
        }
        let Some(Reverse((_, _, place))) = self.next.pop() else { return Ok(None) };
        let event = self.open.get_mut(place).and_then(|open| open.head.take());
        self.refill(place, intake)?;
        Ok(event)
    }

    /// Reads the next call of a file.
    fn refill(&mut self, place: usize, intake: &mut Intake) -> Result<(), Failure> {
        let Some(Open { source, first_us, head }) = self.open.get_mut(place) else {
            return Ok(());
        };
        if let Some(event) = source.next_event(intake)? {
            *head = Some(event);
            let first_us = *first_us.get_or_insert(event.at_us);
            self.next.push(Reverse((event.at_us, first_us, place)));
        }
        Ok(())
    }
}

/// Returns the first time in a file; the latest of all times if its first lines have none.
fn first_time_us(path: &str, intake: &mut Intake) -> Result<u64, Failure> {
    let (mut first_us, mut found) = (u64::MAX, 0);
    let mut look = || -> io::Result<()> {
        let mut lines = Lines::open(path, Arc::default())?;
        for _ in 0..FIRST_LINES {
            let Some(line) = lines.next_line()? else { break };
            intake.comment(line);
            if let Some(at_us) = intake.time_us(line) {
                (first_us, found) = (first_us.min(at_us), found + 1);
            }
            if found == FIRST_TIMES {
                break;
            }
        }
        Ok(())
    };
    let looked = look();
    intake.forget_comments();
    looked.map_err(|error| Failure::of_file(path, &error))?;
    Ok(first_us)
}
