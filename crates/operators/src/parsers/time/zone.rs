//! Time zones: the offset at a time, and of an abbreviation.

use std::sync::OnceLock;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A time zone; without one, UTC.
#[derive(Clone, Debug)]
pub struct Location {
    zone: Option<TimeZone>,
    /// The abbreviations that the zone ever had, with their offsets in seconds.
    names: Vec<(String, i64)>,
}

/// Abbreviations that are also names of zones, which a time may have in any location.
const GLOBAL: [&str; 12] =
    ["GMT", "EST", "MST", "HST", "CET", "MET", "EET", "WET", "UCT", "ROC", "ROK", "PRC"];

impl Location {
    pub(in crate::parsers) fn utc() -> Location {
        Location { zone: None, names: Vec::new() }
    }

    /// The zone of the system.
    pub(super) fn local() -> Location {
        Location::of(TimeZone::system())
    }

    /// The zone of this name, such as `Europe/Berlin`; `""` is UTC, `Local` the system's zone.
    ///
    /// # Errors
    /// There is no such zone.
    pub fn named(name: &str) -> Result<Location, String> {
        match name {
            "" | "UTC" => Ok(Location::utc()),
            "Local" => Ok(Location::local()),
            _ => match TimeZone::get(name) {
                Ok(zone) => Ok(Location::of(zone)),
                Err(_) => Err("there is no such time zone".to_owned()),
            },
        }
    }

    fn of(zone: TimeZone) -> Location {
        /// 2100: rules that recur every year are followed so far.
        const END: i64 = 4_102_444_800;
        let mut names: Vec<(String, i64)> = Vec::new();
        let mut add = |abbreviation: &str, offset: i64| {
            if !names.iter().any(|(name, _)| name == abbreviation) {
                names.push((abbreviation.to_owned(), offset));
            }
        };
        let now = zone.to_offset_info(Timestamp::UNIX_EPOCH);
        for transition in zone.following(Timestamp::MIN) {
            if transition.timestamp().as_second() > END {
                break;
            }
            add(transition.abbreviation(), i64::from(transition.offset().seconds()));
        }
        add(now.abbreviation(), i64::from(now.offset().seconds()));
        drop(now);
        Location { zone: Some(zone), names }
    }

    /// Seconds since 1970 of a local time, which is given as if it were in UTC. Of two, or none at
    /// all where clocks change, the one that Go takes.
    pub(in crate::parsers) fn unix(&self, local: i64) -> i64 {
        if self.zone.is_none() {
            return local;
        }
        let guess = self.offset_at(local);
        local - self.offset_at(local - guess)
    }

    fn offset_at(&self, unix: i64) -> i64 {
        let (Some(zone), Ok(time)) = (&self.zone, Timestamp::from_second(unix)) else { return 0 };
        i64::from(zone.to_offset(time).seconds())
    }

    /// The offset that the abbreviation stands for in this zone at the local time.
    pub(super) fn offset_of(&self, abbreviation: &str, local: i64) -> Option<i64> {
        let zone = self.zone.as_ref()?;
        let mut known = self.names.iter().filter(|(name, _)| name == abbreviation);
        let first = known.next()?.1;
        let offset = self.offset_at(local - first);
        let time = Timestamp::from_second(local - offset).ok()?;
        let is_meant = zone.to_offset_info(time).abbreviation() == abbreviation;
        Some(if is_meant { offset } else { first })
    }

    /// The offset of an abbreviation that is the name of a zone anywhere.
    pub(super) fn global_offset_of(abbreviation: &str, local: i64) -> Option<i64> {
        let location = global(abbreviation)?;
        let offset = location.offset_of(abbreviation, local);
        Some(offset.unwrap_or_else(|| local - location.unix(local)))
    }
}

/// The zone of such a name. Kept: to find all its abbreviations takes far longer than a line may.
fn global(abbreviation: &str) -> Option<&'static Location> {
    static FOUND: [OnceLock<Option<Location>>; GLOBAL.len()] =
        [const { OnceLock::new() }; GLOBAL.len()];
    let place = GLOBAL.iter().position(|name| *name == abbreviation)?;
    FOUND[place].get_or_init(|| Location::named(abbreviation).ok()).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: a zone that an abbreviation names is read once, not for each line.
    #[test]
    fn zones_of_abbreviations_are_kept() {
        assert!(std::ptr::eq(global("CET").unwrap(), global("CET").unwrap()));
        assert_eq!(Location::global_offset_of("CET", 0), Some(3600));
        assert_eq!(Location::global_offset_of("ABC", 0), None);
    }
}
