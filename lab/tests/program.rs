//! The program as a user starts it.

use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_redis-throttle-lab");

/// A started program, which is ended on drop.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn prints_its_address_once_it_listens() {
    let mut child = Command::new(PROGRAM)
        .args(["--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let output = child.stdout.take().expect("an output");
    let _started = Started(child);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).expect("a line");
    let address = line.strip_prefix("redis-throttle-lab: http://").expect("an address").trim_end();
    assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{address}");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let head = format!("GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

/// Runs the program with these arguments, and returns its exit code, output and errors.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(PROGRAM).args(arguments).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn reports_an_error_in_one_line_with_exit_code_2() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("an address").to_string();
    let in_use = format!(
        "cannot listen on {taken}: the port is in use; choose another one, such as --listen \
         127.0.0.1:7781\n"
    );
    let table: [(&[&str], &str); 4] = [
        (&["--listen", &taken], &in_use),
        (&["--listen", "nowhere"], "cannot listen on nowhere: "),
        (&["--port", "1"], "unexpected argument '--port' found; see --help\n"),
        (&["deal"], "unrecognized subcommand 'deal'; see --help\n"),
    ];
    for (arguments, expected) in table {
        let (code, output, errors) = run(arguments);
        assert_eq!((code, output.as_str()), (Some(2), ""), "{arguments:?}");
        let errors = errors.strip_prefix("redis-throttle-lab: ").expect("the program's name");
        assert!(errors.starts_with(expected), "{arguments:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn help_and_version_go_to_the_output() {
    let (code, help, errors) = run(&["--help"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(help.contains("--listen <ADDRESS>") && help.contains("127.0.0.1:7780"), "{help}");
    let version = format!("redis-throttle-lab {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["--version"]), (Some(0), version, String::new()));
}

#[test]
fn first_commands_of_the_page_print_the_report_that_it_shows() {
    let page = include_str!("../../docs/lab.md");
    let mut blocks = page.split("\n```").skip(1).step_by(2);
    let commands = blocks.next().and_then(|block| block.strip_prefix("sh\n")).expect("commands");
    let report = blocks.next().and_then(|block| block.strip_prefix('\n')).expect("a report");
    let programs = Path::new(PROGRAM).parent().expect("a folder").display();
    let path = format!("{programs}:{}", env::var("PATH").expect("a search path"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut shell = Command::new("sh");
    shell.args(["-euc", commands]).env("PATH", path).current_dir(folder.path());
    let output = shell.output().expect("a shell");
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && printed.contains(report), "{printed}");
}
