use super::super::event::Applied;
use super::*;

fn event(at_us: u64, key: u32) -> Event {
    Event { at_us, cost: 1, key, request_us: 0, applied: Applied::NONE, whole_second: false }
}

/// Returns the times and keys in the order in which they pass, and the number of late calls.
fn ordered(timeline: &mut Timeline, events: Vec<Event>) -> (Vec<(u64, u32)>, u64) {
    let mut passed = Vec::new();
    let mut take = |event: Event| passed.push((event.at_us, event.key));
    events.into_iter().for_each(|event| timeline.push(event, &mut take));
    timeline.finish(&mut take);
    assert!(passed.is_sorted_by_key(|(at_us, _)| *at_us), "{passed:?}");
    (passed, timeline.late())
}

#[test]
fn few_calls_are_sorted_whatever_their_times() {
    let mut timeline = Timeline::new(10, false, false);
    let times = [100, 95, 103, 93, 92, 200, 190, 1];
    let events = (0..).zip(times).map(|(key, at_us)| event(at_us, key)).collect();
    let (passed, late) = ordered(&mut timeline, events);
    let keys: Vec<_> = passed.iter().map(|(_, key)| *key).collect();
    assert_eq!((keys, late), (vec![7, 4, 3, 1, 0, 2, 6, 5], 0));
}

#[test]
fn calls_of_one_time_keep_their_order() {
    let events = (0..1_000).map(|key| event(7_000_000 + u64::from(key / 100), key)).collect();
    let (passed, _) = ordered(&mut Timeline::new(3, false, false), events);
    assert!(passed.iter().map(|(_, key)| *key).eq(0..1_000));
}

/// Returns the times that pass before the end, all times, and the number of late calls.
fn sorted(mut sorting: Sorting, times: &[u64]) -> (Vec<u64>, Vec<u64>, u64) {
    let (mut early, mut all) = (Vec::new(), Vec::new());
    for at_us in times {
        sorting.push(event(*at_us, 0), &mut |event| early.push(event.at_us));
    }
    all.extend_from_slice(&early);
    sorting.finish(&mut |event| all.push(event.at_us));
    assert!(all.is_sorted(), "{all:?}");
    (early, all, sorting.late())
}

#[test]
fn the_newest_calls_and_those_of_the_window_are_kept_and_an_older_one_is_late() {
    // The two newest calls stay.
    let (early, all, late) = sorted(Sorting::with_room(0, 2, 99, 1), &[10, 12, 11, 13, 10, 12]);
    assert_eq!((early, all, late), (vec![10, 11, 11, 12], vec![10, 11, 11, 12, 12, 13], 1));
    // All stay, because the window holds them.
    let (early, _, late) = sorted(Sorting::with_room(5, 2, 99, 1), &[10, 12, 11, 13, 10, 12]);
    assert_eq!((early, late), (vec![], 0));
    // The window has too many calls, so its oldest pass.
    let (early, _, late) = sorted(Sorting::with_room(1_000, 2, 4, 1), &[10, 12, 11, 13, 9, 14]);
    assert_eq!((early, late), (vec![9, 10], 0));
}

#[test]
fn calls_are_sorted_in_among_those_that_are_kept() {
    let mut random = 1_u64;
    let times: Vec<u64> = (0..500)
        .map(|at| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            100 + at - (random >> 60)
        })
        .collect();
    for new_len in [1, 7, 64, 1_000] {
        let (_, all, late) = sorted(Sorting::with_room(0, 40, 99, new_len), &times);
        let mut expected = times.clone();
        expected.sort_unstable();
        assert_eq!((all, late), (expected, 0), "{new_len}");
    }
}

#[test]
fn the_window_grows_with_the_longest_request() {
    let mut timeline = Timeline::new(0, false, true);
    (timeline.by_line, timeline.by_start) = (Sorting::with_room(0, 4, 99, 2), None);
    let long = |at_us, key, request_us| Event { request_us, ..event(at_us, key) };
    let events = (0..20).map(|at| long(100 + at, at as u32, 50 * (at % 2))).collect();
    let (passed, late) = ordered(&mut timeline, events);
    assert_eq!((passed.len(), late), (20, 0));
    assert_eq!(passed[0], (51, 1));
}

#[test]
fn lines_of_one_second_are_spread_evenly_over_it() {
    let whole = |second: u64, key| Event { whole_second: true, ..event(second * SECOND_US, key) };
    let events = vec![
        whole(8, 0),
        whole(8, 1),
        whole(7, 2),
        event(8_600_000, 3),
        whole(8, 4),
        whole(8, 5),
        whole(9, 6),
    ];
    let (passed, _) = ordered(&mut Timeline::new(2 * SECOND_US, true, false), events);
    let expected = [
        (7_000_000, 2),
        (8_000_000, 0),
        (8_250_000, 1),
        (8_500_000, 4),
        (8_600_000, 3),
        (8_750_000, 5),
        (9_000_000, 6),
    ];
    assert_eq!(passed, expected);
}

#[test]
fn the_time_of_a_request_is_subtracted_after_its_second_is_spread() {
    let line = |second: u64, key, request_us| Event {
        whole_second: true,
        request_us,
        ..event(second * SECOND_US, key)
    };
    let events = vec![line(8, 0, 100_000), line(8, 1, 1_500_000), line(9, 2, 0)];
    let (passed, late) = ordered(&mut Timeline::new(2 * SECOND_US, true, true), events);
    assert_eq!((passed, late), (vec![(7_000_000, 1), (7_900_000, 0), (9_000_000, 2)], 0));
    // An exact time needs no spreading.
    let exact = Event { request_us: 500_000, ..event(8_600_000, 0) };
    let (passed, _) = ordered(&mut Timeline::new(0, true, true), vec![exact]);
    assert_eq!(passed, [(8_100_000, 0)]);
}

#[test]
fn more_lines_of_one_second_than_are_kept_come_at_its_end() {
    let whole = |key| Event { whole_second: true, ..event(8_000_000, key) };
    let (mut spreading, mut passed) = (Spreading::default(), Vec::new());
    for key in 0..=KEPT_LEN as u32 {
        spreading.push(whole(key), &mut |event| passed.push(event.at_us));
    }
    spreading.finish(&mut |event| passed.push(event.at_us));
    assert!(passed.is_sorted());
    assert_eq!((passed.len(), passed.last()), (KEPT_LEN + 1, Some(&8_999_999)));
}
