//! From a line to a call: the fields, the conditions, the key, the time and the cost.

use super::address::Proxies;
use super::arguments::ReplayArguments;
use super::bad::{Bad, Sample};
use super::condition::Condition;
use super::counts::{Counts, LONG_US};
use super::escaping::printable;
use super::event::{Applied, Event};
use super::failure::{BAD_LINES, Failure};
use super::fields::{Field, Names, Values};
use super::form::{Form, Plan};
use super::formats::End;
use super::keys::{Full, KEY_LEN_MAX, Keys};
use super::lines::Line;
use super::policies::Policies;
use super::price::Price;
use super::stamp::{NoStamp, Stamp, Stamps, Unit, offset_s};
use super::template::{NoText, Template};

/// The reader of lines, and what it found so far.
#[derive(Debug)]
pub struct Intake {
    form: Form,
    time: Template,
    /// The field of the time that the request took, and its unit.
    request_time: Option<(Field, Unit)>,
    /// The end of a request whose line has its beginning.
    end: Option<(Field, End)>,
    /// The proxies, the field of the peer, if there is one, and that of the forwarded addresses.
    proxies: Option<(Proxies, Option<Field>, Field)>,
    status: Option<Field>,
    key: Template,
    price: Option<Price>,
    conditions: Vec<Condition>,
    policies: Option<Policies>,
    stamps: Stamps,
    /// Whether no format fits the first lines.
    is_guess: bool,
    /// The bad lines whose times have no offset, and those with a tab.
    without_offset: u64,
    with_tab: u64,
    values: Values,
    copies: Vec<u8>,
    skips_bad: bool,
    /// The keys.
    pub keys: Keys,
    /// The number of lines.
    pub counts: Counts,
    /// The first lines that were not read.
    pub samples: Vec<Sample>,
    /// The files that could not be read to their ends.
    pub cuts: Vec<String>,
}

/// The result of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A call.
    Call(Event),
    /// Nothing: the line is empty, a comment, bad or left out.
    Nothing,
    /// A time that is too far ahead; nothing was counted.
    Far,
}

/// The number of bad lines that are printed.
const SAMPLES_MAX: usize = 3;

/// The number of characters of a bad line that are printed.
const SAMPLE_LEN: usize = 120;

/// If all of the first lines are bad, the replay ends after this number.
const HOPELESS: u64 = 1_000;

/// More bad lines than one in this number are an error.
const BAD_ONE_IN: u64 = 100;

/// The name of the field with the status of the response.
const STATUS: &str = "status";

/// A line that begins with this is a comment.
pub const COMMENT: &[u8] = b"#";

/// The status of a denied request.
const DENIED: &[u8] = b"429";

impl Intake {
    /// Creates the reader that the arguments request, for lines of this plan.
    ///
    /// # Errors
    ///
    /// [`Failure`] for an invalid argument.
    pub fn new(
        arguments: &ReplayArguments,
        plan: &Plan,
        policies: Option<Policies>,
    ) -> Result<Self, Failure> {
        let mut names = Names::new(plan.aliases);
        let Some(key) = arguments.key.as_deref().or(plan.key) else {
            let text = "missing --key: name the field to limit by, such as --key client_ip";
            return Err(Failure::usage(text));
        };
        let key = Template::parse(key, &mut names)?;
        let price = Price::parse(arguments, &mut names)?;
        let conditions = arguments.conditions.iter();
        let conditions: Vec<_> = conditions
            .map(|condition| Condition::parse(condition, &mut names))
            .collect::<Result<_, _>>()?;
        let policies = policies.map(|policies| policies.bind(arguments, &mut names)).transpose()?;
        let time = Template::parse(arguments.time.as_deref().unwrap_or(&plan.time), &mut names)?;
        let request_time = match arguments.request_time.as_deref() {
            Some("none") => None,
            Some(text) => Some(request_time(text)?),
            None => plan.request_time.clone(),
        };
        let request_time = request_time.map(|(name, unit)| (names.field(&name), unit));
        let is_own = arguments.time.is_none() && arguments.request_time.is_none();
        let end = Some(plan.end).filter(|_| is_own).and_then(|end| match end {
            End::AtTime => None,
            End::Since(name) | End::After(name, _) => Some((names.field(name), end)),
        });
        let proxies = arguments.trusted_proxies.as_deref().map(Proxies::parse).transpose()?;
        let proxies = proxies.map(|proxies| {
            let peer = plan.may_have("remote_addr").then(|| names.field("remote_addr"));
            (proxies, peer, names.field("http_x_forwarded_for"))
        });
        let status = plan.may_have(STATUS).then(|| names.field(STATUS));
        let utc_offset_s = arguments.utc_offset.as_deref().map(|text| {
            offset_s(text.as_bytes()).ok_or_else(|| {
                Failure::usage(format!("invalid --utc-offset `{text}`: expected +02:00"))
            })
        });
        Ok(Self {
            form: Form::new(plan, names)?,
            time,
            request_time,
            end,
            proxies,
            status,
            key,
            price,
            conditions,
            policies,
            stamps: Stamps::new(utc_offset_s.transpose()?),
            is_guess: plan.is_guess,
            without_offset: 0,
            with_tab: 0,
            values: Values::default(),
            copies: Vec::new(),
            skips_bad: arguments.skip_bad,
            keys: Keys::default(),
            counts: Counts::default(),
            samples: Vec::new(),
            cuts: Vec::new(),
        })
    }

    /// Returns true if lines have the time that their request took.
    pub const fn has_request_time(&self) -> bool {
        self.request_time.is_some() || self.end.is_some()
    }

    /// Returns the template of the keys.
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Returns true if the keys are joined of several fields.
    pub fn key_is_joined(&self) -> bool {
        self.key.is_joined()
    }

    /// Returns the policies of the calls.
    pub const fn policies(&self) -> Option<&Policies> {
        self.policies.as_ref()
    }

    /// Reads a comment, which may name columns; does nothing for other lines.
    pub fn comment(&mut self, line: Line<'_>) {
        if let Line::Text(line) = line
            && line.starts_with(COMMENT)
        {
            self.form.comment(line);
        }
    }

    /// Forgets what comments said, before another file is read.
    pub fn forget_comments(&mut self) {
        self.form.forget_comments();
    }

    /// Returns the time of a line without counting it; `None` if it has none.
    pub fn time_us(&mut self, line: Line<'_>) -> Option<u64> {
        let Line::Text(line) = line else { return None };
        if line.starts_with(COMMENT) {
            return None;
        }
        self.form.read(line, &mut self.values).ok()?;
        self.stamp_of_end(line).ok().map(|(stamp, _)| stamp.us)
    }

    /// Reads a line, unless its time is after `near_us`.
    ///
    /// # Errors
    ///
    /// [`Failure`] if there are too many keys, or if no line could be read so far.
    pub fn event(
        &mut self,
        line: Line<'_>,
        place: (&str, u64),
        near_us: u64,
    ) -> Result<Read, Failure> {
        let (Line::Text(text) | Line::TooLong(text)) = line;
        if text.is_empty() {
            return Ok(Read::Nothing);
        }
        if text.starts_with(COMMENT) {
            self.form.comment(text);
            return Ok(Read::Nothing);
        }
        let event = match line {
            Line::Text(text) => self.call(text, near_us),
            Line::TooLong(_) => Ok(Err(Bad::TooLong)),
        };
        let read = match event.map_err(Full::failure)? {
            Ok(Some(event)) => Read::Call(event),
            Ok(None) => Read::Nothing,
            Err(Bad::Far) => return Ok(Read::Far),
            Err(bad) => {
                self.note(bad, text, place);
                Read::Nothing
            }
        };
        self.counts.lines += 1;
        let is_hopeless = self.counts.bad == HOPELESS && self.counts.lines == HOPELESS;
        if is_hopeless && !self.skips_bad { Err(self.failure()) } else { Ok(read) }
    }

    /// Counts a line as bad, because its time is far after those of the lines behind it.
    pub fn refuse_future(&mut self, line: Line<'_>, place: (&str, u64)) {
        let (Line::Text(text) | Line::TooLong(text)) = line;
        self.counts.lines += 1;
        self.note(Bad::Future, text, place);
    }

    /// Notes that a file could be read only up to a line.
    pub fn note_cut(&mut self, path: &str, lines: u64, reason: &str) {
        let path = printable(path.as_bytes(), SAMPLE_LEN);
        self.cuts.push(format!("{path} could be read only up to line {lines}: {reason}."));
    }

    /// Returns an error if more lines are bad than are accepted, or if several files have columns
    /// of different names.
    ///
    /// # Errors
    ///
    /// [`Failure`] with the first bad lines.
    pub fn check(&self, files: usize) -> Result<(), Failure> {
        if files > 1 && self.form.changed() {
            let text = "the files have different columns (#Fields): replay them one by one";
            return Err(Failure::usage(text));
        }
        let is_bad = self.counts.bad.saturating_mul(BAD_ONE_IN) > self.counts.lines;
        if is_bad && !self.skips_bad { Err(self.failure()) } else { Ok(()) }
    }

    fn failure(&self) -> Failure {
        let Counts { bad, lines, .. } = self.counts;
        let mut text = format!("{bad} of {lines} lines were not read, more than 1 %. The first:\n");
        for Sample { file, line, reason, text: start } in &self.samples {
            text.push_str(&format!("  {file}, line {line}: {reason}: {start}\n"));
        }
        text.push_str(self.advice());
        Failure { status: BAD_LINES, text }
    }

    /// Returns what to do about the bad lines.
    fn advice(&self) -> &'static str {
        let bad = self.counts.bad;
        if self.without_offset * 2 > bad {
            "Name the offset of these times with --utc-offset, such as +02:00, or Z for UTC."
        } else if self.is_guess && self.with_tab * 2 > bad {
            "No format fits the first lines. Columns need a line with their names before them, as \
             in (echo '#Fields: timestamp c-ip x-edge-location'; cat FILE) | redis-throttle-lab \
             replay -, with all names in their order."
        } else if self.is_guess {
            "No format fits the first lines (--help lists them). Describe the lines with the text \
             of nginx's log_format, as in --format '$remote_addr [$time_local] $status'."
        } else {
            "Name the format with --format (--help lists them), or continue without these lines \
             with --skip-bad."
        }
    }

    fn note(&mut self, bad: Bad, line: &[u8], (file, number): (&str, u64)) {
        self.counts.bad += 1;
        self.without_offset += u64::from(bad == Bad::Time(NoStamp::NoOffset));
        self.with_tab += u64::from(line.contains(&b'\t'));
        if self.samples.len() < SAMPLES_MAX {
            let (file, reason) = (
                printable(file.as_bytes(), SAMPLE_LEN),
                bad.explain(&self.form, self.key.as_str()),
            );
            let text = printable(line, SAMPLE_LEN);
            self.samples.push(Sample { file, line: number, reason, text });
        }
    }

    fn read(&mut self, line: &[u8]) -> Result<(), Bad> {
        self.form.read(line, &mut self.values).map_err(Bad::Form)?;
        let Some((proxies, peer, forwarded)) = &self.proxies else { return Ok(()) };
        let get = |field: Field| self.values.get(line, field).unwrap_or_default();
        let (client, is_forwarded) =
            proxies.client(peer.map(get), get(*forwarded)).ok_or(Bad::NoClient)?;
        self.counts.forwarded += u64::from(is_forwarded);
        self.values.set_copy(peer.unwrap_or(*forwarded), client.to_string().as_bytes());
        Ok(())
    }

    fn stamp(&mut self, line: &[u8]) -> Result<Stamp, Bad> {
        let time = self.time.fill(line, &self.values, &mut self.copies);
        self.stamps.read(time.map_err(|_| Bad::NoTime)?).map_err(Bad::Time)
    }

    /// Returns the time at which the line was written, and how long the request took if its time
    /// is that of the beginning.
    fn stamp_of_end(&mut self, line: &[u8]) -> Result<(Stamp, u64), Bad> {
        let stamp = self.stamp(line)?;
        let Some((field, end)) = self.end else { return Ok((stamp, 0)) };
        let value = self.values.get(line, field).unwrap_or_default();
        match end {
            End::AtTime => Ok((stamp, 0)),
            End::Since(_) => {
                let begin_us = self.stamps.read(value).map_err(Bad::Time)?.us;
                let us = stamp.us.max(begin_us);
                Ok((Stamp { us, ..stamp }, us - begin_us))
            }
            // The parts of a second that a request took would move a time of whole seconds.
            End::After(..) if stamp.whole_second => Ok((stamp, 0)),
            End::After(_, unit) => {
                let last = value.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                let last = last.strip_prefix(b"+").unwrap_or(last);
                let took_us = unit.duration_us(last).unwrap_or(0);
                Ok((Stamp { us: stamp.us.saturating_add(took_us), ..stamp }, took_us))
            }
        }
    }

    /// Reads the call of a line. The outer error ends the replay.
    fn call(&mut self, line: &[u8], near_us: u64) -> Result<Result<Option<Event>, Bad>, Full> {
        match self.parts(line, near_us) {
            Err(bad) => Ok(Err(bad)),
            Ok(None) => Ok(Ok(None)),
            Ok(Some(mut event)) => {
                let values = &self.values;
                if self.key.is_empty(line, values) {
                    self.counts.without_key += 1;
                    return Ok(Ok(None));
                }
                let key = match self.key.fill(line, values, &mut self.copies) {
                    Ok(key) => key,
                    Err(NoText::Missing) => return Ok(Err(Bad::NoKey)),
                    Err(NoText::NoAddress) => return Ok(Err(Bad::NoAddress)),
                };
                if key.len() > KEY_LEN_MAX {
                    return Ok(Err(Bad::LongKey));
                }
                self.counts.whole_seconds += u64::from(event.whole_second);
                (event.key, event.applied) = match &mut self.policies {
                    None => (self.keys.number(key)?, Applied::NONE),
                    Some(policies) => policies.number(line, values, key, &mut self.keys)?,
                };
                Ok(Ok(Some(event)))
            }
        }
    }

    /// Reads all of a call except its key; `None` if a condition leaves it out.
    fn parts(&mut self, line: &[u8], near_us: u64) -> Result<Option<Event>, Bad> {
        self.read(line)?;
        let get = |field: Option<Field>| field.and_then(|field| self.values.get(line, field));
        let was_denied = u64::from(get(self.status) == Some(DENIED));
        if !self.conditions.iter().all(|condition| condition.holds(line, &self.values)) {
            self.counts.left_out += 1;
            self.counts.denied_before += was_denied;
            return Ok(None);
        }
        let took = self.request_time.and_then(|(field, unit)| {
            let text = get(Some(field)).filter(|text| !matches!(*text, b"" | b"-"))?;
            Some((unit.duration_us(text), text.iter().all(u8::is_ascii_digit)))
        });
        let is_whole = took.is_some_and(|(_, is_whole)| is_whole);
        let request_us = match took {
            None => None,
            Some((us, _)) => Some(us.ok_or(Bad::RequestTime)?),
        };
        let cost = match &self.price {
            None => 1,
            Some(price) => price.read(line, &self.values, &mut self.copies)?,
        };
        let (Stamp { us: at_us, whole_second }, took_us) = self.stamp_of_end(line)?;
        if at_us > near_us {
            return Err(Bad::Far);
        }
        self.counts.denied_before += was_denied;
        if let Some(request_us) = request_us {
            // Only times of the wrong unit reach back so far.
            if request_us > at_us {
                return Err(Bad::RequestTime);
            }
            self.counts.request_times += 1;
            self.counts.long_requests += u64::from(request_us > LONG_US);
            let first_end_us = *self.counts.first_end_us.get_or_insert(at_us);
            self.counts.early_requests += u64::from(at_us - request_us < first_end_us);
            self.counts.longest_us = self.counts.longest_us.max(request_us);
            self.counts.fine_times += u64::from(!is_whole);
            self.counts.whole_times += u64::from(is_whole && request_us > 0);
        }
        let request_us = request_us.unwrap_or(took_us);
        Ok(Some(Event { at_us, cost, key: 0, request_us, applied: Applied::NONE, whole_second }))
    }
}

/// Reads the name of a field, with or without `$`, and the unit of its values.
fn request_time(text: &str) -> Result<(String, Unit), String> {
    let name = text.strip_prefix('$').unwrap_or(text);
    let (name, unit) = match name.rsplit_once(':') {
        Some((name, unit)) if !name.is_empty() => {
            let unit = Unit::named(unit).ok_or_else(|| {
                format!("invalid --request-time `{text}`: expected a unit, one of s ms us ns")
            })?;
            (name, unit)
        }
        _ => (name, Unit::S),
    };
    Ok((name.to_owned(), unit))
}

#[cfg(test)]
mod tests;
