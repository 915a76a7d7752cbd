//! The effect of a limit on the calls of a log, in numbers.

use super::chunked::Chunked;
use super::moments::Moments;

/// The numbers of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfKey {
    /// The window of the last call, counted from the epoch.
    window: u32,
    /// The calls in that window.
    in_window: u32,
    /// The calls in the busiest window.
    pub peak: u32,
    /// The calls that were denied, or would be without shadow mode.
    pub denied: u32,
    /// All calls.
    pub calls: u32,
}

/// The fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The verdict.
    pub verdict: Verdict,
    /// The wait of the reply, in microseconds: until a retry, or in the queue of a leaky bucket.
    pub wait_us: u64,
}

/// The verdict of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call is allowed.
    Allowed,
    /// The call is denied.
    Denied,
    /// The call is denied, and will always be.
    Never,
    /// The call is allowed in shadow mode only.
    ShadowDenied,
}

/// The numbers of all keys under a limit.
#[derive(Debug)]
pub struct Tally {
    of_keys: Chunked<OfKey>,
    window_us: u64,
    /// The lifetimes of keys.
    pub at_once: AtOnce,
    /// All calls.
    pub calls: u64,
    /// The denied calls.
    pub denied: u64,
    /// The calls that shadow mode allows and the rule would deny.
    pub shadow_denied: u64,
    /// The denied calls whose cost is above the limit.
    pub never: u64,
    /// The keys with denied calls, also in shadow mode.
    pub keys_denied: u64,
    /// The longest wait of a denied call until its retry, in microseconds.
    pub longest_wait_us: u64,
    /// The allowed calls that wait in the queue of a leaky bucket first.
    pub queued: u64,
    /// The longest of those waits, in microseconds.
    pub longest_queue_us: u64,
    /// The counts over time.
    pub moments: Moments,
}

impl Tally {
    /// Creates a tally. `window_us` is the length of the windows in which a key's peak is counted,
    /// at least a second; a stored key lives for at most `life_us` after a call.
    pub fn new(window_us: u64, life_us: u64) -> Self {
        let window_us = window_us.max(1_000_000);
        let windows = u32::try_from(life_us.div_ceil(window_us)).unwrap_or(u32::MAX).max(1);
        Self {
            of_keys: Chunked::new(1),
            window_us,
            at_once: AtOnce { windows, ..AtOnce::default() },
            calls: 0,
            denied: 0,
            shadow_denied: 0,
            never: 0,
            keys_denied: 0,
            longest_wait_us: 0,
            queued: 0,
            longest_queue_us: 0,
            moments: Moments::default(),
        }
    }

    /// Counts a call. Returns true if it is the first denied call of its key.
    #[inline]
    pub fn count(&mut self, key: u32, at_us: u64, fate: Fate) -> bool {
        self.calls += 1;
        let moment = self.moments.at(at_us);
        moment[0] += 1;
        let is_denied = fate.verdict != Verdict::Allowed;
        match fate.verdict {
            Verdict::Allowed => {
                self.queued += u64::from(fate.wait_us > 0);
                self.longest_queue_us = self.longest_queue_us.max(fate.wait_us);
            }
            Verdict::ShadowDenied => {
                self.longest_wait_us = self.longest_wait_us.max(fate.wait_us);
                self.shadow_denied += 1;
                moment[2] += 1;
            }
            Verdict::Denied | Verdict::Never => {
                self.longest_wait_us = self.longest_wait_us.max(fate.wait_us);
                self.denied += 1;
                self.never += u64::from(fate.verdict == Verdict::Never);
                moment[1] += 1;
            }
        }
        let window = u32::try_from(at_us / self.window_us).unwrap_or(u32::MAX);
        let [of_key, ..] = self.of_keys.record_mut(key) else { return false };
        let last = (of_key.in_window > 0).then_some(of_key.window);
        self.at_once.see(last, window);
        if last != Some(window) {
            (of_key.window, of_key.in_window) = (window, 0);
        }
        of_key.calls = of_key.calls.saturating_add(1);
        of_key.in_window = of_key.in_window.saturating_add(1);
        of_key.peak = of_key.peak.max(of_key.in_window);
        let is_first = is_denied && of_key.denied == 0;
        of_key.denied = of_key.denied.saturating_add(u32::from(is_denied));
        self.keys_denied += u64::from(is_first);
        is_first
    }

    /// Returns the numbers of a key.
    pub fn of_key(&self, key: u32) -> OfKey {
        self.of_keys.record(key).first().copied().unwrap_or_default()
    }

    /// Returns the length of the windows in which the peak of a key is counted.
    pub const fn window_us(&self) -> u64 {
        self.window_us
    }

    /// Returns the keys with the most denied calls, at most `len`, the most denied first.
    pub fn most_denied(&self, keys: u32, len: usize) -> Vec<(u32, OfKey)> {
        let mut top: Vec<(u32, OfKey)> = Vec::with_capacity(len + 1);
        for key in 0..keys {
            let of_key = self.of_key(key);
            let is_full = top.len() == len;
            if of_key.denied == 0
                || is_full && top.last().is_some_and(|(_, last)| last.denied >= of_key.denied)
            {
                continue;
            }
            let place = top.partition_point(|(_, other)| other.denied >= of_key.denied);
            top.insert(place, (key, of_key));
            top.truncate(len);
        }
        top
    }
}

/// Counts the keys that a server would hold at once, at most: those called in two neighbouring
/// stretches of time, each as long as a key lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtOnce {
    /// The number of windows in a stretch.
    windows: u32,
    stretch: u32,
    /// The keys called in the stretch before this one.
    before: u64,
    /// The keys called in this stretch.
    now: u64,
    /// Those of them that were not called in the stretch before.
    new: u64,
    /// The most keys in two neighbouring stretches.
    pub most: u64,
}

impl AtOnce {
    /// Counts a call. `last` is the window of the key's call before.
    #[inline]
    fn see(&mut self, last: Option<u32>, window: u32) {
        if last == Some(window) {
            return;
        }
        let stretch = window / self.windows;
        if stretch != self.stretch {
            let follows = self.stretch.checked_add(1) == Some(stretch);
            self.before = if follows { self.now } else { 0 };
            (self.stretch, self.now, self.new) = (stretch, 0, 0);
        }
        let last = last.map(|last| last / self.windows);
        if last != Some(stretch) {
            self.now += 1;
            self.new += u64::from(last.is_none() || last != stretch.checked_sub(1));
            self.most = self.most.max(self.before + self.new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn count(tally: &mut Tally, key: u32, second: u64, verdict: Verdict) -> bool {
        tally.count(key, second * SECOND_US, Fate { verdict, wait_us: second })
    }

    #[test]
    fn tally_counts_the_denied_calls_and_the_busiest_window_of_each_key() {
        let mut tally = Tally::new(10 * SECOND_US, SECOND_US);
        for (second, verdict) in
            [(9, Verdict::Allowed), (10, Verdict::Allowed), (19, Verdict::Denied)]
        {
            count(&mut tally, 3, second, verdict);
        }
        assert!(count(&mut tally, 5, 19, Verdict::ShadowDenied));
        assert!(!count(&mut tally, 5, 21, Verdict::Never));
        let OfKey { peak, denied, .. } = tally.of_key(3);
        assert_eq!((peak, denied), (2, 1));
        assert_eq!((tally.calls, tally.denied, tally.shadow_denied, tally.never), (5, 2, 1, 1));
        assert_eq!((tally.keys_denied, tally.longest_wait_us), (2, 21));
        assert_eq!((tally.queued, tally.longest_queue_us), (2, 10));
        let keys: Vec<_> = tally.most_denied(6, 1).iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [5]);
    }

    #[test]
    fn keys_at_once_are_those_of_two_neighbouring_stretches() {
        let mut tally = Tally::new(SECOND_US, 10 * SECOND_US);
        for (second, keys) in [(100, 0..5), (112, 3..8), (115, 3..8), (140, 8..10), (155, 9..12)] {
            for key in keys {
                count(&mut tally, key, second, Verdict::Allowed);
            }
            let most = if second == 100 { 5 } else { 8 };
            assert_eq!(tally.at_once.most, most, "{second}");
        }
    }
}
