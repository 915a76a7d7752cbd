//! Who is compared: plain commands, the six limiters in three states of mind, and their Lua.

use crate::node::Node;
use redis::Value;
use redis_throttle_engine::algorithms::{Algorithm, Argument::Number};

/// One command line of the load.
#[derive(Clone, Debug)]
pub struct Contestant {
    pub name: String,
    words: Vec<String>,
    /// What is called on each key before anything is measured, where that is something else.
    before: Option<Vec<String>>,
    pub expected: Expected,
    /// Events that its logs hold together in a steady state; 0 where there is no log to fill.
    pub live: u64,
    /// Whether it takes its window in us, as the scripts of one limiter do, not in seconds.
    takes_us: bool,
}

/// What the module has to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// There is nothing to decide, or it does not count.
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
    ($algorithm:ident, $prefix:literal, $file:literal) => {
        Limiter {
            name: Algorithm::$algorithm.name(),
            command: Algorithm::$algorithm.command(),
            prefix: $prefix,
            has_rate: matches!(Algorithm::$algorithm.arguments(), [Number, Number, ..]),
            script: include_str!(concat!("lua/", $file, ".lua")),
        }
    };
}

pub const GCRA: Limiter = limiter!(Gcra, "gc", "gcra");
pub const FIXED: Limiter = limiter!(FixedWindow, "fi", "fixed");
pub const TOKENBUCKET: Limiter = limiter!(TokenBucket, "to", "tokenbucket");
pub const SLIDING: Limiter = limiter!(SlidingWindow, "sl", "sliding");
pub const LEAKYBUCKET: Limiter = limiter!(LeakyBucket, "le", "leakybucket");
pub const SLIDINGLOG: Limiter = limiter!(SlidingLog, "lo", "slidinglog");

/// Those whose state has a fixed size.
pub const FIXED_SIZE: [Limiter; 5] = [GCRA, FIXED, TOKENBUCKET, SLIDING, LEAKYBUCKET];

/// The three that stand for the several rules of a call.
pub const THREE: [Limiter; 3] = [GCRA, FIXED, TOKENBUCKET];

/// Rules that deny nothing, and by which no key lapses while it is measured: at a rate above that
/// of the load, a call would find its key gone. The last word is the time in us, for scripts.
const AMPLE_RATE: [&str; 4] = ["10000000", "1", "180", "180000000"];
const AMPLE_WINDOW: [&str; 3] = ["1000000000000", "3600", "3600000000"];

/// Stands for the window of a log until it is known.
const WINDOW: &str = "WINDOW";

/// The short names that scripts use.
const LOCALS: &str = "local call, ceil, floor = redis.call, math.ceil, math.floor\n";

const LIBRARY: &str = include_str!("../../functions/redis_throttle.lua");
const LIBRARY_SCRIPT: &str = include_str!("../../functions/redis_throttle_script.lua");

impl Limiter {
    fn contestant(self, kind: &str, mark: &str, words: &[&str], expected: Expected) -> Contestant {
        let name = format!("{} {kind}", self.name);
        let words = self.with_key(mark, words);
        Contestant { name, words, before: None, expected, live: 0, takes_us: false }
    }

    /// The words with a key of its own, which the load picks, where they say `KEY`.
    fn with_key(self, mark: &str, words: &[&str]) -> Vec<String> {
        let key = format!("{}{mark}:__rand_int__", self.prefix);
        words.iter().map(|word| word.replace("KEY", &key)).collect()
    }

    /// The ample rule, in the module's units.
    fn ample(self) -> &'static [&'static str] {
        if self.has_rate { &AMPLE_RATE[..3] } else { &AMPLE_WINDOW[..2] }
    }

    /// The ample rule, in the script's units.
    fn ample_us(self) -> Vec<&'static str> {
        let in_us = if self.has_rate { AMPLE_RATE[3] } else { AMPLE_WINDOW[2] };
        let (_, rest) = self.ample().split_last().expect("a time");
        [rest, &[in_us]].concat()
    }

    /// Every call is allowed and written.
    pub fn allowed(self) -> Contestant {
        let words = [&[self.command, "KEY"], self.ample()].concat();
        let mut contestant = self.contestant("allowed", "a", &words, Expected::Allowed);
        contestant.name = self.command.to_owned();
        contestant
    }

    /// Every call but the first of a key is denied.
    pub fn denied(self) -> Contestant {
        let rule: &[_] = if self.has_rate { &["1", "1", "1d"] } else { &["1", "1d"] };
        let words = [&[self.command, "KEY"], rule].concat();
        self.contestant("denied", "d", &words, Expected::Denied)
    }

    /// Asks of the keys of [`Self::allowed`] without taking.
    pub fn peeked(self) -> Contestant {
        let words = [&["RL.PEEK", "KEY", self.name], self.ample()].concat();
        self.contestant("peeked", "a", &words, Expected::Allowed)
    }

    /// Takes what is there in any case, which it is.
    pub fn charged(self) -> Contestant {
        let words = [&["RL.CHARGE", "KEY", self.name], self.ample()].concat();
        self.contestant("charged", "c", &words, Expected::Allowed)
    }

    /// Gives back of what was charged before, which is more than all that is given back.
    pub fn refunded(self) -> Contestant {
        let words = [&["RL.REFUND", "KEY", self.name], self.ample()].concat();
        let charge = [&["RL.CHARGE", "KEY", self.name], self.ample(), &["COST", "10000"]];
        let before = Some(self.with_key("r", &charge.concat()));
        Contestant { before, ..self.contestant("refunded", "r", &words, Expected::Allowed) }
    }

    /// The rule of [`Self::allowed`] by a policy of this name, which the server has to have.
    pub fn used(self, policy: &str) -> Contestant {
        let kind = format!("by RL.USE {policy}");
        self.contestant(&kind, "u", &["RL.USE", "KEY", policy], Expected::Allowed)
    }

    /// Sets a policy of this name with the ample rule.
    pub fn set_policy(self, node: &Node, policy: &str, mode: &[&str]) {
        let head = [&["RL.POLICY", "SET", policy], mode, &[self.name]].concat();
        node.run(&[&head, self.ample()].concat());
    }

    /// The rule of [`Self::allowed`] on a key of `RL.ALL`, which is its `number`th.
    fn ruled(self, number: usize) -> [String; 2] {
        let rule = [&[self.name], self.ample()].concat().join(" ");
        [format!("{}{number}:__rand_int__", self.prefix), rule]
    }

    /// Its script, which the server has to have loaded.
    pub fn evalsha(self, node: &Node) -> Contestant {
        let sha = load_script(node, self.script);
        let words = [&["EVALSHA", &sha, "1", "KEY"], &*self.ample_us()].concat();
        self.contestant("EVALSHA", "e", &words, Expected::Allowed)
    }

    /// Its script as a function, which the server has to have loaded.
    pub fn fcall(self, node: &Node) -> Contestant {
        let name = self.load_function(node);
        let words = [&["FCALL", &name, "1", "KEY"], &*self.ample_us()].concat();
        self.contestant("FCALL", "f", &words, Expected::Allowed)
    }

    /// A call of a rule of so many units, in logs that hold `live` events together.
    pub fn steady(self, limit: u64, live: u64) -> Contestant {
        let limit = limit.to_string();
        let rule: &[&str] = if self.has_rate { &[&limit, "1", WINDOW] } else { &[&limit, WINDOW] };
        let words = [&[self.command, "KEY"], rule].concat();
        let name = self.command.to_owned();
        Contestant { name, live, ..self.contestant("", "s", &words, Expected::MostlyAllowed) }
    }

    /// The same through its script.
    pub fn steady_evalsha(self, node: &Node, limit: u64, live: u64) -> Contestant {
        let sha = load_script(node, self.script);
        let words = ["EVALSHA", &sha, "1", "KEY", &limit.to_string(), WINDOW];
        let contestant = self.contestant("EVALSHA", "t", &words, Expected::MostlyAllowed);
        Contestant { live, takes_us: true, ..contestant }
    }

    /// The same through its script as a function.
    pub fn steady_fcall(self, node: &Node, limit: u64, live: u64) -> Contestant {
        let name = self.load_function(node);
        let words = ["FCALL", &name, "1", "KEY", &limit.to_string(), WINDOW];
        let contestant = self.contestant("FCALL", "u", &words, Expected::MostlyAllowed);
        Contestant { live, takes_us: true, ..contestant }
    }

    /// The rule of [`Self::allowed`] by the library, which the server has to have loaded.
    pub fn by_function(self) -> Contestant {
        let function = self.function();
        let words = [&["FCALL", &function, "1", "KEY"], self.ample()].concat();
        self.contestant("by the library (FCALL)", "w", &words, Expected::Allowed)
    }

    /// The same by the library's script.
    pub fn by_script(self, sha: &str) -> Contestant {
        let words = [&["EVALSHA", sha, "1", "KEY", self.name], self.ample()].concat();
        self.contestant("by the library's script", "x", &words, Expected::Allowed)
    }

    /// The call of [`Self::steady`] by the library.
    pub fn steady_by_function(self, limit: u64, live: u64) -> Contestant {
        let words = ["FCALL", &self.function(), "1", "KEY", &limit.to_string(), WINDOW];
        let name = "by the library (FCALL)";
        Contestant { live, ..self.contestant(name, "y", &words, Expected::MostlyAllowed) }
    }

    /// The same by the library's script.
    pub fn steady_by_script(self, sha: &str, limit: u64, live: u64) -> Contestant {
        let words = ["EVALSHA", sha, "1", "KEY", self.name, &limit.to_string(), WINDOW];
        let name = "by the library's script";
        Contestant { live, ..self.contestant(name, "z", &words, Expected::MostlyAllowed) }
    }

    /// The function that the library has of it.
    fn function(self) -> String {
        format!("rl_{}", self.name.to_lowercase())
    }

    fn load_function(self, node: &Node) -> String {
        let name = self.name.to_lowercase();
        let code = format!(
            "#!lua name={name}\nredis.register_function('{name}', function(keys, args)\n\
             {LOCALS}{}\nend)",
            self.script
        );
        node.run(&["FUNCTION", "LOAD", "REPLACE", &code]);
        name
    }
}

/// Loads a script of `lua/`; returns the digest that `EVALSHA` calls it by.
pub fn load_script(node: &Node, script: &str) -> String {
    load(node, &format!("{LOCALS}local keys, args = KEYS, ARGV\n{script}"))
}

/// Loads the library as functions and as a script; returns the digest of the script.
pub fn load_library(node: &Node) -> String {
    node.run(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]);
    load(node, LIBRARY_SCRIPT)
}

fn load(node: &Node, script: &str) -> String {
    match node.run(&["SCRIPT", "LOAD", script]) {
        Value::BulkString(sha) => String::from_utf8(sha).expect("a hexadecimal number"),
        other => panic!("no script: {other:?}"),
    }
}

impl Contestant {
    fn plain(name: &str, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let name = name.to_owned();
        Self { name, words, before: None, expected: Expected::Any, live: 0, takes_us: false }
    }

    /// Several rules in one call, all of which allow.
    pub fn several(limiters: &[Limiter]) -> Self {
        let pairs = limiters.iter().enumerate().flat_map(|(at, limiter)| limiter.ruled(at));
        let words = ["RL.ALL".to_owned()].into_iter().chain(pairs).collect();
        let name = match limiters.len() {
            1 => "RL.ALL, 1 rule".to_owned(),
            rules => format!("RL.ALL, {rules} rules"),
        };
        Self { words, expected: Expected::Allowed, ..Self::plain(&name, &[]) }
    }

    /// A calendar quota of which every call is allowed and written.
    pub fn quota(mark: &str, periods: &[&str]) -> Self {
        let key = format!("q{mark}a:__rand_int__");
        let words = [&["RL.QUOTA", &key, AMPLE_WINDOW[0]], periods].concat();
        let name = format!("RL.QUOTA {}", periods.join(" "));
        Self { expected: Expected::Allowed, ..Self::plain(&name, &words) }
    }

    /// The rules of [`THREE`] in one script, all or nothing.
    pub fn three_evalsha(node: &Node) -> Self {
        let sha = load_script(node, include_str!("lua/several.lua"));
        let keys = [0, 1, 2].map(|at| format!("{}e:__rand_int__", THREE[at].prefix));
        let rules = THREE.map(|limiter| limiter.ample_us()).concat();
        let keys = keys.each_ref().map(String::as_str);
        let words = [&["EVALSHA", &sha, "3"], keys.as_slice(), &rules].concat();
        Self { expected: Expected::Allowed, ..Self::plain("three rules, EVALSHA", &words) }
    }

    /// The rules of [`THREE`] in one call of the library.
    pub fn three_by_function() -> Self {
        Self::three("three rules by the library (FCALL)", &["FCALL", "rl_all", "3"], "w", &[])
    }

    /// The same by the library's script.
    pub fn three_by_script(sha: &str) -> Self {
        Self::three("three rules by the library's script", &["EVALSHA", sha, "3"], "x", &["ALL"])
    }

    fn three(name: &str, head: &[&str], mark: &str, verb: &[&str]) -> Self {
        let pairs = [0, 1, 2].map(|at| THREE[at].ruled(at));
        let keys = pairs.each_ref().map(|[key, _]| key.replace(':', &format!("{mark}:")));
        let keys = keys.each_ref().map(String::as_str);
        let rules = pairs.each_ref().map(|[_, rule]| rule.as_str());
        let words = [head, keys.as_slice(), verb, rules.as_slice()].concat();
        Self { expected: Expected::Allowed, ..Self::plain(name, &words) }
    }

    /// What every other is compared with: a value as long as a state, and an expiry.
    pub fn set() -> Self {
        Self::plain("SET PX", &["SET", "set:__rand_int__", "twelve-bytes", "PX", "3600000"])
    }

    pub fn ping() -> Self {
        Self::plain("PING", &["PING"])
    }

    pub fn incr() -> Self {
        Self::plain("INCR", &["INCR", "inc:__rand_int__"])
    }

    /// The floor of any command of a module: it answers what a limiter answers, and does nothing.
    pub fn noop() -> Self {
        Self::plain("no-op", &["RL.NOOP", "noo:__rand_int__", "10000000", "1", "180"])
    }

    /// What makes its keys ready, where that is something else.
    pub fn before(&self) -> Option<Self> {
        let words = self.before.clone()?;
        Some(Self { words, before: None, ..self.unchecked() })
    }

    /// The same, whatever is decided.
    pub fn unchecked(&self) -> Self {
        Self { expected: Expected::Any, ..self.clone() }
    }

    /// The same with keys that a hash tag brings to one node of a cluster.
    pub fn tagged(&self, tag: &str) -> Self {
        let tag = format!(":{{{tag}}}__rand");
        let words = self.words.iter().map(|word| word.replace(":__rand", &tag)).collect();
        Self { words, ..self.clone() }
    }

    /// The same with this window, in the units of the module or of a script.
    pub fn with_window(&self, window_us: u64) -> Self {
        let window = match self.takes_us {
            true => window_us.to_string(),
            false => format!("{}.{:06}", window_us / 1_000_000, window_us % 1_000_000),
        };
        let words = self.words.iter().map(|word| word.replace(WINDOW, &window)).collect();
        Self { words, ..self.clone() }
    }

    /// Makes one call on a key of the load and looks at the reply.
    ///
    /// # Panics
    ///
    /// When it is an error, or not the decision that is expected.
    pub fn check(&self, node: &Node) {
        let of_key = |word: &String| word.replace("__rand_int__", "000000000000");
        let words: Vec<String> = self.words.iter().map(of_key).collect();
        let shown: Vec<&str> = words.iter().map(String::as_str).collect();
        let reply = node.run(&shown);
        let allowed = match self.expected {
            Expected::Any => return,
            Expected::Allowed | Expected::MostlyAllowed => 1,
            Expected::Denied => 0,
        };
        let is_expected = match &reply {
            Value::Array(fields) => fields.len() >= 5 && fields[0] == Value::Int(allowed),
            _ => false,
        };
        assert!(is_expected, "{words:?}: {reply:?}");
    }

    /// The words of the command line.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// How many keys an allowed call of it writes.
    pub fn keys(&self) -> usize {
        self.words.iter().filter(|word| word.contains("__rand_int__")).count()
    }

    /// The command's name.
    pub fn command(&self) -> &str {
        &self.words[0]
    }
}
