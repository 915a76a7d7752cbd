//! Counts over the time of a log, whose length is not known before its end: a fixed number of
//! intervals, which double in length when the log goes on.

/// The counts of one interval: calls, denied calls, and calls that shadow mode would deny.
pub type Moment = [u64; 3];

/// The counts over time.
#[derive(Clone, Debug)]
pub struct Moments {
    start_us: u64,
    width_us: u64,
    moments: Vec<Moment>,
    /// The interval of the last call.
    last: usize,
    /// The end of that interval.
    until_us: u64,
}

/// The most intervals.
const COUNT_MAX: usize = 240;

const SECOND_US: u64 = 1_000_000;

impl Default for Moments {
    fn default() -> Self {
        let moments = Vec::with_capacity(COUNT_MAX);
        Self { start_us: 0, width_us: SECOND_US, moments, last: 0, until_us: 0 }
    }
}

impl Moments {
    /// Returns the counts at an instant, which is not before the last one.
    #[inline]
    pub fn at(&mut self, at_us: u64) -> &mut Moment {
        if at_us >= self.until_us || self.moments.is_empty() {
            self.advance(at_us);
        }
        // `advance` has added this interval.
        &mut self.moments[self.last]
    }

    #[cold]
    fn advance(&mut self, at_us: u64) {
        if self.moments.is_empty() {
            self.start_us = at_us - at_us % SECOND_US;
        }
        let since_us = at_us.saturating_sub(self.start_us);
        while since_us / self.width_us >= COUNT_MAX as u64 {
            self.width_us = self.width_us.saturating_mul(2);
            let halves = self.moments.chunks(2);
            let sum = |pair: &[Moment]| {
                pair.iter().fold(Moment::default(), |[a, b, c], [d, e, f]| [a + d, b + e, c + f])
            };
            self.moments = halves.map(sum).collect();
        }
        self.last = usize::try_from(since_us / self.width_us).unwrap_or(0);
        if self.moments.len() <= self.last {
            self.moments.resize(self.last + 1, Moment::default());
        }
        let end = (self.last as u64 + 1).saturating_mul(self.width_us);
        self.until_us = self.start_us.saturating_add(end);
    }

    /// Returns the start of the first interval, in microseconds since the Unix epoch.
    pub const fn start_us(&self) -> u64 {
        self.start_us
    }

    /// Returns the length of an interval, in microseconds.
    pub const fn width_us(&self) -> u64 {
        self.width_us
    }

    /// Returns the counts of all intervals.
    pub fn all(&self) -> &[Moment] {
        &self.moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_until_the_log_fits() {
        let mut moments = Moments::default();
        for second in 0..1_000 {
            moments.at(7_500_000 + second * SECOND_US)[0] += 1;
        }
        assert_eq!((moments.start_us(), moments.width_us()), (7_000_000, 8_000_000));
        assert_eq!(moments.all().len(), 125);
        assert!(moments.all().iter().all(|moment| moment[0] == 8));
    }

    #[test]
    fn a_far_call_keeps_the_number_of_intervals_small() {
        let mut moments = Moments::default();
        moments.at(1)[1] += 1;
        moments.at(u64::MAX)[1] += 1;
        assert!(moments.all().len() <= COUNT_MAX);
        assert_eq!(moments.all().iter().map(|moment| moment[1]).sum::<u64>(), 2);
    }
}
