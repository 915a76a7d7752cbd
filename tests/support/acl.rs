//! Users with rights, and what a server's version has.

use super::{Client, text};

/// Creates a user with exactly these rules. The tests check the rules with `ACL DRYRUN`.
pub fn make_user(client: &mut Client, name: &str, rules: &str) {
    client.ok(&format!("ACL SETUSER {name} reset on nopass {rules}"));
}

pub fn may(client: &mut Client, user: &str, call: &str) -> bool {
    text(&client.run(&format!("ACL DRYRUN {user} {call}"))) == "OK"
}

/// Returns true if the server has at least this version of Redis, or of Valkey.
pub fn is_at_least(client: &mut Client, redis: (u32, u32), valkey: (u32, u32)) -> bool {
    let server = client.info("server");
    let number = |field: &str| {
        let mut parts = server[field].split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    };
    match server.get("valkey_version") {
        Some(_) => number("valkey_version") >= valkey,
        None => number("redis_version") >= redis,
    }
}
