//! The contestants: plain commands, calls of the six limiters (allowed, denied and peeked), and the
//! same limiters as Lua scripts.

use crate::node::Node;
use redis::Value;
use redis_throttle_engine::algorithms::{Algorithm, Argument::Number};

/// One command line of the load generator.
#[derive(Clone, Debug)]
pub struct Contestant {
    pub name: String,
    words: Vec<String>,
    /// The call that prepares each key before the measurement, if it differs from the measured
    /// call.
    before: Option<Vec<String>>,
    pub expected: Expected,
    /// The number of events that all logs of this contestant hold together in a steady state; 0 if
    /// the contestant has no logs.
    pub live: u64,
    /// Whether the command takes its window in microseconds, as the scripts for a single limiter
    /// do. If not, it takes seconds.
    takes_us: bool,
}

/// The expected decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The call has no decision, or its decision does not matter.
    Any,
    Allowed,
    /// The call is allowed, but a few denials are normal.
    MostlyAllowed,
    Denied,
}

/// One of the six limiters, as a command of the module and as a script of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    pub name: &'static str,
    pub command: &'static str,
    /// Two letters that distinguish this limiter's keys from those of the others.
    prefix: &'static str,
    /// Whether the limiter's rule has a rate, in addition to a size and a time.
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

/// The limiters whose state has a fixed size: all except the sliding log.
pub const FIXED_SIZE: [Limiter; 5] = [GCRA, FIXED, TOKENBUCKET, SLIDING, LEAKYBUCKET];

/// The three limiters whose rules the calls with several rules use.
pub const THREE: [Limiter; 3] = [GCRA, FIXED, TOKENBUCKET];

/// Rules under which no call is denied and no key expires during a measurement. With a rate above
/// that of the load, each call would find its key expired. The last word is the time in
/// microseconds, for scripts.
const AMPLE_RATE: [&str; 4] = ["10000000", "1", "180", "180000000"];
const AMPLE_WINDOW: [&str; 3] = ["1000000000000", "3600", "3600000000"];

/// The placeholder for the window of a log, which is only known after a first run.
const WINDOW: &str = "WINDOW";

/// The line with which every script begins: it defines short names for functions.
const LOCALS: &str = "local call, ceil, floor = redis.call, math.ceil, math.floor\n";

const LIBRARY: &str = include_str!("../../functions/redis_throttle.lua");
const LIBRARY_SCRIPT: &str = include_str!("../../functions/redis_throttle_script.lua");

impl Limiter {
    fn contestant(self, kind: &str, mark: &str, words: &[&str], expected: Expected) -> Contestant {
        let name = format!("{} {kind}", self.name);
        let words = self.with_key(mark, words);
        Contestant { name, words, before: None, expected, live: 0, takes_us: false }
    }

    /// Returns the words with a key of this limiter in place of `KEY`. The key ends in a
    /// placeholder, which the load generator replaces by a random number.
    fn with_key(self, mark: &str, words: &[&str]) -> Vec<String> {
        let key = format!("{}{mark}:__rand_int__", self.prefix);
        words.iter().map(|word| word.replace("KEY", &key)).collect()
    }

    /// Returns a rule that denies nothing, with its time in the module's unit, seconds.
    fn ample(self) -> &'static [&'static str] {
        if self.has_rate { &AMPLE_RATE[..3] } else { &AMPLE_WINDOW[..2] }
    }

    /// Returns the rule of [`Self::ample`] with its time in the scripts' unit, microseconds.
    fn ample_us(self) -> Vec<&'static str> {
        let in_us = if self.has_rate { AMPLE_RATE[3] } else { AMPLE_WINDOW[2] };
        let (_, rest) = self.ample().split_last().expect("a time");
        [rest, &[in_us]].concat()
    }

    /// Returns calls that are all allowed and all write their key.
    pub fn allowed(self) -> Contestant {
        let words = [&[self.command, "KEY"], self.ample()].concat();
        let mut contestant = self.contestant("allowed", "a", &words, Expected::Allowed);
        contestant.name = self.command.to_owned();
        contestant
    }

    /// Returns calls that are all denied except the first of each key.
    pub fn denied(self) -> Contestant {
        let rule: &[_] = if self.has_rate { &["1", "1", "1d"] } else { &["1", "1d"] };
        let words = [&[self.command, "KEY"], rule].concat();
        self.contestant("denied", "d", &words, Expected::Denied)
    }

    /// Returns calls that peek at the keys of [`Self::allowed`].
    pub fn peeked(self) -> Contestant {
        let words = [&["RL.PEEK", "KEY", self.name], self.ample()].concat();
        self.contestant("peeked", "a", &words, Expected::Allowed)
    }

    /// Returns charges, all of which stay within the limit.
    pub fn charged(self) -> Contestant {
        let words = [&["RL.CHARGE", "KEY", self.name], self.ample()].concat();
        self.contestant("charged", "c", &words, Expected::Allowed)
    }

    /// Returns the contestant whose calls are `RL.REFUND`. Each key is charged beforehand, with
    /// more than all its refunds together, so that every refund gives a unit back.
    pub fn refunded(self) -> Contestant {
        let words = [&["RL.REFUND", "KEY", self.name], self.ample()].concat();
        let charge = [&["RL.CHARGE", "KEY", self.name], self.ample(), &["COST", "10000"]];
        let before = Some(self.with_key("r", &charge.concat()));
        Contestant { before, ..self.contestant("refunded", "r", &words, Expected::Allowed) }
    }

    /// Returns calls under a policy. The server must have this policy, with the rule of
    /// [`Self::allowed`].
    pub fn used(self, policy: &str) -> Contestant {
        let kind = format!("by RL.USE {policy}");
        self.contestant(&kind, "u", &["RL.USE", "KEY", policy], Expected::Allowed)
    }

    /// Sets a policy of this name with the rule of [`Self::allowed`].
    pub fn set_policy(self, node: &Node, policy: &str, mode: &[&str]) {
        let head = [&["RL.POLICY", "SET", policy], mode, &[self.name]].concat();
        node.run(&[&head, self.ample()].concat());
    }

    /// Returns the key and the rule at place `number` of an `RL.ALL`. The rule is that of
    /// [`Self::allowed`].
    fn ruled(self, number: usize) -> [String; 2] {
        let rule = [&[self.name], self.ample()].concat().join(" ");
        [format!("{}{number}:__rand_int__", self.prefix), rule]
    }

    /// Loads the limiter's script and returns calls of that script.
    pub fn evalsha(self, node: &Node) -> Contestant {
        let sha = load_script(node, self.script);
        let words = [&["EVALSHA", &sha, "1", "KEY"], &*self.ample_us()].concat();
        self.contestant("EVALSHA", "e", &words, Expected::Allowed)
    }

    /// Loads the limiter's script as a function and returns calls of that function.
    pub fn fcall(self, node: &Node) -> Contestant {
        let name = self.load_function(node);
        let words = [&["FCALL", &name, "1", "KEY"], &*self.ample_us()].concat();
        self.contestant("FCALL", "f", &words, Expected::Allowed)
    }

    /// Returns calls under a rule of `limit` units. All logs of these calls together hold `live`
    /// events.
    pub fn steady(self, limit: u64, live: u64) -> Contestant {
        let limit = limit.to_string();
        let rule: &[&str] = if self.has_rate { &[&limit, "1", WINDOW] } else { &[&limit, WINDOW] };
        let words = [&[self.command, "KEY"], rule].concat();
        let name = self.command.to_owned();
        Contestant { name, live, ..self.contestant("", "s", &words, Expected::MostlyAllowed) }
    }

    /// Returns the calls of [`Self::steady`] through the limiter's script.
    pub fn steady_evalsha(self, node: &Node, limit: u64, live: u64) -> Contestant {
        let sha = load_script(node, self.script);
        let words = ["EVALSHA", &sha, "1", "KEY", &limit.to_string(), WINDOW];
        let contestant = self.contestant("EVALSHA", "t", &words, Expected::MostlyAllowed);
        Contestant { live, takes_us: true, ..contestant }
    }

    /// Returns the calls of [`Self::steady`] through the limiter's script as a function.
    pub fn steady_fcall(self, node: &Node, limit: u64, live: u64) -> Contestant {
        let name = self.load_function(node);
        let words = ["FCALL", &name, "1", "KEY", &limit.to_string(), WINDOW];
        let contestant = self.contestant("FCALL", "u", &words, Expected::MostlyAllowed);
        Contestant { live, takes_us: true, ..contestant }
    }

    /// Returns the calls of [`Self::allowed`] as calls of the library's function. The server must
    /// have loaded the library.
    pub fn by_function(self) -> Contestant {
        let function = self.function();
        let words = [&["FCALL", &function, "1", "KEY"], self.ample()].concat();
        self.contestant("by the library (FCALL)", "w", &words, Expected::Allowed)
    }

    /// Returns the calls of [`Self::allowed`] as calls of the library's script.
    pub fn by_script(self, sha: &str) -> Contestant {
        let words = [&["EVALSHA", sha, "1", "KEY", self.name], self.ample()].concat();
        self.contestant("by the library's script", "x", &words, Expected::Allowed)
    }

    /// Returns the calls of [`Self::steady`] as calls of the library's function.
    pub fn steady_by_function(self, limit: u64, live: u64) -> Contestant {
        let words = ["FCALL", &self.function(), "1", "KEY", &limit.to_string(), WINDOW];
        let name = "by the library (FCALL)";
        Contestant { live, ..self.contestant(name, "y", &words, Expected::MostlyAllowed) }
    }

    /// Returns the calls of [`Self::steady`] as calls of the library's script.
    pub fn steady_by_script(self, sha: &str, limit: u64, live: u64) -> Contestant {
        let words = ["EVALSHA", sha, "1", "KEY", self.name, &limit.to_string(), WINDOW];
        let name = "by the library's script";
        Contestant { live, ..self.contestant(name, "z", &words, Expected::MostlyAllowed) }
    }

    /// Returns the name of the limiter's function in the library.
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

/// Loads a script of `lua/`. Returns the digest by which `EVALSHA` calls it.
pub fn load_script(node: &Node, script: &str) -> String {
    load(node, &format!("{LOCALS}local keys, args = KEYS, ARGV\n{script}"))
}

/// Loads the library as functions and as a script. Returns the digest of the script.
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

    /// Returns calls with several rules, all of which allow the call.
    pub fn several(limiters: &[Limiter]) -> Self {
        let pairs = limiters.iter().enumerate().flat_map(|(at, limiter)| limiter.ruled(at));
        let words = ["RL.ALL".to_owned()].into_iter().chain(pairs).collect();
        let name = match limiters.len() {
            1 => "RL.ALL, 1 rule".to_owned(),
            rules => format!("RL.ALL, {rules} rules"),
        };
        Self { words, expected: Expected::Allowed, ..Self::plain(&name, &[]) }
    }

    /// Returns calls under a calendar quota. All are allowed, and all write their key.
    pub fn quota(mark: &str, periods: &[&str]) -> Self {
        let key = format!("q{mark}a:__rand_int__");
        let words = [&["RL.QUOTA", &key, AMPLE_WINDOW[0]], periods].concat();
        let name = format!("RL.QUOTA {}", periods.join(" "));
        Self { expected: Expected::Allowed, ..Self::plain(&name, &words) }
    }

    /// Loads a script that takes under all rules of [`THREE`] or under none, and returns calls of
    /// that script.
    pub fn three_evalsha(node: &Node) -> Self {
        let sha = load_script(node, include_str!("lua/several.lua"));
        let keys = [0, 1, 2].map(|at| format!("{}e:__rand_int__", THREE[at].prefix));
        let rules = THREE.map(|limiter| limiter.ample_us()).concat();
        let keys = keys.each_ref().map(String::as_str);
        let words = [&["EVALSHA", &sha, "3"], keys.as_slice(), &rules].concat();
        Self { expected: Expected::Allowed, ..Self::plain("three rules, EVALSHA", &words) }
    }

    /// Returns calls of the library's function under the rules of [`THREE`].
    pub fn three_by_function() -> Self {
        Self::three("three rules by the library (FCALL)", &["FCALL", "rl_all", "3"], "w", &[])
    }

    /// Returns calls of the library's script under the rules of [`THREE`].
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

    /// Returns the call with which all others are compared. It stores a value as long as a state,
    /// and an expiry.
    pub fn set() -> Self {
        Self::plain("SET PX", &["SET", "set:__rand_int__", "twelve-bytes", "PX", "3600000"])
    }

    pub fn ping() -> Self {
        Self::plain("PING", &["PING"])
    }

    pub fn incr() -> Self {
        Self::plain("INCR", &["INCR", "inc:__rand_int__"])
    }

    /// Returns the cheapest possible module command: it replies like a limiter and does nothing.
    pub fn noop() -> Self {
        Self::plain("no-op", &["RL.NOOP", "noo:__rand_int__", "10000000", "1", "180"])
    }

    /// Returns the calls that prepare the keys, if they differ from the measured calls.
    pub fn before(&self) -> Option<Self> {
        let words = self.before.clone()?;
        Some(Self { words, before: None, ..self.unchecked() })
    }

    /// Returns the same calls, but without a check of their decisions.
    pub fn unchecked(&self) -> Self {
        Self { expected: Expected::Any, ..self.clone() }
    }

    /// Returns the same calls with keys whose hash tag maps them to one node of a cluster.
    pub fn tagged(&self, tag: &str) -> Self {
        let tag = format!(":{{{tag}}}__rand");
        let words = self.words.iter().map(|word| word.replace(":__rand", &tag)).collect();
        Self { words, ..self.clone() }
    }

    /// Returns the same calls with this window, written in the unit that the contestant takes:
    /// microseconds or seconds.
    pub fn with_window(&self, window_us: u64) -> Self {
        let window = match self.takes_us {
            true => window_us.to_string(),
            false => format!("{}.{:06}", window_us / 1_000_000, window_us % 1_000_000),
        };
        let words = self.words.iter().map(|word| word.replace(WINDOW, &window)).collect();
        Self { words, ..self.clone() }
    }

    /// Makes one call on a key of the load and checks the reply.
    ///
    /// # Panics
    ///
    /// If the reply is an error or not the expected decision.
    pub fn check(&self, node: &Node) {
        let of_key = |word: &String| word.replace("__rand_int__", "000000000000");
        let words: Vec<String> = self.words.iter().map(of_key).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let reply = node.run(&words);
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

    /// Returns the words of the command line.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Returns the number of keys that an allowed call writes.
    pub fn keys(&self) -> usize {
        self.words.iter().filter(|word| word.contains("__rand_int__")).count()
    }

    /// Returns the command's name.
    pub fn command(&self) -> &str {
        &self.words[0]
    }
}
