//! Who is compared: plain commands, the six limiters in three states of mind, and their Lua.

use crate::node::Node;
use redis::Value;

/// One command line of the load.
#[derive(Clone, Debug)]
pub struct Contestant {
    pub name: String,
    words: Vec<String>,
    pub expected: Expected,
}

/// What the module has to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It is not asked, or does not count.
    Any,
    Allowed,
    /// A few denials are in the nature of the case.
    MostlyAllowed,
    Denied,
}

/// One of the six: its rules as the module and as its script take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    pub name: &'static str,
    pub command: &'static str,
    /// Two letters that tell its keys from those of the others.
    prefix: &'static str,
    /// Takes a rate besides a size and a time.
    has_rate: bool,
    script: &'static str,
}

macro_rules! limiter {
    ($name:literal, $prefix:literal, $has_rate:literal, $file:literal) => {
        Limiter {
            name: $name,
            command: concat!("RL.", $name),
            prefix: $prefix,
            has_rate: $has_rate,
            script: include_str!(concat!("lua/", $file, ".lua")),
        }
    };
}

pub const GCRA: Limiter = limiter!("GCRA", "gc", true, "gcra");
pub const FIXED: Limiter = limiter!("FIXED", "fi", false, "fixed");
pub const TOKENBUCKET: Limiter = limiter!("TOKENBUCKET", "to", true, "tokenbucket");
pub const SLIDING: Limiter = limiter!("SLIDING", "sl", false, "sliding");
pub const LEAKYBUCKET: Limiter = limiter!("LEAKYBUCKET", "le", true, "leakybucket");
pub const SLIDINGLOG: Limiter = limiter!("SLIDINGLOG", "lo", false, "slidinglog");

/// Those whose state has a fixed size.
pub const FIXED_SIZE: [Limiter; 5] = [GCRA, FIXED, TOKENBUCKET, SLIDING, LEAKYBUCKET];

/// A million an hour or so: nothing is denied, and nothing lapses while it is measured.
const AMPLE: &str = "1000000";
const AMPLE_US: &str = "864000000000";

impl Limiter {
    fn contestant(self, kind: &str, mark: &str, words: &[&str], expected: Expected) -> Contestant {
        let key = format!("{}{mark}:__rand_int__", self.prefix);
        let words = words.iter().map(|word| word.replace("KEY", &key)).collect();
        Contestant { name: format!("{} {kind}", self.name), words, expected }
    }

    /// The rule as arguments, in the module's units or the script's.
    fn rule<'a>(self, limit: &'a str, time: &'a str) -> Vec<&'a str> {
        if self.has_rate { vec![limit, limit, time] } else { vec![limit, time] }
    }

    /// Every call is allowed and written.
    pub fn allowed(self) -> Contestant {
        let rule = self.rule(AMPLE, "10d");
        let words = [&[self.command, "KEY"], &*rule].concat();
        let mut contestant = self.contestant("allowed", "a", &words, Expected::Allowed);
        contestant.name = self.command.to_owned();
        contestant
    }

    /// Every call but the first of a key is denied.
    pub fn denied(self) -> Contestant {
        let rule = self.rule("1", "1d");
        let words = [&[self.command, "KEY"], &*rule].concat();
        self.contestant("denied", "d", &words, Expected::Denied)
    }

    /// Asks of the keys of [`Self::allowed`] without taking.
    pub fn peeked(self) -> Contestant {
        let rule = self.rule(AMPLE, "10d");
        let words = [&["RL.PEEK", "KEY", self.name], &*rule].concat();
        self.contestant("peeked", "a", &words, Expected::Allowed)
    }

    /// Its script, which the server has to have loaded.
    pub fn evalsha(self, node: &Node) -> Contestant {
        let sha = self.load_script(node);
        let rule = self.rule(AMPLE, AMPLE_US);
        let words = [&["EVALSHA", &sha, "1", "KEY"], &*rule].concat();
        self.contestant("EVALSHA", "e", &words, Expected::Any)
    }

    /// Its script as a function, which the server has to have loaded.
    pub fn fcall(self, node: &Node) -> Contestant {
        let name = self.name.to_lowercase();
        let code = format!(
            "#!lua name={name}\nredis.register_function('{name}', function(keys, args)\n{}\nend)",
            self.script
        );
        node.run(&["FUNCTION", "LOAD", "REPLACE", &code]);
        let rule = self.rule(AMPLE, AMPLE_US);
        let words = [&["FCALL", &name, "1", "KEY"], &*rule].concat();
        self.contestant("FCALL", "f", &words, Expected::Any)
    }

    /// An allowed call of a rule of `limit` units per `window_us`, in a log that is full of others.
    pub fn steady(self, limit: u64, window_us: u64) -> Contestant {
        let window = format!("{}.{:06}", window_us / 1_000_000, window_us % 1_000_000);
        let limit = limit.to_string();
        let words = [&[self.command, "KEY"], &*self.rule(&limit, &window)].concat();
        let mut contestant = self.contestant("steady", "s", &words, Expected::MostlyAllowed);
        contestant.name = self.command.to_owned();
        contestant
    }

    /// The same through its script.
    pub fn steady_evalsha(self, node: &Node, limit: u64, window_us: u64) -> Contestant {
        let sha = self.load_script(node);
        let rule = [limit.to_string(), window_us.to_string()];
        let words = ["EVALSHA", &sha, "1", "KEY", &rule[0], &rule[1]];
        self.contestant("EVALSHA steady", "t", &words, Expected::Any)
    }

    fn load_script(self, node: &Node) -> String {
        let script = format!("local keys, args = KEYS, ARGV\n{}", self.script);
        match node.run(&["SCRIPT", "LOAD", &script]) {
            Value::BulkString(sha) => String::from_utf8(sha).expect("a hexadecimal number"),
            other => panic!("no script: {other:?}"),
        }
    }
}

impl Contestant {
    fn plain(name: &str, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self { name: name.to_owned(), words, expected: Expected::Any }
    }

    /// What every other is compared with: a value as long as a state, and an expiry.
    pub fn set() -> Self {
        Self::plain("SET PX", &["SET", "set:__rand_int__", "123456789012", "PX", "3600000"])
    }

    pub fn ping() -> Self {
        Self::plain("PING", &["PING"])
    }

    pub fn incr() -> Self {
        Self::plain("INCR", &["INCR", "inc:__rand_int__"])
    }

    /// The floor of any command of a module: it answers what a limiter answers, and does nothing.
    pub fn noop() -> Self {
        Self::plain("no-op", &["RL.NOOP", "noo:__rand_int__", AMPLE, AMPLE, "10d"])
    }

    /// The same, whatever is decided.
    pub fn unchecked(&self) -> Self {
        Self { expected: Expected::Any, ..self.clone() }
    }

    /// The words of the command line.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The command's name.
    pub fn command(&self) -> &str {
        &self.words[0]
    }
}
