//! Prometheus' text format, version 0.0.4.
//!
//! A family has a name, a line of help, a kind and samples. The text includes a family only if it
//! has a sample. `HELP` and `TYPE` use the full name of the samples, `_total` included: checkers of
//! this format refuse the short name that OpenMetrics uses.
//!
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::fmt::Write as _;

/// A text in this format, to which families are added.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

impl Exposition {
    /// Reserves memory for `bytes` more bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.text.reserve(bytes);
    }

    /// Starts the family of a counter, which only grows until a restart. Its name ends in `_total`.
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        Family { text: &mut self.text, name, help, kind: "counter", is_open: false }
    }

    /// Starts the family of a gauge, whose value may fall.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        Family { kind: "gauge", ..self.counter(name, help) }
    }

    /// Returns the text.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// The samples with one name.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    is_open: bool,
}

impl Family<'_> {
    /// Adds a sample. No other sample of the family may have the same labels.
    pub fn sample(&mut self, labels: &[(&str, &str)], number: u64) {
        self.begin(labels);
        // Writing to a `String` does not fail.
        let _ = writeln!(self.text, " {number}");
    }

    /// Adds millionths under labels, as an exact number with six decimals: microseconds as seconds.
    pub fn sample_millionths(&mut self, labels: &[(&str, &str)], millionths: u64) {
        self.begin(labels);
        let _ = writeln!(self.text, " {}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    }

    fn begin(&mut self, labels: &[(&str, &str)]) {
        let Self { text, name, help, kind, .. } = self;
        if !self.is_open {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            self.is_open = true;
        }
        text.push_str(name);
        for (number, (label, value)) in labels.iter().enumerate() {
            text.push(if number == 0 { '{' } else { ',' });
            text.push_str(label);
            text.push_str("=\"");
            push_escaped(text, value);
            text.push('"');
        }
        if !labels.is_empty() {
            text.push('}');
        }
    }
}

/// Adds the value of a label, escaped for use between quotation marks.
fn push_escaped(text: &mut String, value: &str) {
    // Usually nothing has to be escaped. A fold has no early exit, unlike `any`, so it checks many
    // bytes at a time.
    let is_special = |byte| matches!(byte, b'\\' | b'"' | b'\n');
    if !value.bytes().fold(false, |found, byte| found | is_special(byte)) {
        text.push_str(value);
        return;
    }
    for char in value.chars() {
        match char {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            char => text.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_writes_its_header_once_and_only_with_a_sample() {
        let mut exposition = Exposition::default();
        let mut family = exposition.counter("calls_total", "Calls.");
        family.sample(&[], 1);
        family.sample(&[("policy", "search"), ("variant", "")], u64::MAX);
        exposition.gauge("unused", "Nothing.");
        exposition.gauge("last_seconds", "When.").sample_millionths(&[], 1_700_000_000_000_042);
        let expected = "# HELP calls_total Calls.\n\
                        # TYPE calls_total counter\n\
                        calls_total 1\n\
                        calls_total{policy=\"search\",variant=\"\"} 18446744073709551615\n\
                        # HELP last_seconds When.\n\
                        # TYPE last_seconds gauge\n\
                        last_seconds 1700000000.000042\n";
        assert_eq!(exposition.into_text(), expected);
    }

    #[test]
    fn label_values_are_escaped() {
        let mut exposition = Exposition::default();
        exposition.gauge("a", "A.").sample(&[("b", "x\\y\"z\n"), ("c", "\\\\é\n\n")], 0);
        let text = exposition.into_text();
        let line = text.lines().last();
        assert_eq!(line, Some(r#"a{b="x\\y\"z\n",c="\\\\é\n\n"} 0"#));
    }
}
