//! Steps of a schedule, played on several lanes at once. Each lane has its own keys, and the same
//! steps must give the same replies, bytes and expiry on all lanes.

use std::collections::BTreeSet;

use redis::Value;

use crate::clock::Clock;
use crate::library::{Call, Form, Library, Request};
use support::{Client, fuzz, integers, raw_error};

/// The number of steps of one instant that are sent before their replies are read.
const BATCH: usize = 50;

/// The allowed difference between two numbers that are too large for a double to hold exactly.
const NEAR: u64 = 4_096;

/// A step of a schedule, played on every lane.
#[derive(Debug, Clone)]
pub enum Step {
    /// Sets the clock to this instant, in microseconds since the Unix epoch.
    Clock(i64),
    /// Makes a call. A lane without a form of its own uses this form.
    Call(Request, Form),
    /// Runs commands of another client.
    Meddle(Vec<Vec<Word>>),
}

/// A word of a command of another client.
#[derive(Debug, Clone)]
pub enum Word {
    Text(Vec<u8>),
    /// A key, to which each lane adds its suffix.
    Key(Vec<u8>),
}

/// A set of keys with the same suffix, and the form of the calls on them.
#[derive(Debug, Clone, Copy)]
pub struct Lane {
    pub suffix: &'static str,
    /// The form of the calls; `None` if each call gives its own.
    pub form: Option<Form>,
}

/// The outcomes of a schedule.
#[derive(Debug, Default)]
pub struct Outcomes {
    pub calls: u64,
    pub allowed: u64,
    pub denied: u64,
    pub errors: u64,
    pub wrongtypes: u64,
    /// The error texts without the number of the rule.
    pub texts: BTreeSet<String>,
}

/// The step after which two lanes differ, and a description of the difference.
#[derive(Debug)]
pub struct Difference {
    step: usize,
    what: String,
}

/// A server with the module and the library, its clock, and the lanes.
pub struct Scene<'scene> {
    pub client: &'scene mut Client,
    pub clock: &'scene Clock,
    pub library: &'scene Library,
    pub lanes: &'scene [Lane],
}

impl Scene<'_> {
    /// Plays the steps on an empty database. If lanes differ, panics with the fewest steps for
    /// which they still do.
    pub fn play(&mut self, steps: &[Step], outcomes: &mut Outcomes) {
        if let Err(difference) = self.try_play(steps, outcomes) {
            let (steps, difference) = self.shrink(steps[..=difference.step].to_vec(), difference);
            panic!("{}\n{}", difference.what, self.as_lines(&steps));
        }
    }

    fn try_play(&mut self, steps: &[Step], outcomes: &mut Outcomes) -> Result<(), Difference> {
        self.client.ok("FLUSHALL");
        let mut from = 0;
        while from < steps.len() {
            if let Step::Clock(us) = steps[from] {
                self.clock.set(self.client, us);
                from += 1;
                continue;
            }
            let of_instant = steps[from..].iter().take(BATCH);
            let count = of_instant.take_while(|step| !matches!(step, Step::Clock(_))).count();
            self.try_batch(from, &steps[from..from + count], outcomes)?;
            from += count;
        }
        Ok(())
    }

    fn try_batch(
        &mut self,
        first: usize,
        steps: &[Step],
        outcomes: &mut Outcomes,
    ) -> Result<(), Difference> {
        let groups = steps.iter().map(|step| self.commands(step)).collect::<Vec<_>>();
        let replies = self.client.pipeline(&groups.concat());
        let mut rest = replies.as_slice();
        for (place, (step, group)) in steps.iter().zip(&groups).enumerate() {
            let (own, others) = rest.split_at(group.len());
            rest = others;
            if let Step::Call(request, _) = step {
                let of_step = executed(own).map(|executed| {
                    let before = if request.is_cut_short() { self.lanes.len() } else { 0 };
                    [&own[..before], executed].concat()
                });
                let compared =
                    of_step.and_then(|of_step| self.compare(request, &of_step, outcomes));
                compared.map_err(|what| Difference { step: first + place, what })?;
            }
        }
        Ok(())
    }

    /// Returns the commands of a step as a transaction, in which time stands still on every server.
    fn commands(&self, step: &Step) -> Vec<Call> {
        let (calls, looks) = match step {
            Step::Clock(_) => (Vec::new(), Vec::new()),
            Step::Call(request, any) => (self.calls(request, *any), self.looks(request)),
            Step::Meddle(lines) => {
                let of_lane = |lane: &Lane| {
                    let lane = *lane;
                    lines.iter().map(move |line| line.iter().map(|word| word.on(lane)).collect())
                };
                (self.lanes.iter().flat_map(of_lane).collect(), Vec::new())
            }
        };
        let (multi, exec) = (vec![vec![b"MULTI".to_vec()]], vec![vec![b"EXEC".to_vec()]]);
        match step {
            // A call with too few words cannot be queued in a transaction, so it is sent before.
            Step::Call(request, _) if request.is_cut_short() => {
                [calls, multi, looks, exec].concat()
            }
            _ => [multi, calls, looks, exec].concat(),
        }
    }

    /// Returns the words of the call on every lane.
    fn calls(&self, request: &Request, any: Form) -> Vec<Call> {
        let calls = self.lanes.iter().map(|lane| {
            let form = lane.form.unwrap_or(any);
            request.with_suffix(lane.suffix).call(form, self.library)
        });
        calls.collect()
    }

    /// Returns the commands that read the call's keys on every lane.
    fn looks(&self, request: &Request) -> Vec<Call> {
        let looks = self.lanes.iter().flat_map(|lane| {
            let keys = request.with_suffix(lane.suffix).keys.into_iter();
            keys.flat_map(|key| {
                [&b"DUMP"[..], b"PEXPIRETIME"].map(|word| vec![word.to_vec(), key.clone()])
            })
        });
        looks.collect()
    }

    /// Compares each lane with the first one.
    fn compare(
        &self,
        request: &Request,
        replies: &[Value],
        outcomes: &mut Outcomes,
    ) -> Result<(), String> {
        let (returned, looks) = replies.split_at(self.lanes.len());
        let looks = looks.chunks(2 * request.keys.len()).collect::<Vec<_>>();
        for (place, lane) in self.lanes.iter().enumerate().skip(1) {
            if !is_same(&returned[place], &returned[0]) {
                let [first, own] = [&returned[0], &returned[place]].map(format_reply);
                return Err(format!("{}: it replies {own}, not {first}", lane.suffix));
            }
            if !looks[place].iter().zip(looks[0]).all(|(own, other)| is_same(own, other)) {
                let [first, own] = [looks[0], looks[place]]
                    .map(|looks| looks.iter().map(format_reply).collect::<Vec<_>>().join(" "));
                let reply = format_reply(&returned[0]);
                return Err(format!(
                    "{}: after {reply} the key is\n  {own}, not\n  {first}",
                    lane.suffix
                ));
            }
        }
        outcomes.calls += 1;
        let error = raw_error(&returned[0]);
        outcomes.errors += u64::from(error.is_some());
        if let Some(error) = error {
            assert!(fuzz::is_known(&error), "{error}");
            outcomes.wrongtypes += u64::from(error.starts_with("WRONGTYPE"));
            outcomes.texts.insert(fuzz::without_rule(&error));
        }
        let first = match &returned[0] {
            Value::Array(fields) => {
                let five = fields.iter().take(5).cloned().collect();
                integers(&Value::Array(five)).map(|five| five[0])
            }
            Value::Int(number) => Some(*number),
            _ => None,
        };
        outcomes.allowed += u64::from(first.is_some_and(|first| first > 0));
        outcomes.denied += u64::from(first == Some(0));
        Ok(())
    }

    /// Removes steps while the lanes still differ, until every remaining step is needed.
    fn shrink(&mut self, mut steps: Vec<Step>, mut found: Difference) -> (Vec<Step>, Difference) {
        let mut size = steps.len() / 2;
        while size > 0 {
            let mut from = 0;
            while from < steps.len() {
                let mut fewer = steps.clone();
                fewer.drain(from..(from + size).min(steps.len()));
                match self.try_play(&fewer, &mut Outcomes::default()) {
                    Err(difference) => {
                        fewer.truncate(difference.step + 1);
                        (steps, found) = (fewer, difference);
                    }
                    Ok(()) => from += size,
                }
            }
            size /= 2;
        }
        (steps, found)
    }

    /// Formats the steps as lines for `redis-cli`.
    fn as_lines(&self, steps: &[Step]) -> String {
        let mut lines = Vec::new();
        for step in steps {
            match step {
                Step::Clock(us) => lines.push(format!("# the clock shows {us} us")),
                step => {
                    let commands = self.commands(step);
                    let is_ours = |call: &&Call| {
                        let looks = [&b"MULTI"[..], b"EXEC", b"DUMP", b"PEXPIRETIME"];
                        !looks.contains(&call[0].as_slice())
                    };
                    lines.extend(commands.iter().filter(is_ours).map(line));
                }
            }
        }
        lines.join("\n")
    }
}

impl Word {
    fn on(&self, lane: Lane) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Key(key) => [key, lane.suffix.as_bytes()].concat(),
        }
    }
}

/// Returns the replies of a transaction, or the error that ended it.
fn executed(replies: &[Value]) -> Result<&[Value], String> {
    match replies.last() {
        Some(Value::Array(replies)) => Ok(replies),
        _ => {
            let refused = replies.iter().filter_map(raw_error).collect::<Vec<_>>();
            Err(format!("the server does not queue it: {refused:?}"))
        }
    }
}

/// Returns true if two replies are equal. Lua's integer replies are exact up to 2^53, which is
/// 285,000 years in ms. Larger integers may differ a little; they occur only if a rule reads a debt
/// that another rule stored.
fn is_same(own: &Value, other: &Value) -> bool {
    match (own, other) {
        (Value::Int(own), Value::Int(other)) => {
            own == other || (*own.min(other) >= 1 << 53 && own.abs_diff(*other) <= NEAR)
        }
        (Value::Array(own), Value::Array(other)) => {
            own.len() == other.len()
                && own.iter().zip(other).all(|(own, other)| is_same(own, other))
        }
        (own, other) => own == other,
    }
}

/// Formats a reply for an error message.
fn format_reply(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::Array(parts) => {
            format!("[{}]", parts.iter().map(format_reply).collect::<Vec<_>>().join(" "))
        }
        Value::Int(number) => number.to_string(),
        other => raw_error(other).unwrap_or_else(|| format!("{other:?}")),
    }
}

/// Formats a command for `redis-cli`.
fn line(call: &Call) -> String {
    let words = call.iter().map(|word| {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b":.-_".contains(byte);
        match word.iter().all(is_plain) && !word.is_empty() {
            true => String::from_utf8_lossy(word).into_owned(),
            false => {
                let bytes = word.iter().map(|byte| match byte {
                    b' '..=b'~' if !b"\"\\".contains(byte) => char::from(*byte).to_string(),
                    byte => format!("\\x{byte:02x}"),
                });
                format!("\"{}\"", bytes.collect::<String>())
            }
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
