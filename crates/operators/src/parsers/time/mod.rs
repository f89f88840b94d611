//! `time_parser`: the time of a record from a field.

mod layout;
mod parts;
mod zone;

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use self::layout::Item;
use self::parts::{Parts, Zone};
pub use self::zone::Location;
use super::json_text::Token;
use super::values::{excerpt, kind_of, read_source, text_at, value_at};
use crate::field::Field;
use crate::operator::Transform;
use crate::record::Record;
use crate::step::{Sections, Step, TimeOf};

#[derive(Clone)]
pub(crate) struct Time {
    from: Field,
    format: Format,
}

#[derive(Clone)]
enum Format {
    Layout(Layout),
    Epoch(Unit),
}

/// The form of a time in a text, and the zone of times that say none.
#[derive(Clone)]
pub struct Layout {
    text: String,
    items: Vec<Item>,
    location: Location,
    /// Locations that an abbreviation in the text stands for.
    by_abbreviation: Vec<(String, Location)>,
}

/// A unit since 1970, or seconds with a fraction in a unit.
#[derive(Clone, Copy, PartialEq)]
struct Unit {
    nanoseconds: i64,
    is_fraction: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum LayoutType {
    Strptime,
    Gotime,
    Epoch,
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    Some(Box::new(Time::read(fields)?))
}

impl Time {
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Time> {
        let from = read_source(fields, None, "The field with the time.");
        let types = [
            ("strptime", LayoutType::Strptime),
            ("gotime", LayoutType::Gotime),
            ("epoch", LayoutType::Epoch),
            ("", LayoutType::Strptime),
        ];
        let doc = "The language of `layout`: directives such as `%Y`, the reference time of Go \
                   (`2006-01-02`), or a unit since 1970.";
        let kind = fields.choice("layout_type", LayoutType::Strptime, &types, doc);
        let doc = "The form of the time. For `epoch`: `s`, `ms`, `us`, `ns`, or seconds with a \
                   fraction, `s.ms`, `s.us`, `s.ns`.";
        let layout = fields.required_string("layout", doc);
        let doc = "The time zone of times that say none, such as `Europe/Berlin`. Default: UTC for \
                   a layout that ends with `Z`, else the zone of the system.";
        let location = fields.parsed("location", "a time zone", None, doc, |name| match name {
            "" => Ok(None),
            name => Location::named(name).map(Some),
        });
        let doc = "For abbreviations of zones that are ambiguous or unknown in `location`: the \
                   time zone that each stands for, such as `IST: Asia/Kolkata`.";
        let by_abbreviation = read_abbreviations(fields, doc);
        let items = match kind {
            LayoutType::Strptime => layout::strptime(&layout),
            LayoutType::Gotime => layout::gotime(&layout),
            LayoutType::Epoch => match Unit::parse(&layout) {
                Some(unit) => return Some(Time { from: from?, format: Format::Epoch(unit) }),
                None => Err("must be one of `s`, `ms`, `us`, `ns`, `s.ms`, `s.us` and `s.ns` for \
                             `layout_type: epoch`"
                    .to_owned()),
            },
        };
        if layout.is_empty() {
            return None;
        }
        let items = match items {
            Ok(items) => items,
            Err(why) => {
                fields.error_at("layout", &why);
                return None;
            }
        };
        let has_names = items.iter().any(|item| item.element == layout::Element::ZoneName);
        if !by_abbreviation.is_empty() && !has_names {
            let message = "has no effect: the layout has no abbreviation of a zone (`%Z`, `MST`)";
            fields.error_at("time_zone_locations", message);
        }
        let by_default = || if layout.ends_with('Z') { Location::utc() } else { Location::local() };
        let location = location.flatten().unwrap_or_else(by_default);
        let layout = Layout { text: layout, items, location, by_abbreviation };
        Some(Time { from: from?, format: Format::Layout(layout) })
    }

    pub(super) fn set(&self, record: &mut Record) -> Result<(), String> {
        record.time_ns = Some(self.parse(record)?);
        Ok(())
    }

    fn parse(&self, record: &Record) -> Result<i64, String> {
        match &self.format {
            Format::Epoch(unit) => unit.read(value_at(&self.from, record)?).ok_or_else(|| {
                let value = value_at(&self.from, record);
                let found = match value {
                    Ok(AnyValue::String(text)) => excerpt(text),
                    value => value.map_or("empty", kind_of).to_owned(),
                };
                format!("`{}` is {found}, not a time since 1970 in the unit", self.from)
            }),
            Format::Layout(layout) => layout.read(text_at(&self.from, record)?, record.observed_ns),
        }
    }

    /// The attribute with the time, if it is one, and how its value is read.
    pub(super) fn section(&self) -> Option<(String, TimeOf)> {
        let time = self.clone();
        let of = move |value: &Token<'_>, observed_ns| time.of(value, observed_ns);
        Some((self.from.attribute()?.to_owned(), Box::new(of)))
    }

    /// The time that the field of a record has with this value. Nothing if it has none.
    fn of(&self, value: &Token<'_>, observed_ns: i64) -> Option<i64> {
        match (&self.format, value) {
            (Format::Layout(layout), Token::Text(text)) => layout.read(text, observed_ns).ok(),
            (Format::Epoch(unit), Token::Text(text)) => unit.read_text(text),
            (Format::Epoch(unit), Token::Int(number)) => unit.read(&AnyValue::Int(*number)),
            (Format::Epoch(unit), Token::Double(number)) => unit.read(&AnyValue::Double(*number)),
            _ => None,
        }
    }
}

impl Layout {
    /// A layout of directives, as `%Y-%m-%d`, for times in UTC.
    ///
    /// # Errors
    /// The reason, to follow the name of the option.
    pub fn strptime(text: &str) -> Result<Layout, String> {
        let items = layout::strptime(text)?;
        let (text, location) = (text.to_owned(), Location::utc());
        Ok(Layout { text, items, location, by_abbreviation: Vec::new() })
    }

    /// The same layout, for times in this zone.
    #[must_use]
    pub fn within(self, location: Location) -> Layout {
        Layout { location, ..self }
    }

    /// Nanoseconds since 1970. `now_ns` decides the year of a time without one.
    ///
    /// # Errors
    /// The reason, in a line.
    pub fn read(&self, text: &str, now_ns: i64) -> Result<i64, String> {
        let location = location_in(text, &self.by_abbreviation).unwrap_or(&self.location);
        let parts = Parts::read(&self.items, text).map_err(|(part, place)| {
            let place = if place.is_empty() { "the end".into() } else { excerpt(place) };
            let layout = &self.text;
            format!("{} does not fit the layout `{layout}`: no {part} at {place}", excerpt(text))
        })?;
        let time = parts.unix_ns(location, now_ns);
        time.map_err(|why| format!("{}: {why}", excerpt(text)))
    }
}

impl Transform for Time {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        self.set(record)
    }

    fn step(&self) -> Option<Step> {
        Some(Step::Sections(Sections { time: Some(self.section()?), severity: None }))
    }
}

fn read_abbreviations(fields: &mut Fields<'_>, doc: &str) -> Vec<(String, Location)> {
    let mut found = Vec::new();
    for (abbreviation, name) in fields.string_lists("time_zone_locations", doc) {
        match Location::named(&name) {
            Ok(location) => found.push((abbreviation, location)),
            Err(why) => fields.error_at("time_zone_locations", &format!("has `{name}`: {why}")),
        }
    }
    found
}

/// The location of the first abbreviation in the text that has one.
fn location_in<'l>(text: &str, by_abbreviation: &'l [(String, Location)]) -> Option<&'l Location> {
    if by_abbreviation.is_empty() {
        return None;
    }
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.split(|character| !is_word(character)).find_map(|word| {
        let found = by_abbreviation.iter().find(|(abbreviation, _)| abbreviation == word);
        found.map(|(_, location)| location)
    })
}

impl Unit {
    fn parse(layout: &str) -> Option<Unit> {
        let (unit, is_fraction) = match layout.strip_prefix("s.") {
            Some(unit) => (unit, true),
            None => (layout, false),
        };
        let nanoseconds = match unit {
            "s" if !is_fraction => 1_000_000_000,
            "ms" => 1_000_000,
            "us" => 1000,
            "ns" => 1,
            _ => return None,
        };
        Some(Unit { nanoseconds, is_fraction })
    }

    /// Nanoseconds since 1970; nothing for what is no time, or one that does not fit.
    fn read(self, value: &AnyValue) -> Option<i64> {
        match value {
            AnyValue::String(text) => self.read_text(text),
            AnyValue::Bytes(bytes) => self.read_text(str::from_utf8(bytes).ok()?),
            AnyValue::Int(number) if self.is_fraction => number.checked_mul(1_000_000_000),
            AnyValue::Int(number) => number.checked_mul(self.nanoseconds),
            AnyValue::Double(number) if !number.is_finite() || number.abs() >= 9.2e18 => None,
            AnyValue::Double(number) if self.is_fraction => {
                let units = 1_000_000_000 / self.nanoseconds;
                // Rounded to the unit, as the Collector does.
                let fraction = ((number - number.floor()) * units as f64).round_ties_even() as i64;
                let whole = (number.floor() as i64).checked_mul(1_000_000_000)?;
                whole.checked_add(fraction * self.nanoseconds)
            }
            AnyValue::Double(number) => (*number as i64).checked_mul(self.nanoseconds),
            _ => None,
        }
    }

    fn read_text(self, text: &str) -> Option<i64> {
        if !self.is_fraction {
            return text.parse::<i64>().ok()?.checked_mul(self.nanoseconds);
        }
        let (seconds, fraction) = text.split_once('.')?;
        let seconds: i64 = seconds.parse().ok()?;
        let fraction = fraction.parse::<i64>().ok()?.checked_mul(self.nanoseconds)?;
        seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
    }
}

impl Parts<'_> {
    /// Nanoseconds since 1970. `now_ns` decides the year of a time without one. An error: the day
    /// does not exist, the zone is unknown, or the time does not fit.
    fn unix_ns(&self, location: &Location, now_ns: i64) -> Result<i64, String> {
        let (month, day) = self.month_and_day()?;
        let unix = |year| self.unix(location, year, month, day);
        let mut seconds = unix(self.year)?;
        if self.year == 0 {
            seconds = recent(now_ns, unix)?;
        }
        let nanoseconds = seconds.checked_mul(1_000_000_000);
        let nanoseconds = nanoseconds.and_then(|time| time.checked_add(self.nanosecond));
        nanoseconds.ok_or_else(|| "the time is outside the years 1678 to 2261".to_owned())
    }

    fn month_and_day(&self) -> Result<(i64, i64), String> {
        let Some(of_year) = self.year_day else {
            let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
            let length =
                days_since_1970(self.year, month + 1, 1) - days_since_1970(self.year, month, 1);
            let exists = (1..=length).contains(&day);
            return if exists { Ok((month, day)) } else { Err("there is no such day".to_owned()) };
        };
        let january = days_since_1970(self.year, 1, 1);
        let (year, month, day) = sluice_otlp::civil_date(january + of_year - 1);
        let agrees = |given: Option<i64>, found| given.is_none_or(|given| given == found);
        if year != self.year || !agrees(self.month, month) || !agrees(self.day, day) {
            return Err("there is no such day of the year, or month and day differ".to_owned());
        }
        Ok((month, day))
    }

    fn unix(&self, location: &Location, year: i64, month: i64, day: i64) -> Result<i64, String> {
        let days = days_since_1970(year, month, 1) + day - 1;
        let local = ((days * 24 + self.hour) * 60 + self.minute) * 60 + self.second;
        match &self.zone {
            Zone::Absent => Ok(location.unix(local)),
            Zone::Utc => Ok(local),
            Zone::Offset(offset) => Ok(local - offset),
            Zone::Name(name) => {
                let hours = name.strip_prefix("GMT").and_then(|hours| hours.parse::<i64>().ok());
                let offset = location
                    .offset_of(name, local)
                    .or(hours.map(|hours| hours * 3600))
                    .or_else(|| Location::global_offset_of(name, local));
                let unknown = || format!("the time zone `{name}` is unknown: give `location`");
                Ok(local - offset.ok_or_else(unknown)?)
            }
        }
    }
}

/// A time without a year is of this year, or of the last if that is more than a week ahead.
/// `unix`: seconds since 1970 for a year.
pub(super) fn recent(
    now_ns: i64,
    unix: impl Fn(i64) -> Result<i64, String>,
) -> Result<i64, String> {
    const WEEK: i64 = 7 * 86_400;
    let now = now_ns.div_euclid(1_000_000_000);
    let (year, _, _) = sluice_otlp::civil_date(now.div_euclid(86_400));
    let this_year = unix(year)?;
    if this_year > now + WEEK { unix(year - 1) } else { Ok(this_year) }
}

/// Days from 1970 to a date (Hinnant, "chrono-Compatible Low-Level Date Algorithms"). Month 13 is
/// January of the next year.
pub(super) fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 12 { (year + 1, month - 12) } else { (year, month) };
    // Years begin in March here, so that the leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let year_of_era = year.rem_euclid(400);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    year.div_euclid(400) * 146_097 + day_of_era - 719_468
}

/// Nanoseconds since 1970 of a time of RFC 3339; nothing for another text.
pub fn rfc3339(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| {
        let digits = &bytes[from..to];
        let add = |sum: i64, digit: &u8| sum * 10 + i64::from(digit - b'0');
        digits.iter().all(u8::is_ascii_digit).then(|| digits.iter().fold(0, add))
    };
    let is_form = bytes.len() >= 20
        && matches!((bytes[4], bytes[7], bytes[10]), (b'-', b'-', b'T'))
        && matches!((bytes[13], bytes[16]), (b':', b':'));
    if !is_form {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let days = (1..=12).contains(&month).then(|| days_since_1970(year, month, 1))?;
    let length = days_since_1970(year, month + 1, 1) - days;
    if !(1..=length).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (mut nanoseconds, mut place) = (0, 19);
    if matches!(bytes[place], b'.' | b',') {
        let digits = bytes[place + 1..].iter().take_while(|byte| byte.is_ascii_digit());
        let (count, mut unit) = (digits.clone().count(), 1_000_000_000);
        for digit in digits.take(9) {
            unit /= 10;
            nanoseconds += i64::from(digit - b'0') * unit;
        }
        place += 1 + count;
        if count == 0 {
            return None;
        }
    }
    let offset = match &bytes[place..] {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (number(place + 1, place + 3)?, number(place + 4, place + 6)?);
            if hours > 24 || minutes > 60 {
                return None;
            }
            (hours * 60 + minutes) * 60 * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let seconds = (((days + day - 1) * 24 + hour) * 60 + minute) * 60 + second - offset;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}
