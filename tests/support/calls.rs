//! A call of every command, with what it needs from the server. The tests of rights, of a full
//! server and of replicas make all of them.

use super::Client;
use super::played::words;
use super::server::{Server, Setup};

/// Each call on keys `app:*`, and its traits:
///
/// - `update`, `read`: it needs this access to its keys. Without one of them it has no key.
/// - `fast`, `rl`: it is in the ACL category of that name. `reads`, `admin`: it is in the category
///   `@read` without a key, or in `@admin` and `@dangerous`.
/// - `grows`: it may take memory, so a full server refuses it.
const CALLS: &[(&str, &str)] = &[
    ("RL.FIXED app:1 9 1h COST 1 ALIGNED", "update grows fast rl"),
    ("RL.SLIDING app:2 9 1h", "update grows fast rl"),
    ("RL.SLIDINGLOG app:3 9 1h", "update grows rl"),
    ("RL.TOKENBUCKET app:4 9 9 1h", "update grows fast rl"),
    ("RL.LEAKYBUCKET app:5 9 9 1h", "update grows fast rl"),
    ("RL.GCRA app:6 9 9 1h", "update grows fast rl"),
    ("RL.GCRA app:6 9 9 1h COST 0", "update grows fast rl"),
    ("RL.BACKOFF app:7 9 1 2 3", "update grows fast rl"),
    ("RL.QUOTA app:8 9 day", "update grows fast rl"),
    ("RL.USE app:1 p", "update grows rl"),
    ("RL.USE app:9 off", "update grows rl"),
    ("RL.USE app:9 blocked", "update grows rl"),
    ("RL.USE app:9 none DEFAULT FIXED 9 1h", "update grows rl"),
    ("RL.ALL app:1 \"FIXED 9 1h\" app:10 \"USE p\"", "update grows rl"),
    ("RL.RESERVE app:11 id 1h FIXED 9 1h", "update grows rl"),
    ("RL.RESERVE app:11 other 1h USE p", "update grows rl"),
    ("RL.LEASE app:12 id 9 1h", "update grows fast rl"),
    ("CL.THROTTLE app:13 9 9 60", "update grows fast rl"),
    ("GCRA app:13 9 9 60", "update grows fast rl"),
    ("RL.CHARGE app:1 FIXED 9 1h", "update grows"),
    ("RL.CHARGE app:1 USE p", "update grows"),
    ("RL.REFUND app:1 FIXED 9 1h", "update"),
    ("RL.REFUND app:1 USE p", "update"),
    ("RL.COMMIT app:11 id FIXED 9 1h", "update"),
    ("RL.CANCEL app:11 other USE p", "update"),
    ("RL.BLOCK app:14 1h", "update"),
    ("RL.RENEW app:12 id 1h", "update fast rl"),
    ("RL.PEEK app:1 FIXED 9 1h", "read fast rl"),
    ("RL.PEEK app:3 SLIDINGLOG 9 1h", "read fast rl"),
    ("RL.PEEK app:1 USE p", "read fast rl"),
    ("RL.PEEK app:11 RESERVE new 1h FIXED 9 1h", "read fast rl"),
    ("RL.PEEK app:12 LEASE id 9 1h", "read fast rl"),
    ("RL.PEEKALL app:1 \"FIXED 9 1h\" app:10 \"USE p\"", "read fast rl"),
    ("RL.INSPECT app:1", "read fast rl"),
    ("RL.RELEASE app:12 id", "update fast rl"),
    ("RL.METRICS", "reads"),
    ("RL.TOP", "admin"),
    ("RL.TOP 10 CALLS", "admin"),
    ("RL.TOP RESET", "admin"),
    ("RL.POLICY LIST", "admin"),
    ("RL.POLICY SET p FIXED 9 1h", "admin"),
    ("RL.DEBUG CLOCK RESUME", "admin"),
];

/// A call of a command.
pub struct Call {
    pub words: Vec<String>,
    traits: &'static str,
}

impl Call {
    /// Returns true if the call has this trait.
    pub fn is(&self, wanted: &str) -> bool {
        self.traits.split(' ').any(|one| one == wanted)
    }

    /// Returns true if the call names keys.
    pub fn has_keys(&self) -> bool {
        self.is("update") || self.is("read")
    }

    /// Returns the name of the command.
    pub fn command(&self) -> &str {
        &self.words[0]
    }

    /// Returns the same call on keys `PREFIX:*`.
    pub fn on(&self, prefix: &str) -> Vec<String> {
        let words = self.words.iter();
        words.map(|word| word.replacen("app:", &format!("{prefix}:"), 1)).collect()
    }

    /// Returns the call as a script makes it.
    pub fn in_script(&self) -> Vec<String> {
        let (keys, arguments): (Vec<_>, Vec<_>) =
            self.words.iter().cloned().partition(|word| word.starts_with("app:"));
        // The script puts the keys back where they were.
        let places: Vec<_> =
            self.words.iter().map(|word| u8::from(word.starts_with("app:"))).collect();
        let places = places.iter().map(u8::to_string).collect::<String>();
        let script = "local words, key, rest = {}, 0, 1 \
                      for at = 1, #ARGV[1] do \
                          if ARGV[1]:sub(at, at) == '1' then key = key + 1 words[at] = KEYS[key] \
                          else rest = rest + 1 words[at] = ARGV[rest] end \
                      end \
                      return redis.call(unpack(words))";
        let head = ["EVAL".to_owned(), script.to_owned(), keys.len().to_string()];
        head.into_iter().chain(keys).chain([places]).chain(arguments).collect()
    }
}

/// Returns a call of every command.
pub fn calls() -> Vec<Call> {
    CALLS.iter().map(|(line, traits)| Call { words: words(line), traits }).collect()
}

/// Returns a setup in which every command is enabled.
pub fn every_command() -> Setup {
    Server::setup().line("rl.redis-cell yes").line("rl.gcra yes")
}

/// Sets the policies that the calls name.
pub fn set_policies(client: &mut Client) {
    for policy in ["p FIXED 9 1h", "off OFF FIXED 9 1h", "blocked BLOCK FIXED 9 1h"] {
        client.ok(&format!("RL.POLICY SET {policy}"));
    }
}
