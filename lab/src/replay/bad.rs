//! The reasons why a line is not read.

use super::form::{Form, NoForm};
use super::keys::KEY_LEN_MAX;
use super::lines::LINE_LEN_MAX;
use super::stamp::NoStamp;
use redis_throttle_engine::bounds::Cost;

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

/// The reason why a line is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is longer than [`LINE_LEN_MAX`].
    TooLong,
    /// It has another form.
    Form(NoForm),
    /// It has no time.
    NoTime,
    /// Its time cannot be read.
    Time(NoStamp),
    /// Its time is far after those of the lines before it; the lines behind it decide.
    Far,
    /// Its time is far after those of the lines behind it.
    Future,
    /// The time that the request took cannot be read.
    RequestTime,
    /// The address of the client cannot be found.
    NoClient,
    /// A field of the key is missing.
    NoKey,
    /// The field whose network is the key has no address.
    NoAddress,
    /// The key is longer than [`KEY_LEN_MAX`].
    LongKey,
    /// The field of the cost is missing.
    NoCost,
    /// The cost is not an integer in its range.
    Cost,
}

impl Bad {
    /// Returns the reason in words, for lines of a form and keys of a template.
    pub fn explain(self, form: &Form, key: &str) -> String {
        match self {
            Self::TooLong => format!("longer than {LINE_LEN_MAX} bytes"),
            Self::Form(reason) => form.explain(reason),
            Self::NoTime => "no time: name its field with --time".to_owned(),
            Self::Time(NoStamp::Form) => "invalid time: expected RFC 3339, a number of seconds or \
                                         milliseconds, or 10/Oct/2026:13:55:36 +0200"
                .to_owned(),
            Self::Time(NoStamp::DateAlone) => {
                "a date without a time of day: join two fields, as in --time '$date $time'"
                    .to_owned()
            }
            Self::Time(NoStamp::NoOffset) => {
                "a time without an offset from UTC: name it with --utc-offset, such as +02:00"
                    .to_owned()
            }
            Self::Far | Self::Future => "a time far after those of the lines behind it".to_owned(),
            Self::RequestTime => {
                "invalid request time: expected a number of seconds, or --request-time FIELD:ms"
                    .to_owned()
            }
            Self::NoClient => "no address of a client behind --trusted-proxies".to_owned(),
            Self::NoKey => format!("no field for --key {key}"),
            Self::NoAddress => format!("no address for --key {key}"),
            Self::LongKey => format!("a key longer than {KEY_LEN_MAX} bytes"),
            Self::NoCost => "no field for --cost".to_owned(),
            Self::Cost => format!("invalid cost: expected an integer up to {}", Cost::MAX),
        }
    }
}
