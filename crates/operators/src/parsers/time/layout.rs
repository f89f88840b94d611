//! Layouts of times: those of Go's `time` package, and `strptime` as the Collector reads it.

use Element::{
    AmPm, Day, Fraction, FractionDigits, Hour, Hour12, Literal, LongYear, Minute, Month, MonthName,
    Offset, Second, WeekDay, Year, YearDay, ZoneName,
};

/// A part of a layout. Numbers that are `fixed` have all their digits.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Element {
    /// A run of spaces stands for any number of them.
    Literal(String),
    LongYear,
    Year,
    /// Four digits or two.
    AnyYear,
    Month {
        fixed: bool,
    },
    MonthName {
        long: bool,
    },
    WeekDay {
        long: bool,
    },
    Day {
        fixed: bool,
        after_space: bool,
    },
    YearDay {
        fixed: bool,
    },
    Hour,
    Hour12 {
        fixed: bool,
    },
    Minute {
        fixed: bool,
    },
    Second {
        fixed: bool,
    },
    AmPm {
        upper: bool,
    },
    ZoneName,
    Offset {
        form: Form,
        or_z: bool,
    },
    /// `Z`, `+0700`, `+07:00` or `+07`.
    AnyOffset,
    /// A separator and exactly so many digits.
    FractionDigits(usize),
    /// A separator and any number of digits, or nothing.
    Fraction,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    Hours,
    Minutes,
    ColonMinutes,
    Seconds,
    ColonSeconds,
}

/// An element, and whether space may precede it, as `strptime` allows before numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub(super) element: Element,
    pub(super) skips_space: bool,
}

#[derive(Default)]
struct Items(Vec<Item>);

impl Items {
    fn push(&mut self, element: Element, skips_space: bool) {
        self.0.push(Item { element, skips_space });
    }

    fn literal(&mut self, character: char) {
        match self.0.last_mut() {
            Some(Item { element: Literal(text), .. }) => text.push(character),
            _ => self.push(Literal(character.to_string()), false),
        }
    }
}

/// A layout of Go: `2006-01-02T15:04:05.999Z07:00`.
///
/// # Errors
/// Digits of a fraction without a point or comma before them.
pub(super) fn gotime(layout: &str) -> Result<Vec<Item>, String> {
    let mut items = Items::default();
    let mut rest = layout;
    let mut previous = None;
    while let Some(character) = rest.chars().next() {
        if let Some((element, length)) = go_element(rest) {
            items.push(element, false);
            rest = &rest[length..];
        } else {
            if character == '9' && !matches!(previous, Some('.' | ',' | '9') | None) {
                return Err("needs a point or a comma before the digits of a fraction".to_owned());
            }
            items.literal(character);
            rest = &rest[character.len_utf8()..];
        }
        previous = Some(character);
    }
    Ok(items.0)
}

/// The element that the layout begins with, and its length.
fn go_element(rest: &str) -> Option<(Element, usize)> {
    use Form::{ColonMinutes, ColonSeconds, Hours, Minutes, Seconds};
    const FORMS: [(&str, Form); 5] = [
        ("070000", Seconds),
        ("07:00:00", ColonSeconds),
        ("0700", Minutes),
        ("07:00", ColonMinutes),
        ("07", Hours),
    ];
    let no_letter_at =
        |place: usize| !rest[place..].starts_with(|next: char| next.is_ascii_lowercase());
    let found = match rest.as_bytes()[0] {
        b'J' if rest.starts_with("January") => (MonthName { long: true }, 7),
        b'J' if rest.starts_with("Jan") && no_letter_at(3) => (MonthName { long: false }, 3),
        b'M' if rest.starts_with("Monday") => (WeekDay { long: true }, 6),
        b'M' if rest.starts_with("Mon") && no_letter_at(3) => (WeekDay { long: false }, 3),
        b'M' if rest.starts_with("MST") => (ZoneName, 3),
        b'0' => match rest.as_bytes().get(1)? {
            b'1' => (Month { fixed: true }, 2),
            b'2' => (Day { fixed: true, after_space: false }, 2),
            b'3' => (Hour12 { fixed: true }, 2),
            b'4' => (Minute { fixed: true }, 2),
            b'5' => (Second { fixed: true }, 2),
            b'6' => (Year, 2),
            _ if rest.starts_with("002") => (YearDay { fixed: true }, 3),
            _ => return None,
        },
        b'1' if rest.starts_with("15") => (Hour, 2),
        b'1' => (Month { fixed: false }, 1),
        b'2' if rest.starts_with("2006") => (LongYear, 4),
        b'2' => (Day { fixed: false, after_space: false }, 1),
        b'_' if rest.starts_with("_2006") => return None,
        b'_' if rest.starts_with("_2") => (Day { fixed: false, after_space: true }, 2),
        b'_' if rest.starts_with("__2") => (YearDay { fixed: false }, 3),
        b'3' => (Hour12 { fixed: false }, 1),
        b'4' => (Minute { fixed: false }, 1),
        b'5' => (Second { fixed: false }, 1),
        b'P' if rest.starts_with("PM") => (AmPm { upper: true }, 2),
        b'p' if rest.starts_with("pm") => (AmPm { upper: false }, 2),
        sign @ (b'-' | b'Z') => {
            let (text, form) = FORMS.into_iter().find(|(text, _)| rest[1..].starts_with(text))?;
            (Offset { form, or_z: sign == b'Z' }, 1 + text.len())
        }
        b'.' | b',' => {
            let digit = rest.chars().nth(1).filter(|digit| matches!(digit, '0' | '9'))?;
            let behind = rest[1..].trim_start_matches(digit);
            if behind.starts_with(|next: char| next.is_ascii_digit()) {
                return None;
            }
            let digits = rest.len() - behind.len() - 1;
            let element = if digit == '9' { Fraction } else { FractionDigits(digits) };
            (element, 1 + digits)
        }
        _ => return None,
    };
    Some(found)
}

/// A layout of directives: `%Y-%m-%d %H:%M:%S`.
///
/// # Errors
/// A directive that does not exist, a fraction without a point or comma before it, or a digit.
pub(super) fn strptime(layout: &str) -> Result<Vec<Item>, String> {
    if layout.contains(|character: char| character.is_ascii_digit()) {
        return Err("has a digit, which only a layout of the type `gotime` has".to_owned());
    }
    let mut items = Items::default();
    let mut rest = layout.chars();
    while let Some(character) = rest.next() {
        match (character, rest.clone().next()) {
            ('%', Some(directive)) => {
                rest.next();
                push_directive(directive, &mut items)?;
            }
            _ => items.literal(character),
        }
    }
    Ok(items.0)
}

fn push_directive(directive: char, items: &mut Items) -> Result<(), String> {
    let parts = match directive {
        'D' | 'x' => return push_all("%m/%d/\u{1}", items),
        'F' => return push_all("%Y-%m-%d", items),
        'T' | 'X' => return push_all("%H:%M:%S", items),
        'r' => return push_all("%I:%M:%S %P", items),
        'R' => return push_all("%H:%M", items),
        'c' => return push_all("%a %b %d %H:%M:%S %Y", items),
        'n' => return push_literal('\n', items),
        't' => return push_literal('\t', items),
        '%' => return push_literal('%', items),
        'L' | 'f' | 's' => {
            if !take_separator(items) {
                return Err(format!("needs a point or a comma before `%{directive}`"));
            }
            (Fraction, false)
        }
        'Y' => (LongYear, true),
        'y' => (Year, true),
        'm' | 'o' | 'q' => (Month { fixed: false }, true),
        'b' | 'h' => (MonthName { long: false }, false),
        'B' => (MonthName { long: true }, false),
        'd' | 'e' | 'g' => (Day { fixed: false, after_space: false }, true),
        'a' => (WeekDay { long: false }, false),
        'A' => (WeekDay { long: true }, false),
        'H' => (Hour, true),
        'I' | 'l' => (Hour12 { fixed: false }, true),
        'p' => (AmPm { upper: true }, false),
        'P' => (AmPm { upper: false }, false),
        'M' => (Minute { fixed: false }, true),
        'S' => (Second { fixed: false }, true),
        'Z' => (ZoneName, false),
        'z' => (Element::AnyOffset, true),
        'w' => (Offset { form: Form::Seconds, or_z: false }, false),
        'i' => (Offset { form: Form::Hours, or_z: false }, false),
        'j' => (Offset { form: Form::ColonMinutes, or_z: false }, false),
        'k' => (Offset { form: Form::ColonSeconds, or_z: false }, false),
        _ => return Err(format!("has `%{directive}`, which is no directive")),
    };
    items.push(parts.0, parts.1);
    Ok(())
}

/// Directives that are short for others. U+0001 stands for a year of four digits or two.
fn push_all(directives: &str, items: &mut Items) -> Result<(), String> {
    let mut rest = directives.chars();
    while let Some(character) = rest.next() {
        match character {
            '%' => push_directive(rest.next().unwrap_or('%'), items)?,
            '\u{1}' => items.push(Element::AnyYear, true),
            _ => items.literal(character),
        }
    }
    Ok(())
}

fn push_literal(character: char, items: &mut Items) -> Result<(), String> {
    items.literal(character);
    Ok(())
}

/// Takes the point or the comma before a fraction, which belongs to the fraction.
fn take_separator(items: &mut Items) -> bool {
    let Some(Item { element: Literal(text), .. }) = items.0.last_mut() else { return false };
    let found = text.ends_with(['.', ',']);
    if found {
        text.pop();
    }
    found
}
