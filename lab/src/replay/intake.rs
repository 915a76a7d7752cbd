//! From a line to a call: the fields, the conditions, the key, the time and the cost.

use super::arguments::ReplayArguments;
use super::condition::Condition;
use super::escaping::shown;
use super::event::{Event, Lane};
use super::failure::{BAD_LINES, Failure};
use super::fields::{Field, Names, Values};
use super::format::{BoundFormat, LogFormat, Mismatch};
use super::json::{DEPTH_MAX, JsonLines};
use super::keys::{BYTES_MAX, Full, KEY_LEN_MAX, KEYS_MAX, Keys};
use super::lanes::Lanes;
use super::lines::{LINE_LEN_MAX, Line};
use super::stamp::{Stamp, Stamps, seconds_us};
use super::template::Template;
use redis_throttle_engine::bounds::Cost;

/// The form of the lines.
#[derive(Clone, Debug)]
enum Form {
    Text(BoundFormat),
    Json(JsonLines),
}

/// The reason why a line is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bad {
    TooLong,
    Mismatch(Mismatch),
    NotJson,
    NoTime,
    Time,
    RequestTime,
    NoKey,
    LongKey,
    NoCost,
    Cost,
}

/// The cost of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Price {
    Fixed(u64),
    Field(Template),
}

/// The number of lines by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All lines that are not empty.
    pub lines: u64,
    /// The lines that were not read.
    pub bad: u64,
    /// The lines that a condition left out.
    pub left_out: u64,
    /// The lines with status 429, also those left out.
    pub denied_before: u64,
    /// The calls with the time that their request took.
    pub request_times: u64,
    /// The calls whose times are whole seconds.
    pub whole_seconds: u64,
}

/// One of the first lines that were not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The file.
    pub file: String,
    /// The number of the line in the file, counted from 1.
    pub line: u64,
    /// The reason.
    pub reason: String,
    /// The beginning of the line, escaped.
    pub text: String,
}

/// The reader of lines, and what it found so far.
#[derive(Debug)]
pub struct Intake {
    form: Form,
    time: Field,
    /// The field of the time that the request took.
    request_time: Option<Field>,
    status: Option<Field>,
    key: Template,
    price: Option<Price>,
    conditions: Vec<Condition>,
    lanes: Option<Lanes>,
    stamps: Stamps,
    values: Values,
    copies: Vec<u8>,
    skips_bad: bool,
    /// The keys.
    pub keys: Keys,
    /// The number of lines.
    pub counts: Counts,
    /// The first lines that were not read.
    pub samples: Vec<Sample>,
}

/// The number of bad lines that are shown.
const SAMPLES_MAX: usize = 3;

/// The number of characters of a bad line that are shown.
const SAMPLE_LEN: usize = 120;

/// If all of the first lines are bad, the replay ends after this number.
const HOPELESS: u64 = 1_000;

/// More bad lines than one in this number are an error.
const BAD_ONE_IN: u64 = 100;

/// The names of the fields with the status of the response.
const STATUS: &str = "status";

/// The status of a denied request.
const DENIED: &[u8] = b"429";

impl Intake {
    /// Makes the reader that the arguments ask for.
    ///
    /// # Errors
    ///
    /// [`Failure`] for an invalid argument.
    pub fn new(arguments: &ReplayArguments, lanes: Option<Lanes>) -> Result<Self, Failure> {
        let mut names = Names::default();
        let is_json = arguments.json_lines || arguments.format == "json";
        let format = if is_json { None } else { Some(LogFormat::parse(&arguments.format)?) };
        let key = match (&arguments.key, &format) {
            (Some(key), _) => key,
            (None, Some(format)) if format.has("remote_addr") => "$remote_addr",
            (None, _) => {
                let text = "missing --key: name the field to limit by, such as --key client_ip";
                return Err(Failure::usage(text));
            }
        };
        let key = Template::parse(key, &mut names)?;
        let price = price(arguments, &mut names)?;
        let conditions = arguments.conditions.iter();
        let conditions: Vec<_> = conditions
            .map(|condition| Condition::parse(condition, &mut names))
            .collect::<Result<_, _>>()?;
        let lanes = lanes.map(|lanes| lanes.bind(arguments, &mut names)).transpose()?;
        let time = names.field(time_name(arguments, format.as_ref())?);
        let wanted = |name: &str| format.as_ref().is_none_or(|format| format.has(name));
        let request_time = match arguments.request_time.as_deref() {
            Some("none") => None,
            Some(name) => Some(names.field(bare(name))),
            None if wanted("request_time") => Some(names.field("request_time")),
            None => None,
        };
        let status = wanted(STATUS).then(|| names.field(STATUS));
        let form = match format {
            Some(format) => Form::Text(format.bind(&names)?),
            None if names.all().any(|(_, name)| name.split('.').count() > DEPTH_MAX) => {
                return Err(Failure::usage(format!(
                    "invalid field: expected at most {DEPTH_MAX} names joined by dots"
                )));
            }
            None => Form::Json(JsonLines::new(&names)),
        };
        Ok(Self {
            form,
            time,
            request_time,
            status,
            key,
            price,
            conditions,
            lanes,
            stamps: Stamps::default(),
            values: Values::default(),
            copies: Vec::new(),
            skips_bad: arguments.skip_bad,
            keys: Keys::default(),
            counts: Counts::default(),
            samples: Vec::new(),
        })
    }

    /// Returns true if lines have the time that their request took.
    pub const fn has_request_time(&self) -> bool {
        self.request_time.is_some()
    }

    /// Returns the template of the keys.
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Returns the policies of the calls.
    pub const fn lanes(&self) -> Option<&Lanes> {
        self.lanes.as_ref()
    }

    /// Returns the time of a line without counting it; `None` if it has none.
    pub fn time_us(&mut self, line: Line<'_>) -> Option<u64> {
        let Line::Text(line) = line else { return None };
        self.read(line).ok()?;
        self.stamp(line).ok().map(|stamp| stamp.us)
    }

    /// Returns the call of a line; `None` for a line that is empty, bad or left out.
    ///
    /// # Errors
    ///
    /// [`Failure`] if there are too many keys, or if no line could be read so far.
    pub fn event(&mut self, line: Line<'_>, place: (&str, u64)) -> Result<Option<Event>, Failure> {
        let (Line::Text(text) | Line::TooLong(text)) = line;
        if text.is_empty() {
            return Ok(None);
        }
        self.counts.lines += 1;
        let event = match line {
            Line::Text(text) => self.call(text),
            Line::TooLong(_) => Ok(Err(Bad::TooLong)),
        };
        match event.map_err(full)? {
            Ok(event) => Ok(event),
            Err(bad) => {
                self.note(bad, text, place);
                let is_hopeless = self.counts.bad == HOPELESS && self.counts.lines == HOPELESS;
                if is_hopeless && !self.skips_bad { Err(self.failure()) } else { Ok(None) }
            }
        }
    }

    /// Returns an error if more lines are bad than are accepted.
    ///
    /// # Errors
    ///
    /// [`Failure`] with the first bad lines.
    pub fn check(&self) -> Result<(), Failure> {
        let is_bad = self.counts.bad.saturating_mul(BAD_ONE_IN) > self.counts.lines;
        if is_bad && !self.skips_bad { Err(self.failure()) } else { Ok(()) }
    }

    fn failure(&self) -> Failure {
        let Counts { bad, lines, .. } = self.counts;
        let mut text = format!("{bad} of {lines} lines were not read, more than 1 %. The first:\n");
        for Sample { file, line, reason, text: start } in &self.samples {
            text.push_str(&format!("  {file}, line {line}: {reason}: {start}\n"));
        }
        text.push_str("Name the format with --format, or continue without them with --skip-bad.");
        Failure { status: BAD_LINES, text }
    }

    fn note(&mut self, bad: Bad, line: &[u8], (file, number): (&str, u64)) {
        self.counts.bad += 1;
        if self.samples.len() < SAMPLES_MAX {
            let (file, reason) = (shown(file.as_bytes(), SAMPLE_LEN), self.explain(bad));
            let text = shown(line, SAMPLE_LEN);
            self.samples.push(Sample { file, line: number, reason, text });
        }
    }

    fn explain(&self, bad: Bad) -> String {
        match (bad, &self.form) {
            (Bad::Mismatch(mismatch), Form::Text(format)) => format.explain(mismatch),
            (Bad::TooLong, _) => format!("longer than {LINE_LEN_MAX} bytes"),
            (Bad::NotJson | Bad::Mismatch(_), _) => "expected one JSON object".to_owned(),
            (Bad::NoTime, _) => "no time: name its field with --time".to_owned(),
            (Bad::Time, _) => "invalid time: expected RFC 3339, a number of seconds or \
                               milliseconds, or 10/Oct/2026:13:55:36 +0200"
                .to_owned(),
            (Bad::RequestTime, _) => "invalid request time: expected seconds".to_owned(),
            (Bad::NoKey, _) => format!("no field for --key {}", self.key.as_str()),
            (Bad::LongKey, _) => format!("a key longer than {KEY_LEN_MAX} bytes"),
            (Bad::NoCost, _) => "no field for --cost".to_owned(),
            (Bad::Cost, _) => format!("invalid cost: expected an integer up to {}", Cost::MAX),
        }
    }

    fn read(&mut self, line: &[u8]) -> Result<(), Bad> {
        match &self.form {
            Form::Text(format) => format.read(line, &mut self.values).map_err(Bad::Mismatch),
            Form::Json(json) => json.read(line, &mut self.values).map_err(|_| Bad::NotJson),
        }
    }

    fn stamp(&mut self, line: &[u8]) -> Result<Stamp, Bad> {
        let time = self.values.get(line, self.time).ok_or(Bad::NoTime)?;
        self.stamps.read(time).ok_or(Bad::Time)
    }

    /// Reads the call of a line. The outer error ends the replay.
    fn call(&mut self, line: &[u8]) -> Result<Result<Option<Event>, Bad>, Full> {
        match self.parts(line) {
            Err(bad) => Ok(Err(bad)),
            Ok(None) => Ok(Ok(None)),
            Ok(Some(mut event)) => {
                let values = &self.values;
                let Some(key) = self.key.fill(line, values, &mut self.copies) else {
                    return Ok(Err(Bad::NoKey));
                };
                if key.len() > KEY_LEN_MAX {
                    return Ok(Err(Bad::LongKey));
                }
                self.counts.whole_seconds += u64::from(event.whole_second);
                (event.key, event.lane) = match &mut self.lanes {
                    None => (self.keys.number(key)?, Lane::NONE),
                    Some(lanes) => lanes.number(line, values, key, &mut self.keys)?,
                };
                Ok(Ok(Some(event)))
            }
        }
    }

    /// Reads all of a call except its key; `None` if a condition leaves it out.
    fn parts(&mut self, line: &[u8]) -> Result<Option<Event>, Bad> {
        self.read(line)?;
        let get = |field: Option<Field>| field.and_then(|field| self.values.get(line, field));
        if get(self.status) == Some(DENIED) {
            self.counts.denied_before += 1;
        }
        if !self.conditions.iter().all(|condition| condition.holds(line, &self.values)) {
            self.counts.left_out += 1;
            return Ok(None);
        }
        let request_us = get(self.request_time).unwrap_or_default();
        let has_request_time = !matches!(request_us, b"" | b"-");
        let request_us = seconds_us(request_us).ok_or(Bad::RequestTime)?;
        let request_us = u32::try_from(request_us).unwrap_or(u32::MAX);
        let cost = match &self.price {
            None => 1,
            Some(Price::Fixed(units)) => *units,
            Some(Price::Field(template)) => {
                let value = template.fill(line, &self.values, &mut self.copies);
                units(value.ok_or(Bad::NoCost)?).ok_or(Bad::Cost)?
            }
        };
        let Stamp { us: at_us, whole_second } = self.stamp(line)?;
        self.counts.request_times += u64::from(has_request_time);
        Ok(Some(Event { at_us, cost, key: 0, request_us, lane: Lane::NONE, whole_second }))
    }
}

/// Returns the name without the `$` that some write.
fn bare(name: &str) -> &str {
    name.strip_prefix('$').unwrap_or(name)
}

fn price(arguments: &ReplayArguments, names: &mut Names) -> Result<Option<Price>, String> {
    let Some(cost) = arguments.cost.as_deref() else { return Ok(None) };
    if cost.bytes().all(|byte| byte.is_ascii_digit()) {
        let units = units(cost.as_bytes());
        let units = units.ok_or_else(|| {
            format!("invalid cost: expected a field or an integer up to {}", Cost::MAX)
        })?;
        return Ok(Some(Price::Fixed(units)));
    }
    Template::parse(cost, names).map(|template| Some(Price::Field(template)))
}

/// Reads a cost. The `-` of a log is none.
fn units(text: &[u8]) -> Option<u64> {
    if text == b"-" {
        return Some(0);
    }
    let units: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Cost::new(units).map(Cost::units)
}

/// Returns the name of the field with the time.
fn time_name<'a>(
    arguments: &'a ReplayArguments,
    format: Option<&LogFormat>,
) -> Result<&'a str, String> {
    if let Some(name) = &arguments.time {
        return Ok(bare(name));
    }
    let Some(format) = format else { return Ok("time") };
    let known = ["msec", "time_local", "time_iso8601"].into_iter().find(|name| format.has(name));
    known.ok_or_else(|| {
        "the format has no time: expected $msec, $time_local or $time_iso8601, or --time with the \
         name of another field"
            .to_owned()
    })
}

fn full(full: Full) -> Failure {
    Failure::usage(match full {
        Full::Keys => format!(
            "the log has more than {KEYS_MAX} keys: use a coarser --key such as \
             '$remote_addr/24/56', or leave lines out with --where"
        ),
        Full::Bytes => format!(
            "the keys have more than {BYTES_MAX} bytes: use a shorter --key, or leave lines out \
             with --where"
        ),
    })
}

#[cfg(test)]
mod tests;
