use crate::config::Configuration;
use std::fs::{self, write};
use std::path::Path;

const FILE: &str = "domain: NAME\nlimits:\n- {match: {a: x}, rule: GCRA 1 1 1}\n";

fn mistakes(path: &Path) -> Vec<String> {
    let mistakes = Configuration::load(path).expect_err("mistakes");
    mistakes.iter().map(ToString::to_string).collect()
}

#[test]
fn folder_has_one_domain_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(path("b.yaml"), FILE.replace("NAME", "b")).unwrap();
    write(path("a.yml"), FILE.replace("NAME", "a")).unwrap();
    // A ConfigMap has such names; the others are not configuration.
    fs::create_dir(path("..data")).unwrap();
    for name in [".hidden.yaml", "notes.txt", "b.yaml.bak"] {
        write(path(name), "not yaml: [").unwrap();
    }
    let loaded = Configuration::load(folder.path()).unwrap();
    let names: Vec<_> = loaded.domains().map(|domain| &*domain.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(loaded.domain("a").is_some() && loaded.domain("c").is_none());
    // Some editors write a byte order mark at the head.
    write(path("b.yaml"), FILE.replace("domain: NAME", "\u{feff}domain: b")).unwrap();
    let one = Configuration::load(&path("b.yaml")).unwrap();
    assert_eq!(one.domains().count(), 1);
}

#[test]
fn domain_in_two_files_is_refused_with_both_names() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.yaml", "b.yaml"] {
        write(folder.path().join(name), FILE).unwrap();
    }
    let mistakes = mistakes(folder.path());
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    let (first, second) = (folder.path().join("a.yaml"), folder.path().join("b.yaml"));
    let begins = mistakes[0].starts_with(&format!("{}:1:9: ", second.display()));
    assert!(begins && mistakes[0].contains(&first.display().to_string()), "{mistakes:?}");
}

#[test]
fn invalid_files_of_a_folder_are_all_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(path("a.yaml"), "domain: a\n").unwrap();
    write(path("b.yaml"), [0xff]).unwrap();
    write(path("c.yaml"), vec![b'#'; 4 * 1024 * 1024 + 1]).unwrap();
    fs::create_dir(path("d.yaml")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(path("e.yaml")).status();
    assert!(fifo.unwrap().success());
    let expected = ["without limits", "UTF-8", "too large", "expected a file", "expected a file"];
    let mistakes = mistakes(folder.path());
    assert_eq!(mistakes.len(), expected.len(), "{mistakes:?}");
    for (mistake, expected) in mistakes.iter().zip(expected) {
        assert!(mistake.contains(expected), "{mistake}");
    }
}

#[test]
fn missing_file_and_empty_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(mistakes(folder.path())[0].contains("no file here ends in .yaml"));
    assert!(mistakes(&folder.path().join("x.yaml"))[0].contains("cannot be read"));
}

#[test]
fn configuration_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Configuration>();
    shared::<crate::matching::Match<'static>>();
}
