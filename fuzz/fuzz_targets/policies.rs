//! Feeds any bytes to the grammar, as a definition of a policy and as a policy file. The grammar
//! must not panic. A line of a file must mean the same as its words do as arguments. Formatting a
//! policy that was read must give a text with the same meaning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_throttle_engine::algorithms::Rule;
use redis_throttle_engine::bounds::Slots;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::policy::{Assignment, Definition, assignment, definition};
use redis_throttle_engine::grammar::policy_file::{LineFault, policy_file};
use redis_throttle_engine::policy::definition::Enforcement;
use redis_throttle_engine::policy::families::Refusal;
use redis_throttle_engine::policy::pattern::Pattern;
use redis_throttle_engine::policy::table::Policies;
use redis_throttle_engine::time::Instant;

fuzz_target!(|bytes: &[u8]| {
    let args: Vec<&[u8]> = bytes.split(|byte| *byte == b' ').collect();
    let read = definition(&args);
    match assignment(&args) {
        Ok(Assignment::Whole(whole)) => assert_eq!(read.as_ref(), Ok(&whole)),
        Ok(Assignment::Mode(_)) => assert_eq!(read, Err(GrammarError::MissingPolicyRule)),
        Err(error) => assert_eq!(read, Err(error)),
    }
    if let Ok(read) = &read {
        reads_as_it_is_written(read);
    }
    one_line_is_one_definition(bytes);
    a_file_is_its_lines(bytes);
    // Matching must end for every pattern and every name.
    if let Some((pattern, name)) = bytes.split_at_checked(bytes.len() / 2) {
        if let Some(pattern) = Pattern::new(pattern) {
            let _ = pattern.matches(name.get(..129).unwrap_or(name));
        }
    }
});

fn reads_as_it_is_written(read: &Definition) {
    let line = format!("{} {}", read.name.as_str(), read.setting.text);
    let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
    let again = definition(&words).expect("what was written reads");
    assert_eq!((&again.name, &again.setting), (&read.name, &read.setting), "{line}");
    assert_eq!(again.lasts, None, "{line}");
    assert!(line.len() <= 1_024, "a line of the file holds it: {line}");
    if let Enforcement::Percent(percent) = read.setting.enforcement {
        assert!(percent <= 100);
    }
    if let Rule::SlidingLog(log) = read.setting.rule {
        let is_default = log.slots == Slots::DEFAULT;
        assert!(log.has_own_slots || is_default, "the setting says how many there are");
    }
}

/// Returns the words of a line, which blanks separate. A comment from the first `#` on is left out.
fn words_of(line: &[u8]) -> Vec<&[u8]> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let end = line.iter().position(|byte| *byte == b'#').unwrap_or(line.len());
    let words = line[..end].split(|byte| b" \t".contains(byte));
    words.filter(|word| !word.is_empty()).collect()
}

/// Returns a file without the byte order mark at its head, which is no part of its first line.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

fn one_line_is_one_definition(bytes: &[u8]) {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let words = words_of(without_mark(line));
    let read = policy_file(line);
    match (&read, words.is_empty()) {
        (Ok(bases), true) => assert!(bases.is_empty()),
        (Ok(bases), false) => {
            assert_eq!(bases.len(), 1);
            assert_eq!(definition(&words).expect("it reads").lasts, None);
        }
        (Err(error), _) => {
            assert_eq!(error.line, 1);
            match error.fault {
                LineFault::Grammar(fault) => assert_eq!(definition(&words), Err(fault)),
                LineFault::Ends => assert!(definition(&words).expect("it reads").lasts.is_some()),
                LineFault::TooLong => assert!(line.len() > 1_024),
                LineFault::Refused(refusal) => panic!("alone, and {refusal:?}"),
            }
        }
    }
}

fn a_file_is_its_lines(bytes: &[u8]) {
    let now = Instant::from_us(0);
    let lines: Vec<_> = without_mark(bytes).split(|byte| *byte == b'\n').collect();
    match policy_file(bytes) {
        Ok(bases) => {
            let definitions = lines.iter().map(|line| words_of(line)).filter(|w| !w.is_empty());
            assert_eq!(bases.len(), definitions.count());
            let mut table = Policies::default();
            assert_eq!(table.load(bases, now).len(), table.count_and_digest(now).0);
            let listed = table.list(Pattern::ANY).join("\n");
            let mut again = Policies::default();
            again.load(policy_file(listed.as_bytes()).expect("what is listed reads"), now);
            assert_eq!(again.count_and_digest(now), table.count_and_digest(now));
            assert_eq!(again.list(Pattern::ANY).join("\n"), listed);
        }
        Err(error) => {
            let bad = error.line as usize - 1;
            assert!(bad < lines.len());
            // The lines before the invalid one are a valid file.
            assert!(policy_file(&lines[..bad].join(&b'\n')).is_ok());
            // A mark within the file is a part of its line.
            let alone = policy_file(&[b"\n", lines[bad]].concat());
            match error.fault {
                LineFault::Refused(Refusal::Repeated | Refusal::OtherAlgorithm) => {
                    assert!(alone.is_ok());
                }
                LineFault::Refused(Refusal::TooMany) => {}
                fault => assert_eq!(alone.map(|_| ()).unwrap_err().fault, fault),
            }
        }
    }
}
