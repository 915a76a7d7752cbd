//! The numbers of lines and of the times in them.

/// A request that takes longer than this, in microseconds, is rare: if many do, the unit is wrong.
pub const LONG_US: u64 = 600_000_000;

/// The number of lines by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All lines that are not empty.
    pub lines: u64,
    /// The lines that were not read.
    pub bad: u64,
    /// The lines that a condition left out.
    pub left_out: u64,
    /// The lines with status 429, also those left out.
    pub denied_before: u64,
    /// The lines without a key: its fields are empty, or `-`.
    pub without_key: u64,
    /// The lines whose client is behind a trusted proxy.
    pub forwarded: u64,
    /// The calls with the time that their request took.
    pub request_times: u64,
    /// Of these, the ones that took longer than [`LONG_US`].
    pub long_requests: u64,
    /// Of these, the ones with a whole number, not 0, and without a unit.
    pub whole_times: u64,
    /// Of these, the ones with a fraction or a unit.
    pub fine_times: u64,
    /// Of these, the ones that began before the first request ended.
    pub early_requests: u64,
    /// The longest of these times, in microseconds.
    pub longest_us: u64,
    /// The end of the first request, in microseconds since the Unix epoch.
    pub first_end_us: Option<u64>,
    /// The calls whose times are whole seconds.
    pub whole_seconds: u64,
}
