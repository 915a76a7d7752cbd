//! The policy file. The server reads it at the start and by LOAD, completely or not at all. SAVE
//! replaces it so that a complete file exists at any time.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use redis::Value;
use redis_throttle_engine::grammar::error::GrammarError;
use tempfile::TempDir;

use super::table::{digest, get, list};
use support::{BASE_US, Client, Random, Server, listing, module, raw_error};

const TEXT: &str = "# limits\nsearch GCRA 6 10 60\nsearch@plan:gold SHADOW GCRA 60 100 60\n";
const LINES: [&str; 2] = ["search GCRA 6 10 1m", "search@plan:gold SHADOW GCRA 60 100 1m"];

/// A folder with a policy file.
struct Folder(TempDir);

impl Folder {
    fn with(text: &str) -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        folder.write(text.as_bytes());
        folder
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("policies")
    }

    fn write(&self, text: &[u8]) {
        fs::write(self.file(), text).expect("written");
    }

    fn read(&self) -> String {
        fs::read_to_string(self.file()).expect("a text")
    }

    fn line(&self) -> String {
        line(&self.file())
    }

    /// Returns the names of the files in the folder.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("a folder");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(|entry| name(entry.expect("an entry"))).collect();
        names.sort();
        names
    }
}

fn line(path: &Path) -> String {
    format!("rl.policy-file {}", path.display())
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

/// Calls LOAD, which must fail, and returns its error.
fn load_error(client: &mut Client) -> String {
    client.error("RL.POLICY LOAD")
}

#[test]
fn server_starts_with_the_policies_of_its_file_and_with_saved_ones_after_a_restart() {
    let folder = Folder::with(TEXT);
    let mut server = Server::setup().line(&folder.line()).start();
    let mut client = server.client();
    assert_eq!(list(&mut client, ""), LINES);
    client.ok("RL.POLICY SET login ENFORCE 10 BACKOFF 3 1 8 1h");
    client.ok("RL.POLICY SET search EX 1h OFF GCRA 6 10 60");
    client.ok("RL.POLICY SET attack EX 1h BLOCK FIXED 1 1");
    assert_eq!(client.integer("RL.POLICY DEL search@plan:gold"), 1);
    client.ok("RL.POLICY SAVE");
    assert_eq!(folder.read(), "login ENFORCE 10 BACKOFF 3 1s 8s 1h\nsearch GCRA 6 10 1m\n");
    // SAVE does not end an override; a restart does.
    assert!(get(&mut client, "search").expect("there").contains(" OFF "));
    drop(client);
    server.start_again();
    let mut client = server.client();
    assert_eq!(get(&mut client, "search").as_deref(), Some("search GCRA 6 10 1m"));
    assert_eq!(get(&mut client, "attack"), None);
    assert_eq!(list(&mut client, "").join("\n") + "\n", folder.read());
    // Saving an empty table writes an empty file.
    client.integer("RL.POLICY DEL login search");
    client.ok("RL.POLICY SAVE");
    assert_eq!(folder.read(), "");
    client.ok("RL.POLICY LOAD");
    assert_eq!(digest(&mut client).0, "0");
}

#[test]
fn load_refuses_a_file_without_policies_while_the_table_holds_policies() {
    let refused = "ERR policy file: it has no policies, so loading it would remove all: add \
         policies, or use RL.POLICY DEL";
    let folder = Folder::with("# a GCRA 6 10 60\n");
    let server = Server::setup().line(&folder.line()).start();
    let mut client = server.client();
    client.freeze(BASE_US);
    // At the start, and after the policy is deleted, there is no policy to lose.
    client.ok("RL.POLICY LOAD");
    let policies =
        [("RL.POLICY SET a GCRA 6 10 60", "a"), ("RL.POLICY SET a EX 1h OFF GCRA 6 10 60", "a")];
    for (set, name) in policies {
        client.ok(set);
        let before = digest(&mut client);
        for text in ["", "\n\r\n", "# a GCRA 6 10 60\n", " \t#"] {
            folder.write(text.as_bytes());
            assert_eq!(load_error(&mut client), refused, "{set}: {text:?}");
            assert_eq!(digest(&mut client), before, "{set}: {text:?}");
        }
        assert_eq!(client.integer(&format!("RL.POLICY DEL {name}")), 1);
        client.ok("RL.POLICY LOAD");
    }
    // An expired override does not count as a policy to lose.
    client.ok("RL.POLICY SET a EX 1s OFF GCRA 6 10 60");
    client.advance_ms(1_000);
    client.ok("RL.POLICY LOAD");
    assert!(!server.log().contains("RL.POLICY LOAD"), "nothing was changed");
}

#[test]
fn load_logs_the_first_hundred_changes_and_then_their_counts() {
    let lines = |numbers: std::ops::Range<usize>, rule: &str| -> String {
        numbers.map(|number| format!("p{number:03} {rule}\n")).collect()
    };
    let folder = Folder::with(&lines(0..60, "GCRA 6 10 60"));
    let server = Server::setup().line(&folder.line()).start();
    let mut client = server.client();
    let said = || -> Vec<String> {
        let log = server.log();
        let said = log.lines().filter_map(|line| line.split_once("RL.POLICY LOAD by default: "));
        said.map(|(_, said)| said.to_owned()).collect()
    };
    // 20 policies are removed, 20 change, 20 remain, and 60 are added.
    let half = lines(20..40, "OFF GCRA 6 10 60") + &lines(40..120, "GCRA 6 10 60");
    folder.write(half.as_bytes());
    client.ok("RL.POLICY LOAD");
    assert_eq!(said().len(), 100);
    assert_eq!(said()[99], "p119: none -> GCRA 6 10 1m");
    // 20 policies are removed, 21 change, and 60 are added.
    let half = lines(40..61, "SHADOW GCRA 6 10 60") + &lines(61..180, "GCRA 6 10 60");
    folder.write(half.as_bytes());
    client.ok("RL.POLICY LOAD");
    let said = said();
    assert_eq!(said.len(), 201);
    assert_eq!(said[199], "p178: none -> GCRA 6 10 1m");
    let counts = "101 changes, the first 100 above: 60 added, 21 changed, 20 removed";
    assert_eq!(said[200], format!("{counts}, digest {}", digest(&mut client).1));
}

#[test]
fn load_ends_overrides_and_logs_the_changes() {
    let folder = Folder::with(TEXT);
    let server = Server::setup().line(&folder.line()).start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET search EX 1h OFF GCRA 6 10 60");
    client.ok("RL.POLICY SET new GCRA 6 10 60");
    client.ok("RL.POLICY LOAD");
    assert_eq!(list(&mut client, ""), LINES);
    client.ok("RL.POLICY LOAD");
    let log = server.log();
    let said = log.lines().filter_map(|line| line.split_once("RL.POLICY LOAD by default: "));
    let said: Vec<_> = said.map(|(_, said)| said).collect();
    let expected = [
        "new: GCRA 6 10 1m -> none",
        "search: EX 1h OFF GCRA 6 10 1m over GCRA 6 10 1m -> GCRA 6 10 1m",
    ];
    assert_eq!(said, expected);
}

#[test]
fn load_takes_a_file_completely_or_not_at_all_and_names_the_line_in_error() {
    let folder = Folder::with(TEXT);
    let server = Server::setup().line(&folder.line()).start();
    let mut client = server.client();
    let before = digest(&mut client);
    let secret = "rule of another user";
    let long = format!("a GCRA 6 10 60 # {0}\n{0}", "x".repeat(1_025));
    let cost = listing(GrammarError::CostOfPolicy).replace("ERR", "line 1:");
    let rows: [(&[u8], &str); 10] = [
        (
            b"a GCRA 6 10 60\n\n# c\na@x GCRA 0 10 60\nb",
            "line 4: invalid burst: expected an integer from 1 to 1000000000000",
        ),
        (
            b"a GCRA 6 10 60\na GCRA 6 10 60",
            "line 2: repeated policy: each policy may be in the file once",
        ),
        (
            b"a GCRA 6 10 60\r\na@x FIXED 6 10\r\n",
            "line 2: invalid algorithm: a policy, its variants and its override must share \
             one",
        ),
        (
            b"a EX 60 GCRA 6 10 60",
            "line 1: invalid option: EX is for RL.POLICY SET, not for the file",
        ),
        (b"a GCRA 6 10 60 COST 1", &cost),
        (b"a GCRA 6 10", "line 1: wrong number of arguments: expected GCRA burst rate period"),
        (
            b"\n\n\n\n\n\n\n\n\na",
            "line 10: missing rule: expected an algorithm and its limits, such as GCRA 6 10 60",
        ),
        (
            b"a GCRA 6 10 60\n\0\0\0",
            "line 2: invalid policy: expected name or name@variant, each 1 to 64 characters of \
             A-Z a-z 0-9 . _ : / -",
        ),
        (long.as_bytes(), "line 2: line too long: expected at most 1024 bytes"),
        (
            b"\x7fELF rule of another user",
            "line 1: invalid policy: expected name or name@variant, each 1 to 64 characters of \
             A-Z a-z 0-9 . _ : / -",
        ),
    ];
    for (text, expected) in rows {
        folder.write(text);
        let said = load_error(&mut client);
        assert_eq!(said, format!("ERR policy file, {expected}"), "{}", text.escape_ascii());
        assert!(!said.contains(secret));
        assert_eq!(digest(&mut client), before, "{}", text.escape_ascii());
    }
    assert_eq!(list(&mut client, ""), LINES);
    assert!(!server.log().contains("RL.POLICY LOAD"), "nothing was changed");
    folder.write(b"\ta\t GCRA 6 10 60 # no line feed");
    client.ok("RL.POLICY LOAD");
    assert_eq!(list(&mut client, ""), ["a GCRA 6 10 1m"]);
}

#[test]
fn path_to_anything_but_a_regular_file_is_refused_without_waiting() {
    let folder = Folder::with(TEXT);
    let server = Server::setup().line(&folder.line()).start();
    let mut client = server.client();
    let path = folder.file();
    let mut refused = |expected: &str| {
        assert_eq!(load_error(&mut client), format!("ERR policy file: {expected}"));
        assert_eq!(list(&mut client, ""), LINES);
    };
    fs::remove_file(&path).expect("removed");
    refused("no such file");
    symlink("nowhere", &path).expect("a link");
    refused("no such file");
    fs::remove_file(&path).expect("removed");
    symlink("policies", &path).expect("a link to itself");
    refused("the system refused to read it");
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a folder");
    refused("not a regular file");
    fs::remove_dir(&path).expect("removed");
    make_fifo(&path);
    refused("not a regular file");
    fs::remove_file(&path).expect("removed");
    symlink("/dev/zero", &path).expect("a link");
    refused("not a regular file");
    fs::remove_file(&path).expect("removed");
    File::create(&path).and_then(|file| file.set_len(100_000_000)).expect("a large file");
    refused("too long: expected at most 4194304 bytes");
    // The longest line in the largest file: comments and one policy.
    let line = format!("#{}\n", "x".repeat(1_022));
    let last = format!("{:<1023}\n", "a GCRA 6 10 60");
    folder.write((line.repeat(4_095) + &last).as_bytes());
    client.ok("RL.POLICY LOAD");
    server.assert_alive();
}

#[test]
fn load_of_the_module_is_refused_if_it_cannot_read_the_policy_file() {
    let folder = Folder::with("a GCRA 6 10 60\n\nb GCRA 6 10 0\n");
    let refused = |path: &Path, expected: &str| {
        let log = Server::setup().line(&line(path)).try_start().err().expect("refused");
        let said = format!("redis-throttle could not read rl.policy-file: {expected}");
        assert!(log.contains(&said), "{expected}: {log}");
    };
    let period = "policy file, line 3: invalid period: expected a duration from 1ms to 366d";
    refused(&folder.file(), period);
    refused(&folder.0.path().join("missing"), "policy file: no such file");
    refused(folder.0.path(), "policy file: not a regular file");
    let fifo = folder.0.path().join("fifo");
    make_fifo(&fifo);
    refused(&fifo, "policy file: not a regular file");
    let large = folder.0.path().join("large");
    File::create(&large).and_then(|file| file.set_len(4_194_305)).expect("a large file");
    refused(&large, "policy file: too long: expected at most 4194304 bytes");
}

#[test]
fn refused_load_does_not_affect_the_next_one() {
    let folder = Folder::with("a GCRA 6 10 60\nb");
    let server = Server::setup().without_module().start();
    let mut client = server.client();
    let (module, path) = (module::path().display().to_string(), folder.file());
    let path = path.display().to_string();
    let loadex = ["MODULE", "LOADEX", &module, "CONFIG", "rl.policy-file", &path];
    assert!(raw_error(&client.call(&loadex)).is_some());
    client.ok(&format!("MODULE LOAD {module}"));
    assert_eq!(digest(&mut client).0, "0");
    assert!(client.error("RL.POLICY LOAD").starts_with("ERR no policy file"));
}

#[test]
fn save_preserves_owner_mode_and_links() {
    let folder = Folder::with(TEXT);
    let path = folder.0.path().join("link");
    symlink("policies", &path).expect("a link");
    let server = Server::setup().line(&line(&path)).start();
    let mut client = server.client();
    fs::set_permissions(folder.file(), PermissionsExt::from_mode(0o604)).expect("a mode");
    let is_root = fs::metadata(folder.file()).expect("there").uid() == 0;
    if is_root {
        std::os::unix::fs::chown(folder.file(), Some(12_345), Some(54_321)).expect("an owner");
    }
    let before = fs::metadata(folder.file()).expect("there");
    client.ok("RL.POLICY SAVE");
    let after = fs::metadata(folder.file()).expect("there");
    assert_ne!(before.ino(), after.ino(), "it is a new file");
    assert_eq!(after.mode() & 0o7777, 0o604);
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert_eq!(fs::read_link(&path).expect("a link"), Path::new("policies"));
    assert_eq!(folder.read(), LINES.join("\n") + "\n");
    assert_eq!(folder.names(), ["link", "policies"]);
    // A temporary file that a killed server left does not prevent a save.
    fs::write(folder.0.path().join("policies.rl-save"), "half of").expect("written");
    client.ok("RL.POLICY SAVE");
    assert_eq!(folder.names(), ["link", "policies"]);
    // A missing file is created.
    fs::remove_file(folder.file()).expect("removed");
    client.ok("RL.POLICY SAVE");
    assert_eq!(folder.read(), LINES.join("\n") + "\n");
}

#[test]
fn failed_save_leaves_the_file_unchanged() {
    let folder = Folder::with(TEXT);
    let server = Server::setup().line(&folder.line()).start();
    let mut client = server.client();
    client.ok("RL.POLICY SET new GCRA 6 10 60");
    let in_the_way = folder.0.path().join("policies.rl-save");
    fs::create_dir(&in_the_way).expect("a folder");
    let refused = "ERR policy file: the system refused to replace it: check the free space and \
         the server's write permission on the folder";
    assert_eq!(client.error("RL.POLICY SAVE"), refused);
    assert_eq!(folder.read(), TEXT);
    fs::remove_dir(&in_the_way).expect("removed");
    fs::remove_file(folder.file()).expect("removed");
    fs::create_dir(folder.file()).expect("a folder");
    assert_eq!(client.error("RL.POLICY SAVE"), "ERR policy file: not a regular file");
    fs::remove_dir(folder.file()).expect("removed");
    symlink("nowhere/at/all", folder.file()).expect("a link");
    assert_eq!(client.error("RL.POLICY SAVE"), refused);
    assert_eq!(folder.names(), ["policies"]);
    server.assert_alive();
}

#[test]
fn servers_that_share_a_file_save_one_at_a_time() {
    let folder = Folder::with(TEXT);
    let servers = [0, 1].map(|_| Server::setup().line(&folder.line()).start());
    let new = folder.0.path().join("policies.rl-save");
    // While another server saves, its temporary file is not touched.
    let other = fs::File::create(&new).expect("created");
    other.lock().expect("locked");
    fs::write(&new, "half of").expect("written");
    let busy = "ERR policy file: another server is saving it: save again";
    assert_eq!(servers[0].client().error("RL.POLICY SAVE"), busy);
    assert_eq!((folder.read().as_str(), fs::read(&new).expect("there")), (TEXT, b"half of".into()));
    // Not `drop`: a server that another test starts at this moment inherits the open file until it
    // runs its program, and with it the lock.
    other.unlock().expect("unlocked");
    servers[0].client().ok("RL.POLICY SAVE");
    assert_eq!(folder.names(), ["policies"]);
    // Both servers save different tables repeatedly at the same time: the file is always exactly
    // one of these tables.
    let texts = ["", "SHADOW "].map(|mode| -> String {
        (0..2_000).map(|number| format!("p{number:04} {mode}GCRA 6 10 1m\n")).collect()
    });
    for (server, text) in servers.iter().zip(&texts) {
        folder.write(text.as_bytes());
        server.client().ok("RL.POLICY LOAD");
    }
    let saved = servers.each_ref().map(|server| {
        let mut client = server.client();
        thread::spawn(move || {
            let words = ["RL.POLICY", "SAVE"];
            (0..40).filter(|_| client.call(&words) == Value::Okay).count()
        })
    });
    while saved.iter().any(|thread| !thread.is_finished()) {
        let found = folder.read();
        assert!(texts.contains(&found), "a torn file of {}", found.len());
    }
    let saved = saved.map(|thread| thread.join().expect("no panic"));
    assert!(saved.iter().sum::<usize>() > 0, "{saved:?}");
    servers[1].client().ok("RL.POLICY SAVE");
    assert_eq!((folder.read(), folder.names()), (texts[1].clone(), vec!["policies".to_owned()]));
}

/// Limits the size of the server's files to `bytes`, so that the system kills it in the middle of a
/// write.
fn limit_files(client: &mut Client, bytes: usize, why: &str) {
    let pid = client.info("server")["process_id"].clone();
    let limit = format!("--fsize={bytes}:{bytes}");
    let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
    assert!(status.expect("prlimit").success(), "{why}");
}

#[test]
fn server_killed_at_any_byte_of_a_save_leaves_a_complete_file() {
    let folder = Folder::with(TEXT);
    let mut server = Server::setup().line(&folder.line()).start();
    let new = "a GCRA 6 10 1m\n".len() + TEXT.len();
    // The size limits end the save at the first byte, in the middle of a name, in the middle of a
    // line, or at the last byte.
    for bytes in [0, 1, 15, 16, 40, new - 14, new - 13] {
        let mut client = server.client();
        client.ok("RL.POLICY SET a GCRA 6 10 60");
        let whole = list(&mut client, "").join("\n") + "\n";
        limit_files(&mut client, bytes.min(whole.len() - 1), "as root or as the same user");
        assert!(client.try_call(&["RL.POLICY", "SAVE"]).is_err(), "killed at {bytes}");
        assert!(!server.wait_for_end().success());
        assert_eq!(folder.read(), TEXT, "killed at {bytes}");
        // The restarted server reads the old file, even though a temporary file remains.
        server.start_again();
        assert_eq!(list(&mut server.client(), ""), LINES);
    }
    server.client().ok("RL.POLICY SAVE");
    assert_eq!(folder.names(), ["policies"]);
}

#[test]
fn server_killed_at_any_time_during_saves_leaves_a_complete_old_or_new_file() {
    let text = |mode: &str| -> String {
        (0..2_000).map(|number| format!("p{number:04} {mode}GCRA 6 10 1m\n")).collect()
    };
    let (old, new) = (text(""), text("SHADOW "));
    let folder = Folder::with(&old);
    let mut server = Server::setup().line(&folder.line()).start();
    let mut random = Random::new(7);
    let (mut olds, mut news) = (0, 0);
    for round in 0..25 {
        folder.write(new.as_bytes());
        server.client().ok("RL.POLICY LOAD");
        folder.write(old.as_bytes());
        let mut client = server.client();
        let saving = thread::spawn(move || {
            for _ in 0..3 {
                if client.try_call(&["RL.POLICY", "SAVE"]).is_err() {
                    return;
                }
            }
        });
        thread::sleep(std::time::Duration::from_micros(random.below(6_000)));
        server.crash();
        saving.join().expect("no panic");
        let found = folder.read();
        assert!(found == old || found == new, "round {round}: a torn file of {}", found.len());
        (olds, news) = (olds + u32::from(found == old), news + u32::from(found == new));
        server.start_again();
    }
    println!("killed before {olds} and after {news} renames");
}

#[test]
fn relative_path_still_means_the_same_file_after_the_server_changes_its_directory() {
    let mut server = Server::start();
    fs::write(server.file("policies"), TEXT).expect("written");
    server.start_again_as(|setup| {
        setup.line("rl.policy-file policies").line("enable-protected-configs yes")
    });
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mut client = server.client();
    client.ok(&format!("CONFIG SET dir {}", elsewhere.path().display()));
    client.ok("RL.POLICY LOAD");
    client.ok("RL.POLICY SAVE");
    assert_eq!(list(&mut client, ""), LINES);
    assert!(fs::read_dir(elsewhere.path()).expect("a folder").next().is_none());
    // CONFIG SET cannot change the path, and CONFIG GET shows it as it was configured.
    let said = client.run("CONFIG GET rl.policy-file");
    assert!(format!("{said:?}").contains("\"policies\""), "{said:?}");
    assert!(raw_error(&client.run("CONFIG SET rl.policy-file other")).is_some());
}

#[test]
fn ten_thousand_policies_are_saved_and_loaded() {
    let folder = Folder::with("");
    let server = Server::setup().line(&folder.line()).start();
    let mut client = server.client();
    let calls =
        |number: usize| format!("RL.POLICY SET policy:{number} QUOTA 5 day ZONE Asia/Tokyo");
    let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let calls: Vec<_> = (0..10_000).map(|number| words(calls(number))).collect();
    assert!(client.pipeline(&calls).iter().all(|reply| *reply == redis::Value::Okay));
    let expected = "ERR too many policies: expected at most 10000";
    assert_eq!(client.error("RL.POLICY SET more GCRA 6 10 60"), expected);
    let before = digest(&mut client);
    client.ok("RL.POLICY SAVE");
    client.ok("RL.POLICY LOAD");
    assert_eq!(digest(&mut client), before);
    assert_eq!((before.0.as_str(), list(&mut client, "").len()), ("10000", 10_000));
    let file = fs::OpenOptions::new().append(true).open(folder.file()).expect("the file");
    std::io::Write::write_all(&mut &file, b"more GCRA 6 10 60\n").expect("written");
    let expected = "ERR policy file, line 10001: too many policies: expected at most 10000";
    assert_eq!(load_error(&mut client), expected);
}

#[test]
fn panic_at_any_point_leaves_the_table_unchanged_and_a_complete_file() {
    let folder = Folder::with(TEXT);
    let server = Server::setup().module(module::path_with_faults()).line(&folder.line()).start();
    let mut client = server.client();
    let panicked = "ERR internal error: the call was stopped and the key left as it was, \
         see the server's log";
    let set = "SET new GCRA 6 10 60";
    let ways: [(&str, &[&str]); 6] = [
        (set, &["parse", "decide"]),
        ("DEL search", &["parse", "decide"]),
        ("GET search", &["parse", "reply"]),
        ("LIST", &["parse", "reply"]),
        ("LOAD", &["parse", "policy_load"]),
        (
            "SAVE",
            &["parse", "save_create", "save_write", "save_sync", "save_rename", "save_folder"],
        ),
    ];
    let before = digest(&mut client);
    for (call, points) in ways {
        for point in points {
            client.ok(&format!("RL.DEBUG PANIC {point}"));
            assert_eq!(client.error(&format!("RL.POLICY {call}")), panicked, "{call} at {point}");
            assert_eq!(digest(&mut client), before, "{call} at {point}");
            let written = folder.read();
            let renamed = *point == "save_folder";
            assert_eq!(written == TEXT, !renamed, "{call} at {point}: {written}");
        }
    }
    assert_eq!(folder.read(), LINES.join("\n") + "\n");
    for (call, _) in ways.iter().filter(|(call, _)| !call.starts_with("DEL")) {
        assert!(raw_error(&client.run(&format!("RL.POLICY {call}"))).is_none(), "{call}");
    }
    assert_eq!(client.integer("RL.POLICY DEL search"), 1);
    server.assert_alive();
}
