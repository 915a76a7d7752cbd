//! The errors of a fake server, with the texts of the module.

use redis_throttle_engine::algorithms::OtherAlgorithm;
use redis_throttle_engine::call::ChargeError;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::reservations::window::ReservationError;

use super::keys::WrongType;

/// The reason for which a command is refused.
#[derive(Debug)]
pub(super) enum Refused {
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
    /// Returns the text of the error reply to `command`.
    pub fn text(&self, command: &str) -> String {
        match self {
            Self::Grammar(error) => match error.text() {
                Some(text) => text.to_string_lossy().into_owned(),
                None => {
                    let command = command.to_ascii_lowercase();
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
                let text = error.text(command);
                let (prefix, rest) = text.split_once(' ').unwrap_or(("ERR", &text));
                format!("{prefix} rule {number}: {rest}")
            }
            Self::UnknownCommand => format!("ERR unknown command '{command}'"),
        }
    }
}
