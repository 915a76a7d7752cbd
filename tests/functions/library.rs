//! The library, the script, and the three forms of a call: by the module, by a function, by the
//! script.

use std::fs;
use std::path::Path;

use support::{Client, text};

/// The words of one call.
pub type Call = Vec<Vec<u8>>;

/// The form of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Module,
    Function,
    Script,
}

pub const FORMS: [Form; 3] = [Form::Module, Form::Function, Form::Script];

/// A call in any form: a command without `RL.`, its keys, and the arguments after them. If it has
/// several rules, each key has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub verb: Vec<u8>,
    pub keys: Call,
    pub arguments: Call,
}

impl Request {
    /// Parses a line such as `GCRA user:42 6 10 60`, which has no `RL.`.
    pub fn line(line: &str) -> Self {
        let mut words = line.split(' ').map(|word| word.as_bytes().to_vec());
        let verb = words.next().expect("a verb");
        Self { verb, keys: words.next().into_iter().collect(), arguments: words.collect() }
    }

    /// Builds a call with several rules. Each rule is one argument that contains spaces.
    pub fn several(verb: &str, pairs: &[(&str, &str)]) -> Self {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Self {
            verb: bytes(verb),
            keys: pairs.iter().map(|(key, _)| bytes(key)).collect(),
            arguments: pairs.iter().map(|(_, rule)| bytes(rule)).collect(),
        }
    }

    fn is_several(&self) -> bool {
        [&b"ALL"[..], b"PEEKALL"].iter().any(|verb| self.verb.eq_ignore_ascii_case(verb))
    }

    /// Returns the words of the call in this form.
    pub fn call(&self, form: Form, library: &Library) -> Call {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let numbered = [vec![bytes(&self.keys.len().to_string())], self.keys.clone()].concat();
        match form {
            Form::Module => {
                let name = [b"RL.", &self.verb[..]].concat();
                [vec![name], self.by_turns()].concat()
            }
            Form::Function => {
                let name = [b"rl_", &self.verb.to_ascii_lowercase()[..]].concat();
                [vec![bytes("FCALL"), name], numbered, self.arguments.clone()].concat()
            }
            Form::Script => {
                let head = vec![bytes("EVALSHA"), bytes(&library.sha)];
                [head, numbered, vec![self.verb.clone()], self.arguments.clone()].concat()
            }
        }
    }

    /// Returns keys and arguments in the order of the module's command.
    fn by_turns(&self) -> Call {
        if !self.is_several() {
            return [self.keys.clone(), self.arguments.clone()].concat();
        }
        let mut rules = self.arguments.iter();
        let pairs = self.keys.iter().flat_map(|key| [Some(key), rules.next()]);
        pairs.flatten().cloned().collect()
    }

    /// Returns true if the call has so few words that the server refuses the module's command
    /// before it queues it in a transaction.
    pub fn is_cut_short(&self) -> bool {
        let words = self.by_turns().len();
        let (least, most) = match self.verb.to_ascii_uppercase().as_slice() {
            b"FIXED" | b"SLIDING" | b"SLIDINGLOG" | b"PEEK" => (3, usize::MAX),
            b"TOKENBUCKET" | b"LEAKYBUCKET" | b"GCRA" | b"LEASE" => (4, usize::MAX),
            b"CHARGE" | b"REFUND" => (3, usize::MAX),
            b"BACKOFF" => (5, usize::MAX),
            b"ALL" | b"PEEKALL" => (2, usize::MAX),
            b"RENEW" => (3, 3),
            b"RELEASE" | b"BLOCK" => (2, 2),
            other => panic!("no arity is known of {}", other.escape_ascii()),
        };
        !(least..=most).contains(&words)
    }

    /// Returns the same call with a suffix on its keys.
    pub fn with_suffix(&self, suffix: &str) -> Self {
        let keys = self.keys.iter().map(|key| [key, suffix.as_bytes()].concat()).collect();
        Self { keys, ..self.clone() }
    }
}

/// The library and the script that are loaded into a server.
pub struct Library {
    sha: String,
}

impl Library {
    /// Loads the library and the script into a server.
    pub fn load(client: &mut Client) -> Self {
        assert_eq!(text(&client.call(&["FUNCTION", "LOAD", &source()])), "redis_throttle");
        Self::load_script(client, &script())
    }

    /// Loads only a script, for example a changed one.
    pub fn load_script(client: &mut Client, script: &str) -> Self {
        Self { sha: text(&client.call(&["SCRIPT", "LOAD", script])) }
    }
}

/// Returns the source of the library, as it is released.
pub fn source() -> String {
    read("redis_throttle.lua")
}

/// Returns the source of the script, as it is released.
pub fn script() -> String {
    read("redis_throttle_script.lua")
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("functions").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
