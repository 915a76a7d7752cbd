//! Builds and runs programs in Go with the drivers that `go/go.mod` and `go/go.sum` lock.

use super::pages::within_deadline;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// The packages that the functions of the pages use.
const PACKAGES: [&str; 5] =
    ["context", "net", "time", "github.com/redis/go-redis/v9", "github.com/redis/rueidis"];

/// The rest of a program that prints the reply of the page's function `check`.
const MAIN: &str = r#"
func main() {
	reply, err := check()
	switch {
	case err != nil:
		fmt.Println("no reply: allow or deny, as decided for this rule")
	case reply[0] == 1:
		fmt.Printf("allowed, %d left\n", reply[2])
	default:
		fmt.Printf("denied, retry in %d ms\n", reply[3])
	}
}
"#;

/// Returns a program that prints the reply of a page's function `check`.
pub fn around(function: &str) -> String {
    let mut program = "package main\n\nimport \"fmt\"\n".to_owned();
    for package in PACKAGES {
        let name = package.trim_end_matches("/v9").rsplit(['/', '-']).next().expect("a name");
        if function.split(|char: char| !char.is_alphanumeric()).any(|word| word == name) {
            program += &format!("import \"{package}\"\n");
        }
    }
    program + function + MAIN
}

/// Builds a program, a folder or a file, with the locked drivers.
///
/// # Panics
///
/// Panics if Go is missing or the program is wrong; the message is what the script or Go says.
pub fn build(program: &Path, binary: &Path) {
    // The script fetches Go if the machine's is too old: once, not in two tests at a time.
    static BUILDING: Mutex<()> = Mutex::new(());
    let mut build = Command::new("timeout");
    build.args(["300", "scripts/clients.sh", "go", "-C", "tests/snippets/go", "build", "-o"]);
    build.arg(binary).arg(program).current_dir(env!("CARGO_MANIFEST_DIR"));
    // The module's go.sum must hold for every build, whatever the environment sets.
    build.env("GOFLAGS", "-mod=readonly").env("GOWORK", "off");
    let output = {
        let _turn = BUILDING.lock().expect("no thread has panicked");
        build.output().expect("the script can be run")
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} is not built:\n{errors}", program.display());
}

/// Runs the program of the folder, which makes calls with the default options of a driver, and
/// returns its output.
pub fn calls<A: AsRef<str>>(arguments: &[A]) -> String {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("snippets-calls");
        build(Path::new("."), &binary);
        binary
    });
    let mut command = within_deadline(program);
    command.args(arguments.iter().map(AsRef::as_ref)).stdin(Stdio::null());
    let output = command.output().expect("the program can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?} failed:\n{errors}");
    String::from_utf8(output.stdout).expect("text")
}
