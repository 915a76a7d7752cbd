//! Checks that a call allocates nothing in the engine: arguments, state, decision, new state and
//! reply are borrowed or on the stack. Only a rewritten log is built on the heap.

use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::bounds::Slots;
use redis_throttle_engine::grammar;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::redis_gcra::GcraRequest;
use redis_throttle_engine::grammar::usage::Usage;
use redis_throttle_engine::oracle::{AnySubject, Limits};
use redis_throttle_engine::policy::definition::Stance;
use redis_throttle_engine::policy::statistics::{Counted, DEFAULTS_MAX, Ending, Key};
use redis_throttle_engine::policy::table::Policies;
use redis_throttle_engine::state::{self, Change};
use redis_throttle_engine::time::Instant;
use redis_throttle_engine::top::name::Seed;
use redis_throttle_engine::top::{HalfLife, Moment, Sketch};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the allocations of the current thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const US: u64 = 1_700_000_000_000_000;

/// Makes a call on a stored state; returns the change, and the number of allocations.
fn call(algorithm: Algorithm, stored: Option<&[u8]>, args: &[&[u8]], us: u64) -> (Change, u64) {
    let before = ALLOCATIONS.get();
    let request = grammar::rule::request(algorithm, args, Slots::DEFAULT).expect("a valid call");
    let state = stored.map(|bytes| state::decode(bytes).expect("a state"));
    let outcome = request
        .rule
        .decide(state, Instant::from_us(us), request.options.cost)
        .expect("its own state");
    let change = outcome.next.kept().map(|next| state::encode(&next.state));
    let allocated = ALLOCATIONS.get() - before;
    (change.unwrap_or(Change::Rewrite(Vec::new())), allocated)
}

/// Two units per ten seconds. For a quota, two units per month in New York, in months that start on
/// the 31st.
const SMALL: Limits =
    Limits { capacity: 2, rate: 6, period_us: 10_000_000, aligned: true, slots: 1_024 };

/// Calls `check` with each algorithm whose state has a fixed size, and the arguments of a call. The
/// first call that names a zone loads the zone's data, so each call is made once before `check`.
fn for_fixed_sizes(check: impl Fn(Algorithm, &[&[u8]])) {
    for subject in AnySubject::ALL {
        let algorithm = subject.algorithm;
        if algorithm == Algorithm::SlidingLog {
            continue;
        }
        let takes_a_cost = (subject.cost)(2) == 2;
        let options = if takes_a_cost { " COST 1" } else { "" };
        let words = format!("{}{options}", (subject.words)(&SMALL));
        let args: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        call(algorithm, None, &args, US);
        check(algorithm, &args);
    }
}

/// Charges, or refunds, a stored state; returns the change, and the number of allocations.
fn settle(stored: &[u8], args: (Algorithm, &[&[u8]]), charges: bool) -> (Change, u64) {
    let before = ALLOCATIONS.get();
    let request = grammar::rule::request(args.0, args.1, Slots::DEFAULT).expect("a valid call");
    let state = Some(state::decode(stored).expect("a state"));
    let (rule, now) = (request.rule, Instant::from_us(US + 1));
    let outcome = if charges {
        rule.charge(state, now, request.options.cost).expect("a small cost")
    } else {
        rule.refund(state, now, request.options.cost).expect("its own state")
    };
    let change = state::encode(&outcome.next.kept().expect("a change").state);
    (change, ALLOCATIONS.get() - before)
}

#[test]
fn charge_and_refund_allocate_only_for_a_leaky_bucket_in_debt() {
    for_fixed_sizes(|algorithm, args| {
        let (Change::Whole(mut state), _) = call(algorithm, None, args, US) else {
            panic!("{algorithm:?} stores a whole state");
        };
        for charges in [true, false, true] {
            let (change, allocated) = settle(state.as_slice(), (algorithm, args), charges);
            let Change::Whole(next) = change else { panic!("{algorithm:?} stores a whole state") };
            assert_eq!(allocated, 0, "{algorithm:?}");
            state = next;
        }
        let (change, allocated) = settle(state.as_slice(), (algorithm, args), true);
        let is_queue = algorithm == Algorithm::LeakyBucket;
        assert_eq!(matches!(change, Change::Rewrite(_)), is_queue, "{algorithm:?} in debt");
        assert_eq!(allocated > 0, is_queue, "{algorithm:?} in debt");
    });
}

#[test]
fn a_call_of_a_fixed_size_limiter_allocates_nothing() {
    for_fixed_sizes(|algorithm, args| {
        let (first, allocated) = call(algorithm, None, args, US);
        assert_eq!(allocated, 0, "{algorithm:?}, a new subject");
        let Change::Whole(first) = first else { panic!("{algorithm:?} stores a whole state") };
        let (second, allocated) = call(algorithm, Some(first.as_slice()), args, US + 1);
        assert_eq!(allocated, 0, "{algorithm:?}, a known one");
        let Change::Whole(second) = second else { panic!("{algorithm:?} stores a whole state") };
        let (denied, allocated) = call(algorithm, Some(second.as_slice()), args, US + 2);
        assert_eq!(denied, Change::Rewrite(Vec::new()), "{algorithm:?} is used up");
        assert_eq!(allocated, 0, "{algorithm:?}, a denial");
    });
}

/// Does all that a call by a policy needs except the decision: parses the call, looks up its
/// policy, determines the effect on the key and counts the outcome. Returns the effect, or `None`
/// if the call's own rule applies. Also returns the number of allocations.
fn use_policy<'a>(
    table: &mut Policies,
    read: impl FnOnce() -> Result<Usage<'a>, GrammarError>,
) -> (Option<Stance>, u64) {
    let now = Instant::from_us(US);
    let before = ALLOCATIONS.get();
    let usage = read().expect("a valid call");
    let names = usage.variants.iter().copied().filter(Option::is_some).chain([None]);
    let mut found = names.filter_map(|variant| table.find(usage.policy, variant, now));
    let found = found.next();
    let rule = found.map(|found| found.rule).or(usage.default).expect("a rule");
    let request = usage.request(rule.with_slots(Slots::DEFAULT)).expect("a cost that fits");
    let stance =
        found.map(|found| found.enforcement.stance(usage.policy, b"user:42", found.ends_at, now));
    let key = match found {
        Some(found) => found.statistics,
        None => table.statistics.key_of_default(usage.policy.as_bytes()),
    };
    let ended = Counted {
        ending: Ending::Allowed,
        limit_units: 100,
        remaining_units: 0,
        taken_units: request.options.cost.units(),
        created: true,
    };
    table.statistics.count(key, &ended, 20, now);
    table.statistics.charge(key, 1);
    table.statistics.count_error(key);
    (stance, ALLOCATIONS.get() - before)
}

#[test]
fn call_by_a_policy_allocates_only_for_the_first_call_of_an_unknown_name() {
    call(Algorithm::CalendarQuota, None, &[b"2", b"month", b"ZONE", b"Europe/Berlin"], US);
    let mut table = Policies::default();
    let file = b"p@b SHADOW QUOTA 2 month\nq BLOCK GCRA 2 3 10\nr ENFORCE 0 GCRA 2 3 10";
    table.load(grammar::policy_file::policy_file(file).expect("right"), Instant::from_us(US));
    let calls: [(&str, Option<Stance>); 5] = [
        ("p FOR a FOR b DEFAULT QUOTA 2 month START 31 ZONE Europe/Berlin", Some(Stance::Shadow)),
        ("q", Some(Stance::Blocked(None))),
        ("r COST 5 PARTIAL FOR a", Some(Stance::Shadow)),
        ("unknown DEFAULT SLIDINGLOG 2 10", None),
        ("unknown COST 3 FOR a DEFAULT FIXED 2 10 ALIGNED", None),
    ];
    let (_, allocated) =
        use_policy(&mut table, || grammar::usage::packed_usage(b"USE unknown DEFAULT GCRA 2 3 10"));
    assert!(allocated > 0, "its name is kept");
    for (call, stance) in calls {
        let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
        let packed = format!("USE {call}");
        assert_eq!(use_policy(&mut table, || grammar::usage::usage(&words)), (stance, 0), "{call}");
        let of_packed = use_policy(&mut table, || grammar::usage::packed_usage(packed.as_bytes()));
        assert_eq!(of_packed, (stance, 0), "{packed}");
    }
    // After [`DEFAULTS_MAX`] names are known, a new name allocates nothing either.
    let names: Vec<_> = (0..DEFAULTS_MAX).map(|number| format!("caller:{number}")).collect();
    for name in &names {
        table.statistics.key_of_default(name.as_bytes());
    }
    let before = ALLOCATIONS.get();
    assert_eq!(table.statistics.key_of_default(b"one:more"), Key::OTHER);
    assert_eq!(ALLOCATIONS.get() - before, 0, "a flood of names");
}

#[test]
fn call_of_redis_cell_or_redis_gcra_allocates_nothing() {
    let before = ALLOCATIONS.get();
    let request = grammar::redis_cell::throttle(&[b"1", b"3", b"10", b"1"]).expect("a valid call");
    let mut stored = None;
    for _ in 0..2 {
        let outcome = request.rule.decide(stored, Instant::from_us(US), request.quantity);
        let state = outcome.next.expect("an allowed call").state;
        let Change::Whole(digits) = state::decimal::encode_decimal(&state) else {
            panic!("digits")
        };
        stored = Some(state::decimal::decode_decimal(digits.as_slice()).expect("a state"));
    }
    let denied = request.rule.decide(stored, Instant::from_us(US), request.quantity);
    assert_eq!(denied.next, None);
    let args: [&[u8]; 5] = [b"1", b"3", b"10.000000001", b"TOKENS", b"9223372036854775807"];
    let request = grammar::redis_gcra::gcra(&args).and_then(GcraRequest::counted).expect("valid");
    let denied = request.rule.decide(stored, Instant::from_us(US), request.quantity);
    assert_eq!(denied.next, None);
    assert!(state::decimal::decode_decimal(b"hello").is_err());
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

#[test]
fn log_allocates_only_when_it_is_rewritten() {
    let args: &[&[u8]] = &[b"2", b"10"];
    let (new, allocated) = call(Algorithm::SlidingLog, None, args, US);
    let Change::Rewrite(mut bytes) = new else { panic!("a new log is written whole") };
    assert!(allocated > 0, "the counter counts");
    let (patch, allocated) = call(Algorithm::SlidingLog, Some(&bytes), args, US + 1);
    let Change::Patch { entry, .. } = patch else { panic!("one entry more") };
    assert_eq!(allocated, 0, "an entry is no allocation");
    bytes.extend(entry);
    let (_, allocated) = call(Algorithm::SlidingLog, Some(&bytes), args, US + 2);
    assert_eq!(allocated, 0, "neither is a denial");
}

#[test]
fn foreign_value_is_rejected_without_an_allocation() {
    for foreign in [&b"hello"[..], b"12345", b"", &[0x93, 0x01, 0x02, 0x03]] {
        let before = ALLOCATIONS.get();
        assert!(state::decode(foreign).is_err());
        assert_eq!(ALLOCATIONS.get() - before, 0, "{foreign:02x?}");
    }
}

#[test]
fn flood_of_new_keys_allocates_nothing_in_a_sketch() {
    let mut sketch = Sketch::new(512, Seed::new(1));
    let long = [b'k'; 100_000];
    let before = ALLOCATIONS.get();
    for number in 0..1_000_000_u64 {
        let at =
            Moment { now: Instant::from_us(US + number * 1_000), half_life: HalfLife::DEFAULT };
        sketch.count(0, &number.to_be_bytes(), at);
        if number % 1_000 == 0 {
            sketch.count(0, &long, at);
            sketch.shares(at);
        }
    }
    sketch.reset();
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
