//! `redis-throttle-lab serve` as clients find it, well-behaved ones and others.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_redis-throttle-lab");
/// The time after which a missing reply fails a test.
const DEADLINE: Duration = Duration::from_secs(30);

/// A started program, which is ended on drop.
struct Lab {
    child: Child,
    line: String,
    address: String,
}

impl Lab {
    fn start() -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let output = child.stdout.take().expect("an output");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        let (_, rest) = line.split_once("redis://").expect("an address");
        let address = rest.split(',').next().expect("an address").to_owned();
        Self { child, line, address }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a deadline");
        stream.set_write_timeout(Some(DEADLINE)).expect("a deadline");
        Client(stream)
    }

    /// Asserts that the server still serves a new connection.
    fn assert_it_serves(&self) {
        let mut client = self.connect();
        client.send(b"PING\r\n");
        client.assert_next("+PONG\r\n");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client(TcpStream);

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server reads");
    }

    fn assert_next(&mut self, expected: &str) {
        let mut found = vec![0; expected.len()];
        let read = self.0.read_exact(&mut found);
        let found = String::from_utf8_lossy(&found);
        assert_eq!((read.is_ok(), &*found), (true, expected), "{read:?}");
    }

    /// Returns everything up to the end of the connection.
    fn rest(mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).expect("an end");
        text
    }
}

const CALL: &[u8] = b"*5\r\n$8\r\nRL.FIXED\r\n$1\r\nk\r\n$1\r\n1\r\n$2\r\n1h\r\n$0\r\n\r\n";

#[test]
fn line_at_the_start_has_the_address_and_a_command_that_works() {
    let lab = Lab::start();
    let (_, command) = lab.line.trim_end().split_once("try: ").expect("a command");
    let (dial, words) = command.split_once(" RL.").expect("a command of the module");
    let (host, port) = lab.address.split_once(':').expect("a port");
    assert_eq!(dial, format!("redis-cli -h {host} -p {port}"));
    let mut client = lab.connect();
    client.send(format!("RL.{words}\r\n").as_bytes());
    client.assert_next("*5\r\n:1\r\n:6\r\n:5\r\n:0\r\n");
}

#[test]
fn clock_can_be_moved_and_all_connections_share_keys() {
    let lab = Lab::start();
    let (mut one, mut other) = (lab.connect(), lab.connect());
    let allowed = "*5\r\n:1\r\n:1\r\n:0\r\n:0\r\n:60000\r\n";
    one.send(b"RL.DEBUG CLOCK FREEZE 1767225600000000\r\nRL.FIXED k 1 60\r\nPTTL k\r\n");
    one.assert_next(&format!(":1767225600000000\r\n{allowed}:60000\r\n"));
    other.send(b"RL.FIXED k 1 60\r\n");
    other.assert_next("*5\r\n:0\r\n:1\r\n:0\r\n:60000\r\n:60000\r\n");
    other.send(b"RL.DEBUG CLOCK ADVANCE 60s\r\nRL.FIXED k 1 60\r\n");
    other.assert_next(&format!(":1767225660000000\r\n{allowed}"));
}

#[test]
fn command_in_pieces_gets_its_reply_once_complete() {
    let lab = Lab::start();
    let mut client = lab.connect();
    for byte in b"*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n" {
        client.send(&[*byte]);
    }
    client.assert_next("$3\r\nabc\r\n");
    // The next one stays incomplete, and concerns no other connection.
    client.send(&CALL[..20]);
    lab.assert_it_serves();
}

#[test]
fn info_has_the_fields_that_drivers_read_before_they_send_commands() {
    let lab = Lab::start();
    let mut client = lab.connect();
    client.send(b"INFO\r\nINFO server\r\nQUIT\r\n");
    let text = client.rest();
    let (head, rest) = text.split_once("\r\n").expect("the length of a text");
    let length: usize = head.strip_prefix('$').expect("a text").parse().expect("a length");
    let (info, after) = rest.split_at(length);
    let fields: Vec<_> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let expected = [
        ("redis_version", "7.4.0"),
        ("redis_mode", "standalone"),
        ("redis_throttle_lab_version", env!("CARGO_PKG_VERSION")),
        ("loading", "0"),
        ("role", "master"),
        ("cluster_enabled", "0"),
    ];
    assert_eq!(fields, expected);
    // A section gets the same reply.
    assert_eq!(after, format!("\r\n{head}\r\n{info}\r\n+OK\r\n"));
}

#[test]
fn malformed_input_gets_an_error_and_ends_the_connection() {
    let lab = Lab::start();
    let endless_line = [b'x'; 64 * 1024];
    let word = format!("$65536\r\n{}\r\n", "x".repeat(65_536));
    let endless_words = format!("*9\r\n{}", word.repeat(4));
    let table: [(&[u8], &str); 6] = [
        (b"*1\r\n$99999999999\r\n", "invalid bulk length"),
        (b"*1000000000\r\n", "invalid multibulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n$1\r\nabc", "expected CRLF after a bulk string"),
        (&endless_line, "too big inline request"),
        (endless_words.as_bytes(), "a command has at most 262144 bytes"),
    ];
    for (input, expected) in table {
        let mut client = lab.connect();
        client.send(b"PING\r\n");
        client.send(input);
        let expected = format!("+PONG\r\n-ERR Protocol error: {expected}\r\n");
        assert_eq!(client.rest(), expected);
    }
    lab.assert_it_serves();
}

#[test]
fn ten_thousand_pipelined_commands_get_their_replies_in_order() {
    const COMMANDS: usize = 10_000;
    let lab = Lab::start();
    let mut client = lab.connect();
    let mut sending = client.0.try_clone().expect("a second handle");
    let writer = thread::spawn(move || {
        let commands: String = (0..COMMANDS).map(|at| format!("ECHO {at}\r\n")).collect();
        sending.write_all(commands.as_bytes()).expect("the server reads");
    });
    for at in 0..COMMANDS {
        let text = at.to_string();
        client.assert_next(&format!("${}\r\n{text}\r\n", text.len()));
    }
    writer.join().expect("all are sent");
}

#[test]
fn client_that_reads_no_replies_is_not_read_either() {
    let lab = Lab::start();
    let mut client = lab.connect();
    client.0.set_write_timeout(Some(Duration::from_millis(500))).expect("a deadline");
    let command = [b"*2\r\n$4\r\nECHO\r\n$60000\r\n".as_slice(), &[b'x'; 60_000], b"\r\n"].concat();
    // The server buffers little. The system buffers some megabytes of what each side sends.
    let sent = (0..4_000).take_while(|_| client.0.write_all(&command).is_ok()).count();
    assert!(sent < 4_000, "the server took 240 MB of commands whose replies were not read");
    lab.assert_it_serves();
}

#[test]
fn thousand_connections_get_their_replies_at_once() {
    let lab = Lab::start();
    // Another process holds them: both ends would exceed the usual limit of open files.
    let mut holder = Command::new("/usr/bin/env")
        .args(["bash", "-c", HOLDER, "holder", &lab.address.replace(':', "/"), "900"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("an output")).read_line(&mut line).expect("a line");
    assert_eq!(line, "900\n", "connections that got a reply");
    let clients: Vec<_> = (0..100).map(|_| lab.connect()).collect();
    for mut client in clients {
        client.send(CALL);
        client.assert_next("-ERR");
    }
    drop(holder.stdin.take());
    holder.wait().expect("an end");
}

/// Opens connections to an address, prints the number of those that got a reply, and holds them
/// until its input ends.
const HOLDER: &str = r#"
for at in $(seq "$2"); do exec {socket}<>"/dev/tcp/$1"; sockets="$sockets $socket"; done
for socket in $sockets; do printf 'PING\r\n' >&"$socket"; done
for socket in $sockets; do
    read -r reply <&"$socket"
    [ "$reply" = $'+PONG\r' ] && count=$((count + 1))
done
echo "$count"
read -r
"#;

#[test]
fn reset_connections_concern_no_other() {
    let lab = Lab::start();
    let (done, all) = mpsc::channel();
    for _ in 0..50 {
        let mut client = lab.connect();
        let done = done.clone();
        thread::spawn(move || {
            // The replies are unread when the connection is dropped, so the system resets it.
            client.send(&CALL.repeat(100));
            drop(client);
            done.send(()).expect("the test waits");
        });
    }
    drop(done);
    assert_eq!(all.iter().count(), 50);
    lab.assert_it_serves();
}

#[test]
fn quit_ends_the_connection_after_its_reply() {
    let lab = Lab::start();
    let mut client = lab.connect();
    client.send(b"PING\r\nQUIT\r\nPING\r\n");
    assert_eq!(client.rest(), "+PONG\r\n+OK\r\n");
    // A page in a browser cannot smuggle a command into the body of a request.
    let mut client = lab.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nFLUSHALL\r\n");
    match client.0.read(&mut [0; 8]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
}
