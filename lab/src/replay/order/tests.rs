use super::super::event::Lane;
use super::*;

fn event(at_us: u64, key: u32) -> Event {
    Event { at_us, cost: 1, key, request_us: 0, lane: Lane::NONE, whole_second: false }
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
fn calls_within_the_window_are_sorted_and_older_ones_count_as_now() {
    let mut timeline = Timeline::new(10, false, false);
    let times = [100, 95, 103, 93, 92, 200, 190, 189];
    let events = (0..).zip(times).map(|(key, at_us)| event(at_us, key)).collect();
    let (passed, late) = ordered(&mut timeline, events);
    let expected = [(93, 3), (95, 1), (100, 0), (103, 2), (103, 4), (190, 6), (200, 5), (200, 7)];
    assert_eq!((passed, late), (expected.to_vec(), 2));
}

#[test]
fn calls_of_one_time_keep_their_order() {
    let events = (0..1_000).map(|key| event(7_000_000 + u64::from(key / 100), key)).collect();
    let (passed, _) = ordered(&mut Timeline::new(3, false, false), events);
    assert!(passed.iter().map(|(_, key)| *key).eq(0..1_000));
}

#[test]
fn a_window_with_too_many_calls_passes_its_older_half() {
    let mut sorting = Sorting { kept_max: 4, ..Sorting::new(1_000) };
    let mut passed = Vec::new();
    for at_us in [10, 12, 11, 13, 9, 14] {
        sorting.push(event(at_us, 0), &mut |event| passed.push(event.at_us));
    }
    assert_eq!((passed.clone(), sorting.late()), (vec![10, 11, 12, 13], 1));
    sorting.finish(&mut |event| passed.push(event.at_us));
    assert_eq!(passed, [10, 11, 12, 13, 13, 14]);
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
    for key in 0..=KEPT_MAX as u32 {
        spreading.push(whole(key), &mut |event| passed.push(event.at_us));
    }
    spreading.finish(&mut |event| passed.push(event.at_us));
    assert!(passed.is_sorted());
    assert_eq!((passed.len(), passed.last()), (KEPT_MAX + 1, Some(&8_999_999)));
}
