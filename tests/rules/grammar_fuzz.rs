//! Calls built from the `COMMAND DOCS` of the module's commands, valid and invalid.
//!
//! `FUZZ_SEED` repeats a run, and `FUZZ_CALLS` makes it longer.

use redis::Value;
use redis_throttle_engine::grammar::error::GrammarError;

use support::fuzz::{self, CROSS_BOUNDS, Call, Outcomes, check_all, format_call};
use support::{BASE_US, Client, Random, Server, integers, listing, raw_error, text};

/// The possible times between two batches, from zero to a year. The clock only moves forward.
const STEPS_US: [u64; 6] = [0, 1, 999, 1_000_000, 86_400_000_000, 31_622_400_000_000];

const CLOCK_MAX_US: i64 = 7_258_118_400_000_000;

/// An argument of a command, as documented.
struct Argument {
    name: String,
    kind: String,
    token: Option<String>,
    optional: bool,
    multiple: bool,
    nested: Vec<Argument>,
}

fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(pairs) = map else { panic!("no map: {map:?}") };
    pairs.iter().find(|(key, _)| text(key) == name).map(|(_, value)| value)
}

fn arguments(list: &Value) -> Vec<Argument> {
    let Value::Array(list) = list else { panic!("no list: {list:?}") };
    let arguments = list.iter().map(|argument| {
        let value = |name| field(argument, name).map(text);
        let has = |name| match field(argument, "flags") {
            Some(Value::Array(flags) | Value::Set(flags)) => {
                flags.iter().any(|flag| text(flag) == name)
            }
            _ => false,
        };
        Argument {
            name: value("name").expect("a name"),
            kind: value("type").expect("a type"),
            token: value("token"),
            optional: has("optional"),
            multiple: has("multiple"),
            nested: field(argument, "arguments").map(arguments).unwrap_or_default(),
        }
    });
    arguments.collect()
}

/// Returns every command of the module with its documented arguments.
fn documented(server: &Server) -> Vec<(String, Vec<Argument>)> {
    let mut client = server.client3();
    let Value::Array(names) = client.run("COMMAND LIST FILTERBY MODULE rl") else {
        panic!("no commands")
    };
    let mut names = names.iter().map(text).collect::<Vec<_>>();
    // The commands for operators have their own tests.
    names.retain(|name| {
        !name.starts_with("rl.policy") && !["rl.metrics", "rl.top"].contains(&&**name)
    });
    names.sort();
    let commands = names.into_iter().map(|name| {
        let reply = client.run(&format!("COMMAND DOCS {name}"));
        let Value::Map(docs) = &reply else { panic!("{name}: {reply:?}") };
        let list = field(&docs[0].1, "arguments").expect("arguments");
        (name, arguments(list))
    });
    commands.collect()
}

/// Returns valid values of the argument with this name: its bounds, and some between them.
fn right_values(name: &str) -> &'static [&'static str] {
    match name {
        "key" => &["a", "b", "c", "d", "e", "f", "g", "h"],
        "limit" | "burst" | "capacity" => {
            &["1", "2", "3", "7", "007", "7", "16", "17", "1024", "1025", "1000000000000"]
        }
        "rate" => &["1", "2", "7", "9", "1000", "999999", "1000000000", "1000000000000"],
        "cost" => &["0", "00", "1", "1", "1", "2", "3", "7", "16", "1024", "1000000000000"],
        "window" | "period" => &[
            "1ms",
            "0.001",
            "1.001ms",
            "0.5",
            "1",
            "10s",
            "60",
            "1m",
            "1h",
            "1d",
            "366d",
            "31622400",
            "000060.000000",
            "8784h",
        ],
        "id" => &[
            "job-1",
            "COST",
            "\0",
            "7",
            "0123456789012345678901234567890123456789012345678901234567890123",
        ],
        "ttl" => &["1ms", "0.5", "60", "1h", "366d"],
        "attempts" => &["1", "2", "7", "007", "1000", "1000000"],
        "base" => &["1ms", "0.5", "1s"],
        "max" => &["1s", "8s", "1m"],
        "forget" => &["61", "1h", "366d"],
        "slots" => &["16", "17", "0064", "1024", "65536"],
        "leave" => &["0", "1", "007", "16", "1000000000000", "0%", "20%", "020%", "100%"],
        "zone" => &["UTC", "utc", "Europe/Berlin", "AMERICA/ST_JOHNS", "Asia/Kathmandu", "EST5EDT"],
        "start" => &["mon", "Sun", "wed", "1", "12", "07", "31"],
        "policy" => &["p", "p", "queue", "shut", "slow", "none", "COST"],
        "variant" => &["gold", "plan:silver", "FOR"],
        "rule" => &[
            "USE p",
            "use p cost 2 for gold for plan:silver",
            "USE none DEFAULT FIXED 7 60 ALIGNED",
            "QUOTA 7 day",
            "quota 3 week START sun ZONE Europe/Berlin",
            "QUOTA 17 MONTH COST 2 START 31",
            "BACKOFF 3 1s 8s 1h",
            "LEASE job-1 3 60s",
            "LEASE job-2 3 60s leave 20%",
            "RESERVE job-1 60s FIXED 16 60 COST 2",
            "reserve job-2 1h QUOTA 17 month ZONE UTC LEAVE 20%",
            "RESERVE job-1 60s USE shut FOR gold",
            "RESERVE job-3 60s USE none COST 2 DEFAULT FIXED 7 60 ALIGNED",
            "GCRA 7 9 60",
            "GCRA 7 9 60 LEAVE 2 COST 0",
            "fixed 16 1m ALIGNED COST 2",
            " SLIDING  7 10s ",
            "SLIDINGLOG 17 1h cost 0",
            "SLIDINGLOG 17 1h SLOTS 16",
            "TokenBucket 1 1 1",
            "LEAKYBUCKET 7 2 0.5",
            "GCRA 1000000000000 1000000000 1",
        ],
        "unix-us" => &["0", "1", "1800000000000000", "7258118399999999", "7258118400000000"],
        "duration" => &["1ms", "-1ms", "0.5", "-0.5", "1h", "-366d", "366d"],
        other => panic!("an argument that this test does not know: {other}"),
    }
}

/// Invalid values: just outside each bound, and texts that only look like numbers.
#[rustfmt::skip]
const WRONG_VALUES: [&str; 48] = [
    "0", "-1", "+1", "", " ", " 1", "1 ", "1.0", "1e3", "0x10", "1000000000001", "2147483648",
    "4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808",
    "18446744073709551615", "18446744073709551616", "-9223372036854775808", "0ms", "0.999ms",
    "0.000999", "0.0009999", "366.000001d", "367d", "31622401", "31622400.000001", "1.0000001",
    "1.", ".5", "1..5", "1MS", "1H", "1w", "1us", "1 s", "s", "1sm", "0.0000001d", "nan", "inf",
    "7258118400000001", "-367d", "--1s", "COST", "ALIGNED", "1\0", "9999999999999999999999d",
];

fn any_case(random: &mut Random, word: &str) -> Vec<u8> {
    let flip = random.below(3);
    let bytes = word.bytes().map(|byte| match flip {
        0 => byte,
        1 => byte.to_ascii_lowercase(),
        _ if random.below(2) == 0 => byte.to_ascii_lowercase(),
        _ => byte.to_ascii_uppercase(),
    });
    bytes.collect()
}

/// Appends valid words for one documented argument.
fn right_words(random: &mut Random, argument: &Argument, words: &mut Call) {
    if let Some(token) = &argument.token {
        words.push(any_case(random, token));
    }
    match argument.kind.as_str() {
        "pure-token" => {}
        "oneof" => {
            let chosen = random.pick(&argument.nested);
            right_words(random, chosen, words);
        }
        "block" => {
            sentence_part(random, &argument.nested, words);
            while argument.multiple && random.below(2) == 0 {
                sentence_part(random, &argument.nested, words);
            }
        }
        _ => words.push(random.pick(right_values(&argument.name)).as_bytes().to_vec()),
    }
}

/// Appends the required arguments in their order, then some of the options in random order.
fn sentence_part(random: &mut Random, arguments: &[Argument], words: &mut Call) {
    let mut options = Vec::new();
    for argument in arguments {
        if !argument.optional {
            right_words(random, argument, words);
        } else if random.below(2) == 0 {
            let mut option = Vec::new();
            right_words(random, argument, &mut option);
            let place = match argument.name.as_str() {
                // DEFAULT comes last, because every word after it belongs to the default rule.
                "default-rule" => options.len(),
                _ => random.below(options.len() as u64 + 1) as usize,
            };
            options.insert(place, option);
        }
    }
    words.extend(options.into_iter().flatten());
}

/// Spoils a call in one way. The call may still be valid by chance.
fn spoil(random: &mut Random, words: &mut Call) {
    let place = 1 + random.below(words.len() as u64 - 1) as usize;
    let wrong = random.pick(&WRONG_VALUES).as_bytes().to_vec();
    match random.below(8) {
        0 | 1 => words[place] = wrong,
        2 => words.insert(place, wrong),
        3 => words.push(wrong),
        4 if words.len() > 2 => drop(words.remove(place)),
        5 => words.insert(place, words[place].clone()),
        6 => {
            // Repeats an option or a value at the end.
            words.extend_from_within(place..);
        }
        _ => {
            let other = 1 + random.below(words.len() as u64 - 1) as usize;
            words.swap(place, other);
        }
    }
}

/// Returns a call, and whether it is valid.
fn sentence(random: &mut Random, commands: &[(String, Vec<Argument>)]) -> (Call, bool) {
    let (name, arguments) = random.pick(commands);
    let mut words = vec![any_case(random, name)];
    sentence_part(random, arguments, &mut words);
    // Mostly a key that only this algorithm uses: calls on another algorithm's key get only
    // WRONGTYPE.
    if arguments[0].kind == "key" && random.below(12) > 0 {
        let of_name = name.strip_prefix("rl.").unwrap_or_default().to_uppercase();
        let algorithm = match words.get(2) {
            Some(word) if of_name == "PEEK" => word.to_ascii_uppercase(),
            _ if of_name == "RENEW" || of_name == "RELEASE" => b"LEASE".to_vec(),
            _ => of_name.into_bytes(),
        };
        words[1].extend(algorithm);
    }
    // Half of the calls remain valid.
    let spoils = random.below(6).saturating_sub(2);
    (0..spoils).for_each(|_| spoil(random, &mut words));
    (words, spoils == 0)
}

/// Returns the call that a fuzzer makes after each of its own calls, to undo a change of the clock.
fn freeze_at(unix_us: i64) -> Call {
    ["RL.DEBUG", "CLOCK", "FREEZE", &unix_us.to_string()].map(|word| word.into()).to_vec()
}

/// Asserts that a valid call gets no error, except for values that are invalid
/// together, a key of another algorithm, or a clock that would leave its range.
fn assert_understood(client: &mut Client, call: &Call) {
    let reply = client.call(call);
    if let Some(error) = raw_error(&reply) {
        let excused = CROSS_BOUNDS.contains(&error.as_str())
            || error.starts_with("WRONGTYPE")
            || error.contains("repeated key")
            || error.starts_with("ERR invalid cost: with PARTIAL")
            || error.starts_with("ERR invalid cost: the total of used")
            || error.starts_with("ERR invalid cost: the time until")
            || error.starts_with("ERR invalid option: BACKOFF")
            || error == listing(GrammarError::CostOfBackoff)
            || error == listing(GrammarError::CostOfPolicy)
            || error.starts_with("NOPOLICY")
            // Each calendar unit accepts only some starts.
            || error.starts_with("ERR invalid start: ")
            || error.starts_with("ERR invalid option: expected LEAVE n, a holder")
            || error == "ERR invalid limit: expected an integer from 1 to 1000000"
            || error.contains("invalid id: already committed")
            || error == listing(GrammarError::PolicyNotReservable)
            // RL.PEEK takes PARTIAL, but not for a reservation.
            || error == listing(GrammarError::PartialNotHere)
            || error.contains("too many rules")
            // Only the clock takes a negative duration.
            || error.starts_with("ERR invalid duration: expected")
                && call.last().is_some_and(|word| word.starts_with(b"-"))
            || error == "ERR invalid duration: the clock must stay between the years 1970 and 2200";
        assert!(excused, "{}: {error}", format_call(call));
    }
}

#[test]
fn calls_built_from_the_documented_grammar_are_accepted_and_errors_are_documented_ones() {
    let seed = fuzz::seed("grammar", 20);
    let server = Server::start();
    let mut client = server.client();
    let commands = documented(&server);
    fuzz::set_policies(&mut client);
    assert!(commands.len() >= 9, "the documentation names them all");
    let mut random = Random::new(seed);
    let mut outcomes = Outcomes::default();
    let mut right = 0;
    while outcomes.calls < fuzz::calls(30_000) {
        // The next batch: an empty database, and a random instant.
        client.ok("FLUSHALL");
        let mut now_us = *random.pick(&[0, 1, BASE_US, BASE_US, CLOCK_MAX_US - 1, CLOCK_MAX_US]);
        for _ in 0..10 {
            client.freeze(now_us);
            let sentences = (0..200).map(|_| sentence(&mut random, &commands)).collect::<Vec<_>>();
            let calls = sentences.iter().map(|(call, _)| call.clone()).collect::<Vec<_>>();
            check_all(&mut client, &calls, &freeze_at(now_us), &mut outcomes);
            for (call, _) in sentences.iter().filter(|(_, right)| *right) {
                assert_understood(&mut client, call);
                client.freeze(now_us);
                right += 1;
            }
            now_us = CLOCK_MAX_US.min(now_us + *random.pick(&STEPS_US) as i64);
        }
    }
    eprintln!("grammar: {outcomes:?}, {right} of them flawless");
    // A mix of valid and invalid calls, with enough denials.
    let tenth = outcomes.calls / 10;
    let Outcomes { allowed, denied, errors, .. } = outcomes;
    assert!(allowed > tenth && denied > tenth / 4 && errors > tenth, "{outcomes:?}");
    assert!(right > tenth, "{right} of {outcomes:?}");
    server.assert_alive();
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
}

#[test]
fn every_documented_argument_is_required_and_no_token_stands_for_another() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(1);
    let mut tried = 0;
    for (name, arguments) in documented(&server) {
        for _ in 0..40 {
            let mut words = vec![name.clone().into_bytes()];
            let needed = arguments.iter().filter(|argument| !argument.optional);
            needed.for_each(|argument| right_words(&mut random, argument, &mut words));
            client.run("FLUSHALL");
            assert_understood(&mut client, &words);
            // Removes each word in turn. The call is then invalid, unless the word is optional.
            for place in 1..words.len() {
                let mut fewer = words.clone();
                fewer.remove(place);
                let reply = client.call(&fewer);
                // ALIGNED, and the time after FREEZE, are optional within their alternative.
                let is_time =
                    name == "rl.debug" && words[2].eq_ignore_ascii_case(b"FREEZE") && place == 3;
                let spare = is_time || words[place].eq_ignore_ascii_case(b"ALIGNED");
                assert_eq!(
                    raw_error(&reply).is_none(),
                    spare,
                    "{}: {reply:?}",
                    format_call(&fewer)
                );
                tried += 1;
            }
        }
    }
    assert!(tried > 1_000, "{tried}");
    assert_eq!(integers(&client.run("RL.GCRA k 1 1 1")), Some([1, 1, 0, 0, 1_000]));
}

#[test]
fn coarse_log_read_by_a_finer_rule_does_not_look_like_a_clock_that_stepped_back() {
    // Found by the fuzzer. The first call's instant was rounded up by hours. The second call kept
    // the instant but stored a finer resolution. The third call was denied, and yet repaired the
    // log.
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    assert!(client.allows("RL.SLIDINGLOG k 2000 366d"));
    assert!(client.allows("RL.SLIDINGLOG k 2 1m"));
    let before = client.snapshot("k");
    assert_eq!(client.decide("RL.SLIDINGLOG k 2 1m")[..3], [0, 2, 0]);
    assert_eq!(client.snapshot("k"), before, "a denied call changes nothing");
}
