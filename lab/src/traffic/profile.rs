//! A rate that changes over the time line, and the instants of calls that come at this rate.
//!
//! ```text
//! rate
//!   |        ____ knots, with straight lines between them
//!   |      /     \
//!   |_____/       \______
//!   0                    1   part of the duration
//! ```
//!
//! The area below the line up to an instant is the number of calls until then. The k-th call comes
//! at the instant at which that area is k and a random part of one call. Only the four operations
//! and the square root are used, which give the same floats on every machine.

use super::random::Random;

/// A point of the line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knot {
    /// The place on the time line, from 0 to 1.
    pub at: f64,
    /// The rate at this place, at least 0. Its unit does not matter to the instants.
    pub rate: f64,
}

/// A line through knots whose places do not fall. Two knots at one place are a jump.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    knots: Vec<Knot>,
    /// The area below the line up to each knot.
    areas: Vec<f64>,
}

impl Profile {
    /// Creates the line through `knots`. Before the first and after the last one the rate is
    /// constant.
    pub fn new(knots: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let given: Vec<_> = knots.into_iter().map(|(at, rate)| Knot { at, rate }).collect();
        let first = given.first().map(|knot| Knot { at: 0.0, ..*knot });
        let last = given.last().map(|knot| Knot { at: 1.0, ..*knot });
        let knots: Vec<_> = first.into_iter().chain(given).chain(last).collect();
        let mut area = 0.0;
        let steps = knots.windows(2).map(|ends| {
            area += (ends[1].at - ends[0].at) * (ends[0].rate + ends[1].rate) / 2.0;
            area
        });
        let areas = std::iter::once(0.0).chain(steps).collect();
        Self { knots, areas }
    }

    /// Returns the mean rate: the area below the whole line.
    pub fn mean(&self) -> f64 {
        self.areas.last().copied().unwrap_or(0.0)
    }

    /// Returns `count` instants in microseconds, in order, all before `duration_us`.
    pub fn instants(&self, count: usize, duration_us: u64, random: &mut Random) -> Vec<u64> {
        let last_us = duration_us.saturating_sub(1);
        let (mut stretch, mut previous_us) = (0, 0);
        let instant = |call| {
            let area = (call as f64 + random.part()) * self.mean() / count as f64;
            while stretch + 2 < self.areas.len() && self.areas[stretch + 1] < area {
                stretch += 1;
            }
            // The conversion rounds down.
            let at_us = (self.place_of(area, stretch) * duration_us as f64) as u64;
            previous_us = at_us.clamp(previous_us, last_us);
            previous_us
        };
        (0..count).map(instant).collect()
    }

    /// Returns the place on the time line up to which the area below the line is `area`. The place
    /// is between the knots `stretch` and `stretch + 1`.
    fn place_of(&self, area: f64, stretch: usize) -> f64 {
        let [from, to] = [self.knots[stretch], self.knots[stretch + 1]];
        let missing = (area - self.areas[stretch]).max(0.0);
        let width = to.at - from.at;
        let slope = if width > 0.0 { (to.rate - from.rate) / width } else { 0.0 };
        // The positive root of `slope/2 x^2 + rate x = missing`, in the form without cancellation.
        let root = (from.rate * from.rate + 2.0 * slope * missing).max(0.0).sqrt();
        let divisor = from.rate + root;
        let into = if divisor > 0.0 { 2.0 * missing / divisor } else { 0.0 };
        from.at + into.clamp(0.0, width)
    }
}

#[cfg(test)]
mod tests {
    use super::{Profile, Random};

    /// Counts the instants in each tenth of a time line of 1,000,000 us.
    fn tenths(knots: &[(f64, f64)], count: usize) -> [usize; 10] {
        let profile = Profile::new(knots.iter().copied());
        let mut counts = [0; 10];
        for at_us in profile.instants(count, 1_000_000, &mut Random::new(1)) {
            counts[usize::try_from(at_us / 100_000).expect("a tenth")] += 1;
        }
        counts
    }

    #[test]
    fn instants_follow_the_rate() {
        type Row<'a> = (&'a [(f64, f64)], [usize; 10]);
        let table: [Row; 4] = [
            // A constant rate, also outside the knots.
            (&[(0.4, 7.0), (0.6, 7.0)], [10; 10]),
            // A rate that rises from 0: the areas are 1, 3, 5 ... of 100.
            (&[(0.0, 0.0), (1.0, 2.0)], [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]),
            (&[(0.0, 2.0), (1.0, 0.0)], [19, 17, 15, 13, 11, 9, 7, 5, 3, 1]),
            // Jumps: only the second and the last tenth have calls.
            (
                &[(0.1, 0.0), (0.1, 5.0), (0.2, 5.0), (0.2, 0.0), (0.9, 0.0), (0.9, 5.0)],
                [0, 50, 0, 0, 0, 0, 0, 0, 0, 50],
            ),
        ];
        for (knots, expected) in table {
            assert_eq!(tenths(knots, 100), expected, "{knots:?}");
        }
    }

    #[test]
    fn instants_are_in_order_and_within_the_duration() {
        let mut random = Random::new(3);
        for _ in 0..300 {
            let mut places: Vec<_> = (0..8).map(|_| random.part()).collect();
            places.sort_by(f64::total_cmp);
            let rate = |random: &mut Random| if random.below(3) == 0 { 0.0 } else { random.part() };
            let profile = Profile::new(places.iter().map(|at| (*at, rate(&mut random))));
            let instants = profile.instants(200, 5_000, &mut random);
            assert_eq!(instants.len(), 200);
            assert!(instants.is_sorted() && instants.iter().all(|at_us| *at_us < 5_000));
        }
    }

    #[test]
    fn mean_is_the_area_below_the_line() {
        for (knots, mean) in [
            (vec![(0.0, 4.0), (1.0, 4.0)], 4.0),
            (vec![(0.0, 0.0), (0.5, 4.0), (1.0, 0.0)], 2.0),
            (vec![], 0.0),
        ] {
            assert_eq!(Profile::new(knots).mean(), mean);
        }
    }
}
