use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;

/// Returns the lengths of the lines, and whether each was short enough.
fn lens(bytes: Vec<u8>) -> Vec<(usize, bool)> {
    let mut lines = Lines::of(Cursor::new(bytes)).unwrap();
    let mut lens = Vec::new();
    while let Some(line) = lines.next_line().unwrap() {
        lens.push(match line {
            Line::Text(text) => (text.len(), true),
            Line::TooLong(text) => (text.len(), false),
        });
    }
    assert_eq!(lines.number(), lens.len() as u64);
    lens
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn lines_end_with_a_line_feed_a_carriage_return_before_it_or_the_end() {
    assert_eq!(lens(b"a\nbc\r\n\nd".to_vec()), [(1, true), (2, true), (0, true), (1, true)]);
    assert_eq!(lens(Vec::new()), []);
    assert_eq!(lens(b"\n".to_vec()), [(0, true)]);
}

#[test]
fn lines_above_the_longest_length_are_cut_and_the_next_one_is_read() {
    for len in [LINE_LEN_MAX - 1, LINE_LEN_MAX, LINE_LEN_MAX + 1, BUFFER_LEN, 10 * BUFFER_LEN] {
        let long = [vec![b'x'; len], b"\nab\n".to_vec()].concat();
        let fits = len <= LINE_LEN_MAX;
        let kept = len.min(LINE_LEN_MAX);
        assert_eq!(lens([b"cde\n".to_vec(), long].concat()), [(3, true), (kept, fits), (2, true)]);
        assert_eq!(lens(vec![b'x'; len]), [(kept, fits)]);
    }
}

#[test]
fn many_lines_are_all_read_across_the_ends_of_the_buffer() {
    let text: Vec<u8> = (0..100_000).flat_map(|at| format!("{at}\n").into_bytes()).collect();
    assert_eq!(lens(text).len(), 100_000);
}

#[test]
fn gzip_members_are_read_one_after_the_other() {
    let bytes = [gzip(b"a\nb"), gzip(b"c\nd\n")].concat();
    assert_eq!(lens(bytes), [(1, true), (2, true), (1, true)]);
}

#[test]
fn byte_order_mark_at_the_head_belongs_to_no_line() {
    let text = "\u{feff}ab\n\u{feff}c\n".as_bytes();
    for bytes in [text.to_vec(), gzip(text)] {
        assert_eq!(lens(bytes), [(2, true), (4, true)]);
    }
    let longest = ["\u{feff}".as_bytes(), &[b'x'; LINE_LEN_MAX]].concat();
    assert_eq!(lens(longest), [(LINE_LEN_MAX, true)]);
    assert_eq!(lens("\u{feff}".into()), []);
    assert_eq!(lens(b"\xef\xbb".to_vec()), [(2, true)]);
}

/// Returns the lines of a file, and the reason why it ended before its end.
fn read(bytes: Vec<u8>) -> (Vec<String>, Option<String>) {
    let mut lines = Lines::of(Cursor::new(bytes)).unwrap();
    let mut found = Vec::new();
    while let Some(line) = lines.next_line().unwrap() {
        let (Line::Text(text) | Line::TooLong(text)) = line;
        found.push(String::from_utf8_lossy(text).into_owned());
    }
    (found, lines.cut().map(str::to_owned))
}

#[test]
fn a_damaged_gzip_file_ends_before_the_line_with_the_damage_and_says_so() {
    let text: String = (0..20_000).map(|line| format!("{line}\n")).collect();
    let whole = gzip(text.as_bytes());
    let (lines, cut) = read(whole[..whole.len() / 2].to_vec());
    assert!(cut.unwrap().contains("damaged"));
    assert!(lines.len() > 1_000 && lines.len() < 19_000, "{}", lines.len());
    assert!(lines.iter().enumerate().all(|(at, line)| *line == at.to_string()));
    let (lines, cut) = read([&whole[..], b"text"].concat());
    assert_eq!((lines.len(), cut.is_some()), (20_000, true));
    // Some programs pad a file with zeros, also between its members.
    let (lines, cut) = read([&whole[..], &[0; 600], &gzip(b"x")[..], &[0; 600]].concat());
    assert_eq!((lines.len(), cut), (20_001, None));
}

#[test]
fn other_compressions_name_the_program_that_reads_them() {
    let error = Lines::of(Cursor::new(b"\x28\xb5\x2f\xfdxyz".to_vec())).err().unwrap();
    assert!(error.to_string().contains("zstdcat"), "{error}");
}
