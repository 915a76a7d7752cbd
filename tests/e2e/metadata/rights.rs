//! The rights that each command needs: by key, by command and by category. Each connection has
//! logged in with a password.

use std::collections::BTreeSet;

use redis::Value;

use support::acl::is_at_least;
use support::calls::{Call, calls, every_command, set_policies};
use support::{Client, Server, raw_error, text};

/// The rules of a user, and the calls that they permit.
type User = (String, Box<dyn Fn(&Call) -> bool>);

fn user(rules: &str, may: impl Fn(&Call) -> bool + 'static) -> User {
    (rules.to_owned(), Box::new(may))
}

fn start() -> (Server, Client) {
    let server = every_command().start();
    let mut admin = server.client();
    set_policies(&mut admin);
    (server, admin)
}

/// Creates a user with these rules, and returns a connection that has logged in as this user.
fn login(server: &Server, rules: &str) -> Client {
    server.client().ok(&format!("ACL SETUSER app reset on >secret {rules}"));
    let mut client = server.client();
    assert!(client.error("AUTH app guess").starts_with("WRONGPASS"));
    client.ok("AUTH app secret");
    client
}

/// Returns true if the connection may make the call.
fn may(client: &mut Client, call: &[String]) -> bool {
    !raw_error(&client.call(call)).is_some_and(|error| error.starts_with("NOPERM"))
}

/// Asserts that each user may make exactly the calls that its row permits.
fn assert_permitted(server: &Server, users: Vec<User>) {
    for (rules, permits) in users {
        let mut client = login(server, &rules);
        for call in calls() {
            assert_eq!(may(&mut client, &call.words), permits(&call), "{rules}: {:?}", call.words);
        }
    }
}

#[test]
fn every_command_needs_its_access_to_its_keys() {
    let (server, _) = start();
    assert_permitted(
        &server,
        vec![
            user("~* +@all", |_| true),
            user("~app:* +@all", |_| true),
            user("%RW~app:* +@all", |_| true),
            user("-@all (~app:* +@all)", |_| true),
            // PEEK and INSPECT need only read access. A call that decides needs both.
            user("%R~app:* +@all", |call| !call.is("update")),
            user("%W~app:* +@all", |call| !call.has_keys()),
            user("~other:* +@all", |call| !call.has_keys()),
            user("resetkeys +@all", |call| !call.has_keys()),
        ],
    );
    let mut client = login(&server, "~app:* +@all");
    for call in calls() {
        assert_eq!(may(&mut client, &call.on("app2")), !call.has_keys(), "{:?}", call.words);
    }
    // A call with several keys needs access to each of them.
    let mut client = login(&server, "~app:* %R~shared:* +@all");
    for (command, other, expected) in [
        ("RL.ALL", "other", false),
        ("RL.ALL", "shared:1", false),
        ("RL.PEEKALL", "other", false),
        ("RL.PEEKALL", "shared:1", true),
    ] {
        for keys in [["app:1", other], [other, "app:1"]] {
            let call = [command, keys[0], "FIXED 9 1h", keys[1], "FIXED 9 1h"].map(str::to_owned);
            assert_eq!(may(&mut client, &call), expected, "{call:?}");
        }
    }
}

#[test]
fn every_command_is_permitted_and_forbidden_by_its_name() {
    let (server, mut admin) = start();
    let commands: BTreeSet<_> = calls().iter().map(|call| call.command().to_owned()).collect();
    // The list of calls has every command.
    let Value::Array(all) = admin.run("COMMAND LIST FILTERBY MODULE rl") else { panic!("no list") };
    let names = all.iter().map(|name| text(name).to_uppercase());
    let listed = names.filter(|name| !name.contains('|')).collect::<BTreeSet<_>>();
    assert_eq!(listed, commands);
    let users = commands.into_iter().flat_map(|command| {
        let (same, other) = (command.clone(), command.clone());
        [
            user(&format!("~* -@all +{command}"), move |call| call.command() == same),
            user(&format!("~* +@all -{command}"), move |call| call.command() != other),
        ]
    });
    assert_permitted(&server, users.collect());
}

#[test]
fn categories_apply_on_servers_that_put_module_commands_into_them() {
    let (server, mut admin) = start();
    let reads = |call: &Call| call.is("read") || call.is("reads");
    // Redis 7.0 puts no command of a module into a category: only `+@all` permits one.
    let files = is_at_least(&mut admin, (7, 2), (8, 0));
    assert_permitted(
        &server,
        vec![
            user("~* -@all +@read", move |call| files && reads(call)),
            user("~* -@all +@write", move |call| files && call.is("update")),
            user("~* -@all +@fast", move |call| files && call.is("fast")),
            user("~* -@all +@admin", move |call| files && call.is("admin")),
            user("~* +@all -@read", move |call| !files || !reads(call)),
            user("~* +@all -@write", move |call| !files || !call.is("update")),
            user("~* +@all -@dangerous", move |call| !files || !call.is("admin")),
            user("~* +@all -@admin", move |call| !files || !call.is("admin")),
        ],
    );
    let Value::Array(categories) = admin.run("ACL CAT") else { panic!("no categories") };
    let has_own = categories.iter().any(|category| text(category) == "rl");
    // Modules can add a category since Redis 7.4 and Valkey 8. On older servers the module loads
    // without a category.
    assert_eq!(has_own, is_at_least(&mut admin, (7, 4), (8, 0)));
    if has_own {
        assert_permitted(&server, vec![user("~* -@all +@rl", |call| call.is("rl"))]);
        assert!(!may(&mut login(&server, "~* -@all +@rl"), &["GET", "k"].map(str::to_owned)));
    }
}

#[test]
fn call_refused_by_acl_takes_nothing_and_appears_in_the_acl_log() {
    let (server, mut admin) = start();
    for call in calls().iter().filter(|call| call.is("update")) {
        admin.call(&call.words);
    }
    let before = admin.contents();
    let mut client = login(&server, "%R~app:* +@all -rl.inspect");
    for call in calls().iter().filter(|call| call.is("update")) {
        let words = &call.words;
        assert!(!may(&mut client, words), "{words:?}");
        client.ok("MULTI");
        assert!(!may(&mut client, words), "{words:?} in MULTI");
        assert!(client.error("EXEC").starts_with("EXECABORT"), "{words:?}");
        assert!(raw_error(&client.call(&call.in_script())).is_some(), "{words:?} in a script");
    }
    assert_eq!(admin.contents(), before);
    let Value::Array(refusals) = admin.run("ACL LOG") else { panic!("no log") };
    assert!(!refusals.is_empty(), "a refusal is written down");
}
