//! Joins the texts of several servers into one page of Prometheus' text format, version 0.0.4.
//!
//! The format requires each metric once, with all its samples after its `HELP` and `TYPE`. So the
//! texts are split into metrics, each sample gets the label `server`, and the samples of a metric
//! are joined again, in the order in which the metrics first appeared.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

/// The label that names the server of a sample.
const SERVER: &str = "server";

/// The metrics of the exporter itself, which no server may send.
const OWN: [&str; 4] =
    ["rl_up", "rl_scrape_duration_seconds", "rl_exporter_discovery_up", "rl_exporter_info"];

/// The valid kinds of a `TYPE` line.
const KINDS: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];

/// The longest valid line of a reply, not counting its line ending.
const LINE_MOST_BYTES: usize = 64 * 1024;

/// The most labels of a sample, not counting the exporter's own.
const LABELS_MOST: usize = 64;

/// A fault of one line. The whole reply of the server is then refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    TooLong,
    TooManyLabels,
    /// A line that is not in the text format, or because of which Prometheus refuses a page.
    NoMetric,
}

impl Fault {
    /// Returns the reason that is logged for the server.
    fn of_line(self, number: usize) -> String {
        let expected = match self {
            Self::TooLong => format!("at most {LINE_MOST_BYTES} bytes"),
            Self::TooManyLabels => format!("at most {LABELS_MOST} labels"),
            Self::NoMetric => "a metric in the text format".to_owned(),
        };
        format!("invalid line {number} of RL.METRICS: expected {expected}")
    }
}

#[derive(Default)]
struct Metric {
    help: Option<String>,
    kind: Option<String>,
    /// The lines of the samples, each with its line ending.
    samples: String,
}

/// The metrics in the order in which they first appeared, with an index by name.
#[derive(Default)]
pub struct Page {
    metrics: Vec<(String, Metric)>,
    by_name: HashMap<String, usize>,
}

impl Page {
    fn metric(&mut self, name: &str) -> &mut Metric {
        let next = self.metrics.len();
        let index = *self.by_name.entry(name.to_owned()).or_insert(next);
        if index == next {
            self.metrics.push((name.to_owned(), Metric::default()));
        }
        &mut self.metrics[index].1
    }

    /// Begins a metric of the exporter itself.
    pub fn begin(&mut self, name: &str, help: &str) {
        let metric = self.metric(name);
        metric.help = Some(help.to_owned());
        metric.kind = Some("gauge".to_owned());
    }

    /// Adds a sample to a metric of the exporter itself, with one label.
    pub fn about(&mut self, name: &str, label: &str, text: &str, value: impl std::fmt::Display) {
        let sample = format!("{name}{{{label}=\"{}\"}} {value}\n", escaped(text));
        self.metric(name).samples.push_str(&sample);
    }

    /// Parses the reply of a server. Calls `check` before each line, and stops if `check` fails.
    ///
    /// # Errors
    ///
    /// Returns a text with the number of the first invalid line and its expected form, or the error
    /// of `check`. One invalid line would make Prometheus refuse the samples of every server.
    pub fn parse(
        server: &str,
        text: &str,
        mut check: impl FnMut() -> Result<(), String>,
    ) -> Result<Self, String> {
        let mut page = Self::default();
        let mut last = String::new();
        for (index, line) in text.lines().enumerate() {
            check()?;
            page.add_line(server, line, &mut last).map_err(|fault| fault.of_line(index + 1))?;
        }
        Ok(page)
    }

    /// Adds the metrics of another page to this one.
    pub fn add(&mut self, page: Self) {
        for (name, metric) in page.metrics {
            let all = self.metric(&name);
            all.help = all.help.take().or(metric.help);
            all.kind = all.kind.take().or(metric.kind);
            all.samples.push_str(&metric.samples);
        }
    }

    /// Adds one line. `last` is the metric of the latest `HELP` or `TYPE`, to which the parts of a
    /// histogram belong.
    fn add_line(&mut self, server: &str, line: &str, last: &mut String) -> Result<(), Fault> {
        if line.len() > LINE_MOST_BYTES {
            return Err(Fault::TooLong);
        }
        if let Some(comment) = line.strip_prefix('#') {
            if let Some((word, name, rest)) = described(comment) {
                let is_kind = word == "HELP" || KINDS.contains(&rest.trim());
                if !is_name(name) || OWN.contains(&name) || !is_kind {
                    return Err(Fault::NoMetric);
                }
                let metric = self.metric(name);
                let place = if word == "HELP" { &mut metric.help } else { &mut metric.kind };
                place.get_or_insert_with(|| rest.to_owned());
                name.clone_into(last);
            }
        } else if !line.trim().is_empty() {
            let (name, sample) = labelled(line, server)?;
            let of_last = name.strip_prefix(last.as_str()).filter(|_| !last.is_empty());
            let is_part =
                of_last.is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest));
            let samples = &mut self.metric(if is_part { last } else { name }).samples;
            samples.push_str(&sample);
            samples.push('\n');
        }
        Ok(())
    }

    /// Returns the page as text, without the metrics that have no samples.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, metric) in self.metrics.iter().filter(|(_, metric)| !metric.samples.is_empty()) {
            let heads = [("HELP", &metric.help), ("TYPE", &metric.kind)];
            for (word, rest) in heads.iter().filter_map(|(word, rest)| Some((word, rest.as_ref()?)))
            {
                let _ = writeln!(text, "# {word} {name} {rest}");
            }
            text.push_str(&metric.samples);
        }
        text
    }
}

/// Splits a `HELP` or `TYPE` comment into the word `HELP` or `TYPE`, the metric's name and the
/// rest. Returns `None` for any other comment.
fn described(comment: &str) -> Option<(&str, &str, &str)> {
    let (word, rest) = comment.trim_start().split_once(' ')?;
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    ["HELP", "TYPE"].contains(&word).then_some((word, name, rest))
}

fn is_name(name: &str) -> bool {
    let starts = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b':';
    name.bytes().next().is_some_and(starts)
        && name.bytes().all(|byte| starts(byte) || byte.is_ascii_digit())
}

/// Returns the name of a sample, and the sample's line with the label `server` added before the
/// other labels.
fn labelled<'line>(line: &'line str, server: &str) -> Result<(&'line str, String), Fault> {
    let end = line.find(['{', ' ']).ok_or(Fault::NoMetric)?;
    let (name, rest) = line.split_at(end);
    if !is_name(name) || OWN.contains(&name) {
        return Err(Fault::NoMetric);
    }
    let (labels, value) = match rest.strip_prefix('{') {
        Some(inside) => {
            let (labels, rest) = inside.split_at(labels_length(inside)?);
            (labels.trim_end_matches(','), &rest[1..])
        }
        None => ("", rest),
    };
    if !is_value(value) {
        return Err(Fault::NoMetric);
    }
    let comma = if labels.is_empty() { "" } else { "," };
    let sample = format!("{name}{{{SERVER}=\"{}\"{comma}{labels}}}{value}", escaped(server));
    Ok((name, sample))
}

/// Returns true if the text can follow the labels of a sample: a blank, a number, and an optional
/// time.
fn is_value(text: &str) -> bool {
    let mut words = text.strip_prefix(' ').into_iter().flat_map(|words| words.split(' '));
    let is_number = words.next().is_some_and(|number| {
        // Prometheus refuses a page with a number out of range, which is parsed as infinite here.
        let has_digits = number.bytes().any(|byte| byte.is_ascii_digit());
        number.parse::<f64>().is_ok_and(|value| !(value.is_infinite() && has_digits))
    });
    let is_timed = words.next().is_none_or(|time| time.parse::<i64>().is_ok());
    is_number && is_timed && words.next().is_none()
}

/// Returns the length of the labels at the start of a text, up to the brace that ends them.
fn labels_length(inside: &str) -> Result<usize, Fault> {
    let mut at = 0;
    let mut names = HashSet::new();
    while !inside[at..].starts_with('}') {
        if names.len() == LABELS_MOST {
            return Err(Fault::TooManyLabels);
        }
        let (name, length) = label(&inside[at..]).ok_or(Fault::NoMetric)?;
        if !names.insert(name) {
            return Err(Fault::NoMetric);
        }
        at += length;
    }
    Ok(at)
}

/// Returns the name of the first label in a text, and the label's length including the comma after
/// it, if any.
fn label(text: &str) -> Option<(&str, usize)> {
    let (name, value) = text.split_once("=\"")?;
    if !is_name(name) || name.contains(':') || name == SERVER {
        return None;
    }
    let mut escapes = false;
    let closing = value.find(|char| {
        let closes = char == '"' && !escapes;
        escapes = char == '\\' && !escapes;
        closes
    })?;
    let end = name.len() + 2 + closing + 1;
    match text.as_bytes().get(end)? {
        b',' => Some((name, end + 1)),
        b'}' => Some((name, end)),
        _ => None,
    }
}

/// Escapes a text for the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the reply of a server without a deadline, and adds it to the page.
    fn add(page: &mut Page, server: &str, text: &str) -> Result<(), String> {
        Page::parse(server, text, || Ok(())).map(|parsed| page.add(parsed))
    }

    const ONE: &str = "# HELP rl_a_total What a is.\n# TYPE rl_a_total counter\n\
                       rl_a_total{command=\"gcra\",outcome=\"allowed\"} 3\n\
                       # HELP rl_b B.\n# TYPE rl_b gauge\nrl_b 1\n";

    #[test]
    fn page_has_each_metric_once_with_the_samples_of_all_servers() {
        let mut page = Page::default();
        page.begin("rl_up", "Whether it replies.");
        page.about("rl_up", "server", "h:1", 1);
        page.about("rl_up", "server", "h:2", 1);
        add(&mut page, "h:1", ONE).expect("of the format");
        let newer =
            ONE.replace("What a is.", "Something else.") + "# TYPE rl_c counter\nrl_c{} 7 99\n";
        add(&mut page, "h:2", &newer).expect("of the format");
        let expected = "# HELP rl_up Whether it replies.\n# TYPE rl_up gauge\n\
            rl_up{server=\"h:1\"} 1\nrl_up{server=\"h:2\"} 1\n\
            # HELP rl_a_total What a is.\n# TYPE rl_a_total counter\n\
            rl_a_total{server=\"h:1\",command=\"gcra\",outcome=\"allowed\"} 3\n\
            rl_a_total{server=\"h:2\",command=\"gcra\",outcome=\"allowed\"} 3\n\
            # HELP rl_b B.\n# TYPE rl_b gauge\nrl_b{server=\"h:1\"} 1\nrl_b{server=\"h:2\"} 1\n\
            # TYPE rl_c counter\nrl_c{server=\"h:2\"} 7 99\n";
        assert_eq!(page.text(), expected);
    }

    #[test]
    fn labelled_keeps_labels_of_any_text_byte_for_byte() {
        let cases = [
            (r#"a{b="}"} 1"#, r#"a{server="s",b="}"} 1"#),
            (r#"a{b="\\",c="\"}"} +Inf"#, r#"a{server="s",b="\\",c="\"}"} +Inf"#),
            (r#"a{b="x",} NaN"#, r#"a{server="s",b="x"} NaN"#),
            (r#"a{b=","} -1.5e3"#, r#"a{server="s",b=","} -1.5e3"#),
            ("a 0", r#"a{server="s"} 0"#),
        ];
        for (line, expected) in cases {
            assert_eq!(labelled(line, "s").map(|(_, sample)| sample).as_deref(), Ok(expected));
        }
        assert_eq!(escaped("/a \"b\"\\\n"), r#"/a \"b\"\\\n"#);
    }

    #[test]
    fn page_keeps_the_parts_of_a_histogram_together() {
        let text = "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\nh_other 1\n";
        let mut page = Page::default();
        add(&mut page, "a", text).expect("of the format");
        add(&mut page, "b", text).expect("of the format");
        let order: Vec<_> = page.text().lines().map(|line| line[..5].to_owned()).collect();
        let expected =
            ["# TYP", "h_buc", "h_sum", "h_cou", "h_buc", "h_sum", "h_cou", "h_oth", "h_oth"];
        assert_eq!(order, expected);
    }

    #[test]
    fn reply_with_one_invalid_line_adds_nothing_to_the_page() {
        let odd = [
            "nonsense",
            "a b",
            "a{b=\"c\" 1",
            "a{b=c} 1",
            "a{b=\"c\"d=\"e\"} 1",
            "a{=\"c\"} 1",
            "a{b=\"c\"}1",
            "a{server=\"other\"} 1",
            "1a 1",
            "rl_up 1",
            "rl_up{x=\"y\"} 1",
            "# TYPE rl_up gauge",
            "# HELP 1a x",
            "# TYPE a speed",
            "a{b=\"c\",b=\"d\"} 1",
            "a 1e999",
            "a 1 soon",
            "a 1 2 3",
            "<html> 1",
        ];
        for line in odd {
            let mut page = Page::default();
            let reason = add(&mut page, "s", &format!("rl_b 1\n{line}\n")).expect_err(line);
            assert_eq!(reason, Fault::NoMetric.of_line(2));
            assert_eq!(page.text(), "", "{line}");
        }
    }

    #[test]
    fn parse_refuses_a_line_that_is_longer_than_64_kib() {
        // A sample, a description, any other comment, and a line of blanks.
        let lines =
            [("a{b=\"", "x", "\"} 1"), ("# HELP a ", "x", ""), ("#", "x", ""), ("", " ", "")];
        for (start, filling, end) in lines {
            let line = |bytes: usize| {
                format!("{start}{}{end}", filling.repeat(bytes - start.len() - end.len()))
            };
            let mut page = Page::default();
            assert_eq!(add(&mut page, "s", &line(65_536)), Ok(()), "{start}");
            let reason = add(&mut page, "t", &format!("c 1\n{}\n", line(65_537))).expect_err(start);
            assert_eq!(reason, "invalid line 2 of RL.METRICS: expected at most 65536 bytes");
            assert!(!page.text().contains("server=\"t\""), "{start}");
        }
    }

    /// Returns a sample with this many labels.
    fn sample_of(labels: usize) -> String {
        let labels: String = (0..labels).map(|label| format!("l{label}=\"\",")).collect();
        format!("a{{{labels}}} 1")
    }

    #[test]
    fn parse_refuses_a_sample_with_more_than_64_labels() {
        let mut page = Page::default();
        assert_eq!(add(&mut page, "s", &sample_of(64)), Ok(()));
        let reason =
            add(&mut page, "t", &format!("c 1\n{}\n", sample_of(65))).expect_err("65 labels");
        assert_eq!(reason, "invalid line 2 of RL.METRICS: expected at most 64 labels");
        assert!(!page.text().contains("server=\"t\""));
    }

    #[test]
    fn parse_stops_before_the_next_line_when_the_check_fails() {
        let mut left = 2;
        let check = || {
            left -= 1;
            if left < 0 { Err("late".to_owned()) } else { Ok(()) }
        };
        let parsed = Page::parse("s", "rl_a 1\nrl_b 1\nnonsense\n", check);
        assert_eq!(parsed.map(|page| page.text()), Err("late".to_owned()));
    }

    #[test]
    fn parse_does_not_read_a_label_after_the_64th() {
        let odd = sample_of(64).replace('}', "nonsense");
        let parsed = Page::parse("s", &odd, || Ok(())).map(|page| page.text());
        assert_eq!(parsed, Err(Fault::TooManyLabels.of_line(1)));
    }
}
