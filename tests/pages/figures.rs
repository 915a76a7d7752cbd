//! The tables of measured figures in `docs/performance.md`. They are generated from the data that
//! the benchmarks write, `docs/bench/*.tsv`.
//!
//! ```text
//! make figures
//! cargo test --locked --test pages figures
//! ```
//!
//! `UPDATE=1`, which `make figures` sets, writes the tables into the page. Without it, they are
//! generated in memory and compared with the page.

use std::collections::BTreeMap;
use std::{env, fs};

const PAGE: &str = "docs/performance.md";
const SERVERS: [(&str, &str); 3] =
    [("redis-7.0", "Redis 7.0"), ("redis-8.0", "Redis 8.0"), ("valkey-9.1", "Valkey 9.1")];

/// A row: the call, its reference, and the names of its figures. `{}` stands for each of the four
/// limiters.
type Row = (&'static str, &'static str, &'static [&'static str]);

const LIMITERS: [&str; 4] = ["GCRA", "FIXED", "TOKENBUCKET", "SLIDING"];

const CALLS_PER_S: [Row; 7] = [
    ("allowed", "`SET PX`", &["RL.{}, against SET PX"]),
    ("allowed, AOF everysec", "`SET PX`", &["RL.{}, against SET PX, AOF everysec"]),
    ("denied", "no-op", &["{} denied, against no-op"]),
    ("peeked", "no-op", &["{} peeked, against no-op"]),
    (
        "allowed, without FIXED",
        "its script",
        &[
            "RL.GCRA, against its Lua (EVALSHA)",
            "RL.TOKENBUCKET, against its Lua (EVALSHA)",
            "RL.SLIDING, against its Lua (EVALSHA)",
        ],
    ),
    ("FIXED", "its script", &["RL.FIXED, against its Lua (EVALSHA)"]),
    (
        "SLIDINGLOG, limit 1,000",
        "a script with a sorted set",
        &["RL.SLIDINGLOG, limit 1,000, against ZSET Lua"],
    ),
];

const CPU: [Row; 13] = [
    ("allowed", "`SET PX`", &["RL.{}, CPU against SET PX"]),
    ("allowed, AOF everysec", "`SET PX`", &["RL.{}, CPU against SET PX, AOF everysec"]),
    ("denied", "no-op", &["{} denied, CPU against no-op"]),
    ("peeked", "no-op", &["{} peeked, CPU against no-op"]),
    ("charged", "allowed", &["{} charged, CPU against RL.{}"]),
    ("refunded", "allowed", &["{} refunded, CPU against RL.{}"]),
    ("`RL.ALL` of 1 rule", "a single call", &["RL.ALL, 1 rule, CPU a rule, against single calls"]),
    (
        "`RL.ALL` of 3 rules, per rule",
        "the mean single call",
        &["RL.ALL, 3 rules, CPU a rule, against single calls"],
    ),
    (
        "`RL.QUOTA` day, and month in Berlin",
        "`RL.FIXED`",
        &[
            "RL.QUOTA day, CPU against RL.FIXED",
            "RL.QUOTA month ZONE Europe/Berlin, CPU against RL.FIXED",
        ],
    ),
    (
        "`RL.USE` among 10 policies",
        "its rule",
        &[
            "{} by RL.USE {}, among 10, CPU against RL.{}",
            "{} by RL.USE {}-shadow, among 10, CPU against RL.{}",
        ],
    ),
    (
        "`RL.USE` among 10,000",
        "its rule",
        &[
            "{} by RL.USE {}, among 10000, CPU against RL.{}",
            "{} by RL.USE {}-shadow, among 10000, CPU against RL.{}",
        ],
    ),
    (
        "lease and release, 100,000 holders",
        "10 holders",
        &["RL.LEASE and RL.RELEASE, 100000 holders, CPU against 10 holders"],
    ),
    (
        "reserve and commit, 10 open",
        "`RL.FIXED`",
        &["RL.RESERVE and RL.COMMIT at 10 open, CPU against RL.FIXED"],
    ),
];

const SCRIPTS: [Row; 4] = [
    ("allowed", "", &["RL.{}, CPU against its Lua (EVALSHA)"]),
    ("`RL.ALL` of 3 rules", "", &["One Lua of 3 rules (EVALSHA), CPU against RL.ALL"]),
    (
        "lease and release, 10 holders",
        "",
        &["RL.LEASE and RL.RELEASE, 10 holders, CPU of their Lua (EVALSHA)"],
    ),
    (
        "lease and release, 1,000 holders",
        "",
        &["RL.LEASE and RL.RELEASE, 1000 holders, CPU of their Lua (EVALSHA)"],
    ),
];

const MEMORY: [Row; 3] = [
    ("a new key", "`SET PX`", &["RL.{}, bytes of a new key, against SET PX"]),
    ("a key called twice", "`SET PX`", &["RL.{}, bytes of a twice called key, against SET PX"]),
    (
        "SLIDINGLOG, 1,000 events",
        "a sorted set",
        &["RL.SLIDINGLOG, bytes of 1,000 events, against ZSET"],
    ),
];

/// A file of tab-separated values: each value by its table, row and column.
struct Data(BTreeMap<[String; 3], String>);

impl Data {
    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("table\trow\tcolumn\tvalue"));
        let value = |line: &str| {
            let mut fields = line.split('\t').map(str::to_owned);
            let key = [(); 3].map(|()| fields.next().expect("a field"));
            (key, fields.next().expect("a value"))
        };
        Self(lines.map(value).collect())
    }

    fn get(&self, table: &str, row: &str, column: &str) -> &str {
        let key = [table, row, column].map(str::to_owned);
        self.0.get(&key).unwrap_or_else(|| panic!("no figure {table}, {row}, {column}"))
    }

    fn number(&self, table: &str, row: &str, column: &str) -> f64 {
        self.get(table, row, column).parse().expect("a number")
    }
}

/// Returns the names of a row's figures.
fn names(row: Row) -> Vec<String> {
    let of = |pattern: &&str| match pattern.contains("{}") {
        true => LIMITERS.map(|limiter| pattern.replace("{}", limiter)).to_vec(),
        false => vec![(*pattern).to_owned()],
    };
    row.2.iter().flat_map(of).collect()
}

/// Returns the smallest and the largest figure of a row on a server, in bold if one misses its
/// target. `is_inverse` shows the reciprocals.
fn cell(bars: &Data, row: Row, server: &str, is_inverse: bool) -> String {
    let figures = names(row);
    let value = |name: &String| {
        let value = bars.number("bars", name, server);
        if is_inverse { 1.0 / value } else { value }
    };
    let (least, most) = figures
        .iter()
        .map(value)
        .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    let (least, most) = (format!("{least:.2}"), format!("{most:.2}"));
    let range = if least == most { least } else { format!("{least}-{most}") };
    let verdict = format!("{server}: verdict");
    let is_missed = figures.iter().any(|name| bars.get("bars", name, &verdict) == "MISSED");
    if is_missed { format!("**{range}**") } else { range }
}

/// Returns the target of a row: one for all servers, or one for each.
fn target(bars: &Data, row: Row) -> String {
    let name = &names(row)[0];
    let bar = |(server, _): (&str, &str)| {
        let bar = bars.get("bars", name, &format!("{server}: bar"));
        bar.replace("-", "").replace(">=", "≥").replace("<=", "≤")
    };
    let bars = SERVERS.map(bar);
    if bars.iter().all(|bar| *bar == bars[0]) { bars[0].clone() } else { bars.join("; ") }
}

/// Returns a table: texts in the first `texts` columns, figures in the others.
fn table(texts: usize, heading: &[&str], rows: &[Vec<String>]) -> String {
    let rule = (0..heading.len()).map(|at| if at < texts { "---|" } else { "--:|" });
    let mut table = format!("| {} |\n|{}\n", heading.join(" | "), rule.collect::<String>());
    for row in rows {
        table += &format!("| {} |\n", row.join(" | ")).replace("|  |", "| |");
    }
    table
}

fn bars_table(bars: &Data, first: &str, rows: &[Row]) -> String {
    let row = |row: &Row| {
        let is_script = row.1.is_empty() && row.2[0].contains("{}");
        let cells = SERVERS.map(|(server, _)| cell(bars, *row, server, is_script));
        let texts = [row.0, row.1].into_iter().filter(|text| !text.is_empty());
        let texts = texts.map(str::to_owned);
        texts.chain(cells).chain([target(bars, *row)]).collect()
    };
    let has_reference = !rows[0].1.is_empty();
    let compared = if has_reference { &["compared with"][..] } else { &[] };
    let servers = SERVERS.map(|(_, name)| name);
    let heading = [&[first], compared, &servers, &["target"]].concat();
    table(1 + compared.len(), &heading, &rows.iter().map(row).collect::<Vec<_>>())
}

/// Returns the generated part of the page.
fn figures(bars: &Data) -> String {
    let of = |row: &str| bars.get("environment", row, "which");
    let servers = SERVERS.map(|(server, _)| {
        let version = of(server).rsplit_once("v=").expect("a version").1;
        let brand = if server.starts_with("redis") { "Redis" } else { "Valkey" };
        format!("{brand} {version}")
    });
    format!(
        "Measured with {module} on {date}, {rounds} rounds, on {servers}.\n\
         The load average of the machine was {before} before.\n\n\
         **Calls per second.** Higher is better.\n\n{calls}\n\
         **CPU time of the server per call.** Lower is better. It varies less than calls per \
         second.\n\n{cpu}\n\
         **CPU time of a script, divided by the module's.** Higher is better.\n\n{scripts}\n\
         **Memory.** Lower is better.\n\n{bytes}",
        module = of("module"),
        date = of("date"),
        rounds = of("rounds"),
        servers = servers.join(", "),
        before = of("load average before"),
        calls = bars_table(bars, "call", &CALLS_PER_S),
        cpu = bars_table(bars, "call", &CPU),
        scripts = bars_table(bars, "call", &SCRIPTS),
        bytes = bars_table(bars, "bytes of", &MEMORY),
    )
}

/// Returns a table of the module and its script with one call in flight: the script's CPU time
/// and the module's calls per second, each divided by the other's.
fn one_in_flight(servers: [&Data; 2]) -> String {
    let rows = [
        ("unix socket", "Pipeline 1, 10,000 keys", "GCRA"),
        ("unix socket", "Pipeline 1, 10,000 keys", "FIXED"),
        ("unix socket", "Pipeline 1, 10,000 keys", "TOKENBUCKET"),
        ("unix socket", "Pipeline 1, 10,000 keys", "SLIDING"),
        ("TCP", "Pipeline 1 over TCP, 10,000 keys", "GCRA"),
    ];
    let rows = rows.map(|(socket, case, limiter)| {
        let [own, script] = [format!("RL.{limiter}"), format!("{limiter} EVALSHA")];
        let ratios = servers.map(|data| {
            let of = |name: &str, column| data.number(case, name, column);
            let calls = of(&own, "calls/s") / of(&script, "calls/s");
            [calls, of(&script, "CPU us") / of(&own, "CPU us")].map(|ratio| format!("{ratio:.1}"))
        });
        [vec![format!("{socket}, {limiter}")], ratios.concat()].concat()
    });
    let calls_and_cpu = ["Redis 7.0, calls/s", "CPU time", "Valkey 9.1, calls/s", "CPU time"];
    table(1, &[&["one call in flight"][..], &calls_and_cpu].concat(), &rows)
}

fn read(path: &str) -> String {
    fs::read_to_string(super::root().join(path)).expect(path)
}

/// Replaces the part of a page between the comments `<!-- NAME ... -->` and `<!-- end -->`.
fn with_part(page: &str, name: &str, text: &str) -> String {
    let opening = format!("<!-- {name}, written by `make figures` -->\n");
    let (before, rest) = page.split_once(&opening).expect(name);
    let (_, after) = rest.split_once("<!-- end -->\n").expect("the end of a part");
    [before, &opening, text, "<!-- end -->\n", after].concat()
}

#[test]
fn figures_of_the_performance_page_are_those_of_the_data() {
    let data = |name: &str| Data::parse(&read(&format!("docs/bench/{name}.tsv")));
    let page = read(PAGE);
    let in_flight = one_in_flight([&data("redis-7.0"), &data("valkey-9.1")]);
    let generated = with_part(&page, "one call in flight", &in_flight);
    let generated = with_part(&generated, "figures", &figures(&data("bars")));
    if env::var("UPDATE").is_ok_and(|update| update == "1") {
        fs::write(super::root().join(PAGE), generated).expect("the page");
        return;
    }
    assert!(page == generated, "{PAGE} is out of date: `make figures`");
}

#[test]
fn range_covers_all_limiters_and_is_bold_if_one_misses_its_target() {
    let mut text = "table\trow\tcolumn\tvalue\n".to_owned();
    for (limiter, value, verdict) in [
        ("GCRA", "0.80", "met"),
        ("FIXED", "0.60", "MISSED"),
        ("TOKENBUCKET", "0.7", "met"),
        ("SLIDING", "0.8", "met"),
    ] {
        for (column, value) in [
            ("s", value),
            ("s: bar", ">= 0.75"),
            ("s: verdict", verdict),
            ("t", value),
            ("t: verdict", "met"),
        ] {
            text += &format!("bars\tRL.{limiter}, against SET PX\t{column}\t{value}\n");
        }
    }
    let data = Data::parse(&text);
    assert_eq!(cell(&data, CALLS_PER_S[0], "s", false), "**0.60-0.80**");
    assert_eq!(cell(&data, CALLS_PER_S[0], "t", false), "0.60-0.80");
    assert_eq!(cell(&data, CALLS_PER_S[0], "t", true), "1.25-1.67");
}
