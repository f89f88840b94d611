//! Reads a text by a layout into the parts of a time.

use super::layout::{Element, Form, Item};

/// A time as a text gives it. Parts without an element in the layout are absent.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parts<'t> {
    pub(super) year: i64,
    pub(super) month: Option<i64>,
    pub(super) day: Option<i64>,
    pub(super) year_day: Option<i64>,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) nanosecond: i64,
    pub(super) zone: Zone<'t>,
    /// False for AM, true for PM.
    after_noon: Option<bool>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) enum Zone<'t> {
    #[default]
    Absent,
    Utc,
    /// Seconds east of Greenwich.
    Offset(i64),
    /// An abbreviation: `CET`, `GMT+3`.
    Name(&'t str),
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The text without the element at its start, or the reason why it does not start with that.
type Rest<'t> = Result<&'t [u8], &'static str>;

impl<'t> Parts<'t> {
    /// # Errors
    /// The part that is wrong, and the text from there.
    pub(super) fn read(
        items: &[Item],
        text: &'t str,
    ) -> Result<Parts<'t>, (&'static str, &'t str)> {
        let mut parts = Parts::default();
        let mut rest = text.as_bytes();
        let at = |rest: &[u8]| text.get(text.len() - rest.len()..).unwrap_or(text);
        for (index, Item { element, skips_space }) in items.iter().enumerate() {
            if *skips_space {
                rest = skip_space(rest);
            }
            rest = parts.element(element, rest).map_err(|wrong| (wrong, at(rest)))?;
            let next = items[index + 1..].iter().map(|item| &item.element);
            let mut next = next.filter(|element| !matches!(element, Element::Literal(_)));
            // Seconds may have a fraction of which the layout says nothing.
            if matches!(element, Element::Second { .. })
                && !matches!(next.next(), Some(Element::Fraction | Element::FractionDigits(_)))
            {
                rest = parts.fraction(rest);
            }
        }
        if !rest.is_empty() {
            return Err(("end", at(rest)));
        }
        match parts.after_noon {
            Some(true) if parts.hour < 12 => parts.hour += 12,
            Some(false) if parts.hour == 12 => parts.hour = 0,
            _ => {}
        }
        Ok(parts)
    }

    fn element(&mut self, element: &Element, text: &'t [u8]) -> Rest<'t> {
        let rest = match element {
            Element::Literal(literal) => {
                return skip_literal(text, literal.as_bytes()).ok_or("separator");
            }
            Element::LongYear => {
                let (year, rest) = digits(text, 4).ok_or("year")?;
                self.year = year;
                rest
            }
            Element::Year => {
                let (year, rest) = digits(text, 2).ok_or("year")?;
                self.year = if year >= 69 { 1900 + year } else { 2000 + year };
                rest
            }
            Element::AnyYear => {
                let four = self.element(&Element::LongYear, text);
                return four.or_else(|_| self.element(&Element::Year, text));
            }
            Element::Month { fixed } => {
                let (month, rest) = number(text, *fixed, 1..=12).ok_or("month")?;
                self.month = Some(month);
                rest
            }
            Element::MonthName { long } => {
                let (index, rest) = name(text, &MONTHS, *long).ok_or("name of a month")?;
                self.month = Some(index + 1);
                rest
            }
            Element::WeekDay { long } => name(text, &DAYS, *long).ok_or("day of the week")?.1,
            Element::Day { fixed, after_space } => {
                let text = text.strip_prefix(b" ").filter(|_| *after_space).unwrap_or(text);
                let (day, rest) = number(text, *fixed, 0..=99).ok_or("day")?;
                self.day = Some(day);
                rest
            }
            Element::YearDay { fixed } => {
                let (day, rest) = year_day(text, *fixed).ok_or("day of the year")?;
                self.year_day = Some(day);
                rest
            }
            Element::Hour => {
                let (hour, rest) = number(text, false, 0..=23).ok_or("hour")?;
                self.hour = hour;
                rest
            }
            Element::Hour12 { fixed } => {
                let (hour, rest) = number(text, *fixed, 0..=12).ok_or("hour")?;
                self.hour = hour;
                rest
            }
            Element::Minute { fixed } => {
                let (minute, rest) = number(text, *fixed, 0..=59).ok_or("minute")?;
                self.minute = minute;
                rest
            }
            Element::Second { fixed } => {
                let (second, rest) = number(text, *fixed, 0..=59).ok_or("second")?;
                self.second = second;
                rest
            }
            Element::AmPm { upper } => {
                let [am, pm] = if *upper { ["AM", "PM"] } else { ["am", "pm"] };
                let is_pm = text.starts_with(pm.as_bytes());
                if !is_pm && !text.starts_with(am.as_bytes()) {
                    return Err("half of the day");
                }
                self.after_noon = Some(is_pm);
                &text[2..]
            }
            Element::ZoneName => self.zone_name(text).ok_or("abbreviation of a zone")?,
            Element::Offset { form, or_z } => {
                self.offset(text, *form, *or_z).ok_or("offset of a zone")?
            }
            Element::AnyOffset => {
                let forms = [Form::Minutes, Form::ColonMinutes, Form::Hours];
                let mut found = forms.into_iter().filter_map(|form| self.offset(text, form, true));
                found.next().ok_or("offset of a zone")?
            }
            Element::FractionDigits(count) => {
                let is_separated = matches!(text.first(), Some(b'.' | b','));
                let (value, rest) = text
                    .get(1..)
                    .filter(|_| is_separated)
                    .and_then(|text| Some((text.get(..*count)?, text.get(*count..)?)))
                    .ok_or("fraction of a second")?;
                self.nanosecond = nanoseconds(value).ok_or("fraction of a second")?;
                rest
            }
            Element::Fraction => self.fraction(text),
        };
        Ok(rest)
    }

    /// A separator and digits, if they are there.
    fn fraction(&mut self, text: &'t [u8]) -> &'t [u8] {
        let Some((b'.' | b',', behind)) = text.split_first() else { return text };
        let count = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return text;
        }
        self.nanosecond = nanoseconds(&behind[..count]).unwrap_or(0);
        &behind[count..]
    }

    fn offset(&mut self, text: &'t [u8], form: Form, or_z: bool) -> Option<&'t [u8]> {
        if or_z && let Some(rest) = text.strip_prefix(b"Z") {
            self.zone = Zone::Utc;
            return Some(rest);
        }
        let (sign, rest) = text.split_first()?;
        let sign = match sign {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let colon = |rest: &'t [u8], is_there: bool| {
            if is_there { rest.strip_prefix(b":") } else { Some(rest) }
        };
        let with_colons = matches!(form, Form::ColonMinutes | Form::ColonSeconds);
        let (hours, mut rest) = number(rest, true, 0..=24)?;
        let (mut minutes, mut seconds) = (0, 0);
        if form != Form::Hours {
            (minutes, rest) = number(colon(rest, with_colons)?, true, 0..=60)?;
        }
        if matches!(form, Form::Seconds | Form::ColonSeconds) {
            (seconds, rest) = number(colon(rest, with_colons)?, true, 0..=60)?;
        }
        self.zone = Zone::Offset(sign * ((hours * 60 + minutes) * 60 + seconds));
        Some(rest)
    }

    /// An abbreviation as Go takes it: three letters, four or five that end with `T`, and others.
    fn zone_name(&mut self, text: &'t [u8]) -> Option<&'t [u8]> {
        if let Some(rest) = text.strip_prefix(b"UTC") {
            self.zone = Zone::Utc;
            return Some(rest);
        }
        let letters = text.iter().take(6).take_while(|byte| byte.is_ascii_uppercase()).count();
        let length = if text.starts_with(b"ChST") || text.starts_with(b"MeST") {
            4
        } else if text.starts_with(b"GMT") {
            3 + signed_hours(&text[3..])
        } else if matches!(text.first(), Some(b'+' | b'-')) {
            Some(signed_hours(text)).filter(|length| *length > 0)?
        } else {
            match letters {
                3 => 3,
                4 if text[3] == b'T' || text.starts_with(b"WITA") => 4,
                5 if text[4] == b'T' => 5,
                _ => return None,
            }
        };
        let (name, rest) = text.split_at(length);
        self.zone = Zone::Name(str::from_utf8(name).ok()?);
        Some(rest)
    }
}

fn skip_space(text: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c);
    let count = text.iter().take_while(|byte| is_space(byte)).count();
    &text[count..]
}

fn skip_literal<'t>(mut text: &'t [u8], mut literal: &[u8]) -> Option<&'t [u8]> {
    let without_spaces = |text: &[u8]| text.iter().take_while(|byte| **byte == b' ').count();
    while let Some((first, behind)) = literal.split_first() {
        if *first == b' ' {
            if text.first().is_some_and(|byte| *byte != b' ') {
                return None;
            }
            literal = &literal[without_spaces(literal)..];
            text = &text[without_spaces(text)..];
        } else {
            text = text.strip_prefix(&[*first])?;
            literal = behind;
        }
    }
    Some(text)
}

fn decimal(digits: &[u8]) -> Option<i64> {
    let all = digits.iter().all(u8::is_ascii_digit);
    let add = |sum: i64, digit: &u8| sum * 10 + i64::from(digit - b'0');
    (all && !digits.is_empty() && digits.len() <= 18).then(|| digits.iter().fold(0, add))
}

/// Exactly so many digits.
fn digits(text: &[u8], count: usize) -> Option<(i64, &[u8])> {
    let (digits, rest) = text.split_at_checked(count)?;
    Some((decimal(digits)?, rest))
}

/// Two digits, or one if the number is not fixed.
fn number(text: &[u8], fixed: bool, range: std::ops::RangeInclusive<i64>) -> Option<(i64, &[u8])> {
    let found = digits(text, 2).or_else(|| if fixed { None } else { digits(text, 1) });
    found.filter(|(value, _)| range.contains(value))
}

/// Three digits; if not fixed, up to three behind up to two spaces.
fn year_day(text: &[u8], fixed: bool) -> Option<(i64, &[u8])> {
    if fixed {
        return digits(text, 3);
    }
    let spaces = text.iter().take(2).take_while(|byte| **byte == b' ').count();
    let text = &text[spaces..];
    let count = text.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    digits(text, count)
}

fn name<'t>(text: &'t [u8], names: &[&str], long: bool) -> Option<(i64, &'t [u8])> {
    let find = |name: &&str| {
        let name = if long { name } else { &name[..3] };
        let start = text.get(..name.len())?;
        start.eq_ignore_ascii_case(name.as_bytes()).then_some(name.len())
    };
    let (index, length) = (0..).zip(names).find_map(|(index, name)| Some((index, find(name)?)))?;
    Some((index, &text[length..]))
}

/// Digits beyond nanoseconds are cut.
fn nanoseconds(digits: &[u8]) -> Option<i64> {
    let kept = &digits[..digits.len().min(9)];
    Some(decimal(kept)? * 10_i64.pow(9 - kept.len() as u32))
}

/// The length of a sign and an hour up to 23 at the start of the text, else 0.
fn signed_hours(text: &[u8]) -> usize {
    let Some((b'+' | b'-', behind)) = text.split_first() else { return 0 };
    let count = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let hours = decimal(&behind[..count]);
    if hours.is_some_and(|hours| hours <= 23) { 1 + count } else { 0 }
}
