//! The form of a log's lines, and the reader of their fields.

use super::arguments::ReplayArguments;
use super::columns::Columns;
use super::failure::Failure;
use super::fields::{Field, Names, Values};
use super::format::{BoundFormat, LogFormat, Mismatch, Part};
use super::formats::{Aliases, End, Named, SYSLOG, Shape};
use super::json::{DEPTH_MAX, JsonLines};
use super::stamp::Unit;

/// The known properties of a log's lines: their form, and the fields that matter.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name of the format, for the report.
    pub name: String,
    /// The lines.
    pub layout: Layout,
    /// The default of `--key`.
    pub key: Option<&'static str>,
    /// The time: a field, or a template of several.
    pub time: String,
    /// The field of the time that a request took, and its unit.
    pub request_time: Option<(String, Unit)>,
    /// Whether the unit of that time is known, and not only the usual one.
    pub knows_unit: bool,
    /// The source of the request's end, if the time of a line is the beginning.
    pub end: End,
    /// A field that only lines of this format have.
    pub marker: Option<&'static str>,
    /// The fields that have another name here.
    pub aliases: Aliases,
    /// Whether no format was named and none fits the first lines.
    pub is_guess: bool,
}

/// The form of the lines.
#[derive(Clone, Debug)]
pub enum Layout {
    /// A text with variables.
    Text(LogFormat),
    /// An object of JSON.
    Json,
    /// Columns, with their default names.
    Columns(&'static str),
}

/// The field of the time that a request took, in nginx.
const REQUEST_TIME: &str = "request_time";

/// The fields with a time, in nginx.
const TIMES: [&str; 3] = ["msec", "time_local", "time_iso8601"];

impl Plan {
    /// Returns the plans of a format with a name: one for each text and field of the time that its
    /// lines may have.
    pub fn of(named: &'static Named) -> Vec<Self> {
        let layouts = match named.shape {
            Shape::Text(texts) => texts
                .iter()
                .filter_map(|text| LogFormat::parse(text).ok())
                .map(Layout::Text)
                .collect(),
            Shape::Syslog(texts) => {
                let behind = |text: &&str| SYSLOG.map(|prefix| format!("{prefix}{text}"));
                let texts = texts.iter().flat_map(behind);
                texts.filter_map(|text| LogFormat::parse(&text).ok()).map(Layout::Text).collect()
            }
            Shape::Json => vec![Layout::Json],
            Shape::Columns(default) => vec![Layout::Columns(default)],
        };
        let plan = |(layout, time): (&Layout, &&str)| Self {
            name: named.name.to_owned(),
            layout: layout.clone(),
            key: Some(named.key),
            time: (*time).to_owned(),
            request_time: named.request_time.map(|(name, unit)| (name.to_owned(), unit)),
            knows_unit: named.knows_unit,
            end: named.end,
            marker: named.marker,
            aliases: named.aliases,
            is_guess: false,
        };
        let times = |layout| named.times.iter().map(move |time| (layout, time));
        layouts.iter().flat_map(times).map(plan).collect()
    }

    /// Returns the plan for lines of JSON without a name.
    pub fn json() -> Self {
        Self {
            name: "json".to_owned(),
            layout: Layout::Json,
            key: None,
            time: "time".to_owned(),
            request_time: Some((REQUEST_TIME.to_owned(), Unit::S)),
            knows_unit: false,
            end: End::AtTime,
            marker: None,
            aliases: &[],
            is_guess: false,
        }
    }

    /// Returns the plan for the text of nginx's `log_format`.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong with the format.
    pub fn text(text: &str, arguments: &ReplayArguments) -> Result<Self, String> {
        let format = LogFormat::parse(text)?;
        let key = Some("$remote_addr").filter(|_| format.has("remote_addr"));
        if key.is_none() && arguments.key.is_none() {
            return Err(
                "missing --key: the format has no $remote_addr, so name the field to limit by"
                    .to_owned(),
            );
        }
        let time = TIMES.into_iter().find(|name| format.has(name));
        let time = time.filter(|_| arguments.time.is_none());
        if time.is_none() && arguments.time.is_none() {
            return Err(
                "the format has no time: expected $msec, $time_local or $time_iso8601, or \
                        --time with the name of another field"
                    .to_owned(),
            );
        }
        let has_request_time = format.has(REQUEST_TIME);
        Ok(Self {
            name: text.to_owned(),
            key,
            layout: Layout::Text(format),
            time: time.unwrap_or_default().to_owned(),
            request_time: has_request_time.then(|| (REQUEST_TIME.to_owned(), Unit::S)),
            knows_unit: false,
            end: End::AtTime,
            marker: None,
            aliases: &[],
            is_guess: false,
        })
    }

    /// Returns true if the lines may have a field.
    pub fn may_have(&self, name: &str) -> bool {
        match &self.layout {
            Layout::Text(format) => format.has(name),
            Layout::Json | Layout::Columns(_) => true,
        }
    }
}

/// The parts of `$request` under the names that nginx and the templates have for them.
const PARTS: [(&str, Part); 6] = [
    ("path", Part::Path),
    ("uri", Part::Uri),
    ("request_uri", Part::Uri),
    ("method", Part::Method),
    ("request_method", Part::Method),
    ("protocol", Part::Protocol),
];

/// A reader of the fields of lines.
#[derive(Clone, Debug)]
pub struct Form {
    reader: Reader,
    /// Fields that are parts of others, where lines have only those: the field, the other one, and
    /// the part.
    parts: Vec<(Field, Field, Part)>,
    copies: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Reader {
    Text(BoundFormat),
    Json(JsonLines),
    Columns(Columns),
}

/// The reason why a line does not have the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoForm {
    /// A text is missing.
    Mismatch(Mismatch),
    /// The line is not one object of JSON.
    NotJson,
    /// The line has fewer columns than were named.
    TooFew,
}

impl Form {
    /// Creates a reader of these fields.
    ///
    /// # Errors
    ///
    /// [`Failure`] for a field that the lines cannot have.
    pub fn new(plan: &Plan, mut names: Names) -> Result<Self, Failure> {
        let mut parts = Vec::new();
        if !matches!(plan.layout, Layout::Text(_)) {
            let whole = if names.own("uri") == "uri" { "request" } else { "uri" };
            for (name, part) in PARTS {
                let is_part = names.own(name) == name && (whole == "request" || name == "path");
                let own = names.all().find(|(_, own)| *own == name).map(|(field, _)| field);
                if let Some(field) = own.filter(|_| is_part) {
                    parts.push((field, names.field(whole), part));
                }
            }
        }
        let reader = match &plan.layout {
            Layout::Text(format) => Reader::Text(format.clone().bind(&names)?),
            Layout::Json if names.all().any(|(_, name)| name.split('.').count() > DEPTH_MAX) => {
                return Err(Failure::usage(format!(
                    "invalid field: expected at most {DEPTH_MAX} names joined by dots"
                )));
            }
            Layout::Json => Reader::Json(JsonLines::new(&names)),
            Layout::Columns(default) => Reader::Columns(Columns::new(&names, default)),
        };
        Ok(Self { reader, parts, copies: Vec::new() })
    }

    /// Reads the wanted fields of a line.
    ///
    /// # Errors
    ///
    /// [`NoForm`] if the line does not have the form.
    pub fn read(&mut self, line: &[u8], values: &mut Values) -> Result<(), NoForm> {
        match &mut self.reader {
            Reader::Text(format) => format.read(line, values).map_err(NoForm::Mismatch)?,
            Reader::Json(json) => json.read(line, values).map_err(|_| NoForm::NotJson)?,
            Reader::Columns(columns) => {
                columns.read(line, values).map_err(|_| NoForm::TooFew)?;
            }
        }
        for (field, whole, part) in &self.parts {
            let Some(value) = values.get(line, *whole) else { continue };
            if field != whole && values.get(line, *field).is_some() {
                continue;
            }
            self.copies.clear();
            let range = part.range(value);
            self.copies.extend_from_slice(value.get(range).unwrap_or_default());
            values.set_copy(*field, &self.copies);
        }
        Ok(())
    }

    /// Reads a comment, which may name columns.
    pub fn comment(&mut self, line: &[u8]) {
        if let Reader::Columns(columns) = &mut self.reader {
            columns.comment(line);
        }
    }

    /// Forgets what comments said.
    pub fn forget_comments(&mut self) {
        if let Reader::Columns(columns) = &mut self.reader {
            columns.forget();
        }
    }

    /// Returns true if comments named different columns.
    pub const fn changed(&self) -> bool {
        matches!(&self.reader, Reader::Columns(columns) if columns.changed())
    }

    /// Returns the reason in words.
    pub fn explain(&self, reason: NoForm) -> String {
        match (reason, &self.reader) {
            (NoForm::Mismatch(mismatch), Reader::Text(format)) => format.explain(mismatch),
            (NoForm::TooFew, _) => "fewer columns than `#Fields:` names".to_owned(),
            (NoForm::NotJson | NoForm::Mismatch(_), _) => "expected one JSON object".to_owned(),
        }
    }
}
