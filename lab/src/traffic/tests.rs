use super::{CALLS_MAX, Call, KEYS_MAX, Shape, TooManyCalls, Traffic};

fn traffic(shape: Shape, keys: u8) -> Traffic {
    Traffic { shape, duration_ms: 12_000, seed: 1, keys }
}

/// Returns pairs of instant in ms and key. All instants must be whole milliseconds.
fn table(traffic: &Traffic) -> Vec<(u64, u8)> {
    let calls = traffic.calls().expect("few calls");
    assert!(calls.iter().all(|call| call.at_us % 1_000 == 0), "{calls:?}");
    calls.iter().map(|call| (call.at_us / 1_000, call.key)).collect()
}

fn all_shapes(rate: f64) -> [Shape; 7] {
    let drawn = Shape::Drawn(vec![(0.0, 0.0), (0.5, rate * 2.0), (1.0, 0.0)]);
    let others =
        [Shape::Steady, Shape::Bursty, Shape::Greedy, Shape::Herd, Shape::Day, Shape::Abuser];
    let [a, b, c, d, e, f] = others.map(|shape| shape(rate));
    [drawn, a, b, c, d, e, f]
}

#[test]
fn steady_calls_come_in_even_gaps_and_keys_take_turns() {
    let calls = table(&traffic(Shape::Steady(0.5), 4));
    assert_eq!(calls, [(0, 0), (2_000, 1), (4_000, 2), (6_000, 3), (8_000, 0), (10_000, 1)]);
}

#[test]
fn greedy_clients_call_in_even_gaps_each_at_the_rate() {
    let calls = traffic(Shape::Greedy(0.25), 3).calls().expect("few calls");
    for key in 0..3 {
        let instants: Vec<_> =
            calls.iter().filter(|call| call.key == key).map(|call| call.at_us).collect();
        assert_eq!(instants.len(), 3);
        assert!(instants[0] < 4_000_000 && (key > 0 || instants[0] == 0));
        assert!(instants.windows(2).all(|pair| pair[1] - pair[0] == 4_000_000));
    }
}

#[test]
fn herd_calls_at_the_same_instants_from_0_on() {
    let calls = table(&traffic(Shape::Herd(2.0), 3));
    let expected: Vec<_> = (0..24_u64)
        .map(|call| (call / 2 * 1_000, u8::try_from(call % 3).expect("a key")))
        .collect();
    assert_eq!(calls, expected);
}

#[test]
fn bursty_calls_come_in_the_first_tenth_of_each_twelfth() {
    let calls = traffic(Shape::Bursty(10.0), 2).calls().expect("few calls");
    assert_eq!(calls.len(), 120);
    assert!(calls.iter().all(|call| call.at_us % 1_000_000 <= 100_000), "{calls:?}");
    for burst in 0..12 {
        let of_burst = calls.iter().filter(|call| call.at_us / 1_000_000 == burst);
        assert_eq!(of_burst.count(), 10);
    }
}

#[test]
fn day_has_few_calls_at_night_and_most_around_noon() {
    let calls = traffic(Shape::Day(100.0), 1).calls().expect("few calls");
    let in_hours = |hours: std::ops::Range<u64>| {
        calls.iter().filter(|call| hours.contains(&(call.at_us / 500_000))).count()
    };
    let (night, noon, evening) = (in_hours(2..5), in_hours(10..13), in_hours(19..22));
    assert!(night > 0 && noon > 10 * night && evening > 10 * night, "{night} {noon} {evening}");
}

#[test]
fn abuser_makes_four_of_five_calls() {
    let calls = traffic(Shape::Abuser(500.0), 5).calls().expect("few calls");
    let of_key = |key| calls.iter().filter(|call| call.key == key).count();
    assert!((4_600..5_000).contains(&of_key(0)), "{}", of_key(0));
    for key in 1..5 {
        assert!((200..400).contains(&of_key(key)), "{}", of_key(key));
    }
    let alone = traffic(Shape::Abuser(10.0), 1).calls().expect("few calls");
    assert!(alone.iter().all(|call| call.key == 0));
}

#[test]
fn calls_of_every_shape_have_the_mean_rate_and_stay_within_bounds() {
    for keys in [1, 2, KEYS_MAX] {
        for shape in all_shapes(50.0) {
            let traffic = traffic(shape, keys);
            let calls = traffic.calls().expect("few calls");
            let factor = if matches!(traffic.shape, Shape::Greedy(_)) { keys.into() } else { 1 };
            assert_eq!(calls.len(), 600 * factor, "{traffic:?}");
            assert!(calls.is_sorted_by_key(|call| call.at_us), "{traffic:?}");
            let is_bounded = |call: &Call| call.at_us < 12_000_000 && call.key < keys;
            assert!(calls.iter().all(is_bounded), "{traffic:?}");
            let drawn = (0..keys).filter(|key| calls.iter().any(|call| call.key == *key)).count();
            assert_eq!(drawn, usize::from(keys), "{traffic:?}");
        }
    }
}

#[test]
fn calls_depend_on_the_scenario_only() {
    for shape in all_shapes(20.0) {
        let one = traffic(shape, 5);
        assert_eq!(one.calls(), one.calls());
        let other = Traffic { seed: 2, ..one.clone() };
        let is_fixed = matches!(one.shape, Shape::Steady(_) | Shape::Herd(_));
        assert_eq!(one.calls() == other.calls(), is_fixed, "{one:?}");
    }
}

#[test]
fn drawn_calls_stay_as_they_were() {
    // A change of these numbers changes what every shared link shows.
    let points = vec![(0.0, 0.0), (0.5, 1.0), (1.0, 0.0)];
    let calls = traffic(Shape::Drawn(points), 3).calls().expect("few calls");
    let calls: Vec<_> = calls.iter().map(|call| (call.at_us, call.key)).collect();
    let expected = [
        (2_607_439, 2),
        (4_577_049, 1),
        (5_970_932, 0),
        (6_462_158, 2),
        (7_679_256, 1),
        (10_313_207, 1),
    ];
    assert_eq!(calls, expected);
}

#[test]
fn more_calls_than_the_maximum_are_refused() {
    let second = |shape| Traffic { duration_ms: 1_000, ..traffic(shape, 1) };
    let most = CALLS_MAX as f64;
    for shape in all_shapes(most) {
        assert_eq!(second(shape).calls().map(|calls| calls.len()), Ok(CALLS_MAX));
    }
    for rate in [most + 1.0, 1e300, f64::INFINITY, f64::NAN, -1.0] {
        for shape in all_shapes(rate) {
            assert_eq!(second(shape).calls(), Err(TooManyCalls), "{rate}");
        }
    }
    let greedy = Traffic { keys: 3, ..second(Shape::Greedy(most / 2.0)) };
    assert_eq!(greedy.calls(), Err(TooManyCalls));
    assert_eq!(second(Shape::Steady(0.0)).calls(), Ok(vec![]));
}
