//! The meaning of files, and the remarks on wrong ones.

mod examples;
mod folders;
mod own;
mod ratelimit;
mod syntax;

use super::limits_file::read;
use super::{Domain, Remark};

/// Reads a file that is right, and returns its warnings without the file's name.
fn right(text: &str) -> (Domain, Vec<String>) {
    match read("f.yaml", text) {
        Ok((domain, warnings)) => (domain, texts(&warnings)),
        Err(mistakes) => panic!("{:#?}\n{text}", texts(&mistakes)),
    }
}

/// Returns the mistakes of a file without the file's name.
fn wrong(text: &str) -> Vec<String> {
    match read("f.yaml", text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(mistakes) => texts(&mistakes),
    }
}

fn texts(remarks: &[Remark]) -> Vec<String> {
    let text = |remark: &Remark| remark.to_string().replace("f.yaml:", "");
    remarks.iter().map(text).collect()
}

/// Checks that there are as many remarks as expected, and that each begins with `line:column` and
/// contains a text.
fn assert_remarks(remarks: &[String], expected: &[(&str, &str)], about: &str) {
    assert_eq!(remarks.len(), expected.len(), "{remarks:#?}\n{about}");
    for (remark, (place, text)) in remarks.iter().zip(expected) {
        let begins = remark.starts_with(&format!("{place}: "));
        assert!(begins && remark.contains(text), "{remark}\nexpected {place}: {text}\n{about}");
    }
}
