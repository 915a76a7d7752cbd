//! The errors of commands, with the texts of the module and of the server.

use crate::algorithms::OtherAlgorithm;
use crate::call::ChargeError;
use crate::grammar::error::GrammarError;
use crate::reservations::window::ReservationError;

use super::keys::WrongType;

/// The reason for which a command is refused.
#[derive(Debug)]
pub enum Refused {
    Grammar(GrammarError),
    WrongType,
    NoPolicy,
    RepeatedKey,
    Charge(ChargeError),
    Reservation(ReservationError),
    InRule { number: usize, error: Box<Refused> },
    UnknownCommand,
}

impl From<GrammarError> for Refused {
    fn from(error: GrammarError) -> Self {
        Self::Grammar(error)
    }
}

impl From<WrongType> for Refused {
    fn from(WrongType: WrongType) -> Self {
        Self::WrongType
    }
}

impl From<OtherAlgorithm> for Refused {
    fn from(OtherAlgorithm: OtherAlgorithm) -> Self {
        Self::WrongType
    }
}

impl From<ChargeError> for Refused {
    fn from(error: ChargeError) -> Self {
        Self::Charge(error)
    }
}

impl From<ReservationError> for Refused {
    fn from(error: ReservationError) -> Self {
        match error {
            ReservationError::OtherAlgorithm => Self::WrongType,
            ReservationError::Charge(error) => Self::Charge(error),
            error => Self::Reservation(error),
        }
    }
}

impl Refused {
    /// Returns the text of the error reply to the command with these words.
    pub fn text(&self, words: &[&[u8]]) -> String {
        match self {
            Self::Grammar(error) => match error.text() {
                Some(text) => text.to_string_lossy().into_owned(),
                None => {
                    let command = words.first().map(|command| command.to_ascii_lowercase());
                    let command = printable(&command.unwrap_or_default());
                    format!("ERR wrong number of arguments for '{command}' command")
                }
            },
            Self::WrongType | Self::Charge(ChargeError::OtherAlgorithm) => {
                "WRONGTYPE the key does not hold a state of this algorithm".to_owned()
            }
            Self::NoPolicy => "NOPOLICY no such policy".to_owned(),
            Self::RepeatedKey => "ERR repeated key: each key may be given once".to_owned(),
            Self::Charge(ChargeError::TooManyUnits) => {
                "ERR invalid cost: the total of used units must not exceed 2000000000000".to_owned()
            }
            Self::Charge(ChargeError::TooLong) => {
                "ERR invalid cost: the time until the key is reset must not exceed 36525d"
                    .to_owned()
            }
            Self::Reservation(ReservationError::TooMany) => {
                "ERR too many reservations: a key remembers at most 1024 ids at a time".to_owned()
            }
            Self::Reservation(_) => {
                "ERR invalid id: already committed, use a new id for each job".to_owned()
            }
            Self::InRule { number, error } => {
                let text = error.text(words);
                let (prefix, rest) = text.split_once(' ').unwrap_or(("ERR", &text));
                format!("{prefix} rule {number}: {rest}")
            }
            Self::UnknownCommand => unknown(words),
        }
    }
}

/// The most bytes of a client that an error repeats, twice: of the name, and of the arguments.
const REPEATED_BYTES: usize = 128;

/// Returns the server's error for a command that it does not know.
fn unknown(words: &[&[u8]]) -> String {
    let name = printable(words.first().unwrap_or(&b"".as_slice()));
    let mut text = format!("ERR unknown command '{name}', with args beginning with: ");
    let mut left = REPEATED_BYTES;
    for arg in words.iter().skip(1) {
        let arg = printable(&arg[..arg.len().min(left)]);
        text.push_str(&format!("'{arg}' "));
        left = left.saturating_sub(arg.len() + 3);
        if left == 0 {
            break;
        }
    }
    text
}

/// Returns the beginning of a client's bytes on one line.
fn printable(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(REPEATED_BYTES)];
    String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ")
}
