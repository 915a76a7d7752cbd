//! The calls of one file, without lines from the future.
//!
//! A line whose time is far after that of the lines before it may follow a pause, or may be wrong.
//! It is kept until the lines behind it are read: if most of them are far before it, it is bad.

use super::event::Event;
use super::failure::Failure;
use super::intake::{COMMENT, Intake, Read};
use super::lines::{Line, Lines};
use std::collections::VecDeque;

/// A time is far after another one from this length on, in microseconds.
const FAR_US: u64 = 60_000_000;

/// The lines that judge one.
const JUDGES: usize = 1_000;

/// So few lines at the end of a file may all be wrong.
const FEW: usize = 10;

const DAY_US: u64 = 86_400_000_000;

/// An open file.
pub struct Source {
    path: String,
    lines: Lines,
    /// The lines that were read ahead.
    ahead: VecDeque<Ahead>,
    /// The first and the latest time of a call so far.
    first_us: u64,
    latest_us: u64,
}

/// A line that was read ahead.
struct Ahead {
    number: u64,
    text: Vec<u8>,
    is_too_long: bool,
    at_us: Option<u64>,
}

impl Ahead {
    fn is_comment(&self) -> bool {
        self.text.starts_with(COMMENT)
    }

    fn line(&self) -> Line<'_> {
        if self.is_too_long { Line::TooLong(&self.text) } else { Line::Text(&self.text) }
    }
}

impl Source {
    /// Creates the source of an open file.
    pub const fn new(path: String, lines: Lines) -> Self {
        Self { path, lines, ahead: VecDeque::new(), first_us: 0, latest_us: 0 }
    }

    /// Returns the next call; `None` at the end, when the file is closed.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the file cannot be read, or of the intake.
    pub fn next_event(&mut self, intake: &mut Intake) -> Result<Option<Event>, Failure> {
        loop {
            let near_us = self.latest_us.saturating_add(FAR_US);
            if let Some(first) = self.ahead.front() {
                let place = (self.path.as_str(), first.number);
                let mut read = intake.event(first.line(), place, near_us)?;
                if read == Read::Far {
                    self.look_ahead(intake)?;
                    let Some(first) = self.ahead.front() else { continue };
                    let place = (self.path.as_str(), first.number);
                    read = if self.is_future() {
                        intake.refuse_future(first.line(), place);
                        Read::Nothing
                    } else {
                        intake.event(first.line(), place, u64::MAX)?
                    };
                }
                self.ahead.pop_front();
                match self.call(read) {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                }
            }
            let number = self.lines.number() + 1;
            let line =
                self.lines.next_line().map_err(|error| Failure::of_file(&self.path, &error))?;
            let Some(line) = line else {
                if let Some(cut) = self.lines.cut() {
                    intake.note_cut(&self.path, number - 1, cut);
                }
                self.lines.close();
                return Ok(None);
            };
            let read = intake.event(line, (&self.path, number), near_us)?;
            if read == Read::Far {
                self.ahead.push_back(ahead(line, number, intake));
            } else if let Some(event) = self.call(read) {
                return Ok(Some(event));
            }
        }
    }

    fn call(&mut self, read: Read) -> Option<Event> {
        let Read::Call(event) = read else { return None };
        if self.latest_us == 0 {
            self.first_us = event.at_us;
        }
        self.latest_us = self.latest_us.max(event.at_us);
        Some(event)
    }

    /// Reads the lines that judge the first one that was read ahead, up to a comment, which may
    /// name other columns.
    fn look_ahead(&mut self, intake: &mut Intake) -> Result<(), Failure> {
        while self.ahead.len() <= JUDGES && !self.ahead.back().is_some_and(Ahead::is_comment) {
            let number = self.lines.number() + 1;
            let line =
                self.lines.next_line().map_err(|error| Failure::of_file(&self.path, &error))?;
            let Some(line) = line else { break };
            self.ahead.push_back(ahead(line, number, intake));
        }
        Ok(())
    }

    /// Returns true if most of the lines behind the first one are far before it, or if it is one of
    /// a few at the end, more than a day and than the whole file so far after the others.
    fn is_future(&self) -> bool {
        let mut times = self.ahead.iter().filter_map(|line| line.at_us);
        let Some(first_us) = times.next() else { return false };
        let pause_us = first_us.saturating_sub(self.latest_us);
        let is_few = self.latest_us > 0 && self.ahead.len() < FEW;
        if is_few && pause_us > DAY_US.max(self.latest_us - self.first_us) {
            return true;
        }
        let (before, all) = times.fold((0_usize, 0_usize), |(before, all), at_us| {
            (before + usize::from(at_us.saturating_add(FAR_US) < first_us), all + 1)
        });
        before * 2 > all
    }
}

fn ahead(line: Line<'_>, number: u64, intake: &mut Intake) -> Ahead {
    let (Line::Text(text) | Line::TooLong(text)) = line;
    let is_too_long = matches!(line, Line::TooLong(_));
    Ahead { number, text: text.to_vec(), is_too_long, at_us: intake.time_us(line) }
}
