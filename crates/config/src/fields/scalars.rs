//! Options with one value.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Declaration, Fields};
use crate::diagnostics::{Diagnostic, Severity};
use crate::secret::Secret;
use crate::yaml::{Entry, Scalar};
use crate::{duration, size};

/// The integer types that an option can have.
pub trait Integer: Copy + PartialOrd + std::fmt::Display + TryFrom<i128> {
    const MAX: Self;
}

macro_rules! impl_integer {
    ($($kind:ty),*) => {
        $(impl Integer for $kind {
            const MAX: Self = <$kind>::MAX;
        })*
    };
}
impl_integer!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

/// Why a scalar is wrong. The text names the expected value, to follow "`path` must be ".
pub(super) enum Refused {
    /// "must be {0}, not {kind}"
    Kind(String),
    /// "{text} is not {0}: {1}"
    Text(String, String),
    /// "must be {0}"
    Value(String),
}

impl<'a> Fields<'a> {
    /// A string with a default.
    pub fn string(&mut self, key: &str, default: &str, doc: &str) -> String {
        let shown = if default.is_empty() { String::new() } else { format!("`{default}`") };
        self.scalar(key, Declaration::new("string", shown, doc), string_of)
            .unwrap_or_else(|| default.to_owned())
    }

    /// A string that may be absent. An empty string counts as given.
    pub fn optional_string(&mut self, key: &str, doc: &str) -> Option<String> {
        self.scalar(key, Declaration::new("string", "", doc), string_of)
    }

    /// A required string. If the file does not have it, that is an error and the string is empty.
    pub fn required_string(&mut self, key: &str, doc: &str) -> String {
        let value = self.scalar(key, Declaration::new("string, required", "", doc), string_of);
        if value.as_deref().unwrap_or_default().is_empty() && !self.has_error_at(key) {
            self.error_missing(key);
        }
        value.unwrap_or_default()
    }

    /// A string that is never shown.
    pub fn secret(&mut self, key: &str, doc: &str) -> Option<Secret> {
        self.scalar(key, Declaration::secret("secret string", doc), string_of).map(Secret::new)
    }

    pub fn boolean(&mut self, key: &str, default: bool, doc: &str) -> bool {
        self.scalar(key, Declaration::new("boolean", format!("`{default}`"), doc), boolean_of)
            .unwrap_or(default)
    }

    /// A whole number within a range.
    pub fn integer<T: Integer>(
        &mut self,
        key: &str,
        default: T,
        range: RangeInclusive<T>,
        doc: &str,
    ) -> T {
        let declaration =
            Declaration::new(integer_bounds(&range).kind("integer"), format!("`{default}`"), doc);
        self.scalar(key, declaration, |scalar| integer_of(scalar, &range)).unwrap_or(default)
    }

    pub fn optional_integer<T: Integer>(
        &mut self,
        key: &str,
        range: RangeInclusive<T>,
        doc: &str,
    ) -> Option<T> {
        self.scalar(
            key,
            Declaration::new(integer_bounds(&range).kind("integer"), "", doc),
            |scalar| integer_of(scalar, &range),
        )
    }

    /// A finite number within a range.
    pub fn float(&mut self, key: &str, default: f64, range: RangeInclusive<f64>, doc: &str) -> f64 {
        let declaration =
            Declaration::new(float_bounds(&range).kind("number"), format!("`{default}`"), doc);
        self.scalar(key, declaration, |scalar| float_of(scalar, &range)).unwrap_or(default)
    }

    /// A duration as Go writes it. A bare number means nanoseconds, as in Go, and causes a warning.
    pub fn duration(&mut self, key: &str, default: Duration, doc: &str) -> Duration {
        self.duration_in(key, default, Duration::ZERO..=Duration::MAX, doc)
    }

    /// A duration within a range.
    pub fn duration_in(
        &mut self,
        key: &str,
        default: Duration,
        range: RangeInclusive<Duration>,
        doc: &str,
    ) -> Duration {
        let declaration = Declaration::new(
            duration_kind(&range),
            format!("`{}`", duration::format(default)),
            doc,
        );
        self.any_duration(key, declaration, range).unwrap_or(default)
    }

    pub fn optional_duration(
        &mut self,
        key: &str,
        range: RangeInclusive<Duration>,
        doc: &str,
    ) -> Option<Duration> {
        self.any_duration(key, Declaration::new(duration_kind(&range), "", doc), range)
    }

    fn any_duration(
        &mut self,
        key: &str,
        declaration: Declaration<'_>,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let mut bare_number = false;
        let value = self.scalar(key, declaration, |scalar| {
            let value = match (scalar.as_string(), scalar.as_integer()) {
                (_, Some(nanoseconds)) => {
                    bare_number = nanoseconds != 0;
                    let nanoseconds = u64::try_from(nanoseconds)
                        .ok()
                        .filter(|value| i64::try_from(*value).is_ok());
                    nanoseconds.map(Duration::from_nanos).ok_or_else(|| {
                        Refused::Value("a duration of at most 292 years".to_owned())
                    })?
                }
                (Some(text), None) => duration::parse(text)
                    .map_err(|why| Refused::Text("a duration".to_owned(), why))?,
                (None, None) => return Err(Refused::Kind("a duration such as `5s`".to_owned())),
            };
            if range.contains(&value) {
                Ok(value)
            } else {
                Err(Refused::Value(duration_bounds(&range).wanted("or longer")))
            }
        });
        if let (true, Some(value)) = (bare_number, value) {
            let message = format!(
                "a number without unit means nanoseconds: this is {}",
                duration::format(value)
            );
            let hint = "write a unit, such as `5s` or `300ms`";
            self.remark(Severity::Warning, Some(key), &message, Some(hint));
        }
        value
    }

    /// A number of bytes: `4MiB`, `10 MB`, or a plain number.
    pub fn size(
        &mut self,
        key: &str,
        default_bytes: u64,
        range: RangeInclusive<u64>,
        doc: &str,
    ) -> u64 {
        let declaration =
            Declaration::new(size_kind(&range), format!("`{}`", size::format(default_bytes)), doc);
        self.scalar(key, declaration, |scalar| size_of(scalar, &range)).unwrap_or(default_bytes)
    }

    /// One of several names, each with its value. Letter case does not matter.
    pub fn choice<T: Clone + PartialEq>(
        &mut self,
        key: &str,
        default: T,
        choices: &[(&str, T)],
        doc: &str,
    ) -> T {
        let default_name = choices
            .iter()
            .find(|(_, value)| *value == default)
            .map(|(name, _)| format!("`{name}`"));
        let declaration =
            Declaration::new(choice_kind(choices), default_name.unwrap_or_default(), doc);
        self.any_choice(key, declaration, choices).unwrap_or(default)
    }

    pub fn optional_choice<T: Clone>(
        &mut self,
        key: &str,
        choices: &[(&str, T)],
        doc: &str,
    ) -> Option<T> {
        self.any_choice(key, Declaration::new(choice_kind(choices), "", doc), choices)
    }

    fn any_choice<T: Clone>(
        &mut self,
        key: &str,
        declaration: Declaration<'_>,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let entry = self.take(key, declaration)?;
        let scalar = self.scalar_of(entry)?;
        let found = scalar
            .as_string()
            .and_then(|text| choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)));
        if let Some((_, value)) = found {
            return Some(value.clone());
        }
        if scalar.is_null() {
            return None;
        }
        let names = choices.iter().map(|(name, _)| *name);
        let meant = crate::nearest::nearest(&scalar.text, names).filter(|name| !name.is_empty());
        let message = format!(
            "`{}` must be {}, not `{}`",
            self.path_of(&entry.key),
            choice_kind(choices),
            scalar.text
        );
        let hint = meant.map(|name| format!("did you mean `{name}`?"));
        self.push(Diagnostic::error(entry.value.span, message).with_hint_if(hint));
        None
    }

    /// A scalar that `parse` turns into a value; the error says what the option must be ("an
    /// address `host:port`").
    pub fn parsed<T>(
        &mut self,
        key: &str,
        kind: &str,
        default: Option<&str>,
        doc: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let shown = default.map(|default| format!("`{default}`")).unwrap_or_default();
        let is_given = self.is_present(key);
        let value = self.scalar(key, Declaration::new(kind, shown, doc), |scalar| {
            let text = string_of(scalar)?;
            parse(&text).map_err(|why| Refused::Text(kind.to_owned(), why))
        });
        if is_given { value } else { default.and_then(|default| parse(default).ok()) }
    }

    /// Declares an option, finds it and parses it. Absent or null: nothing. Wrong: an error, and
    /// nothing.
    pub(super) fn scalar<T>(
        &mut self,
        key: &str,
        declaration: Declaration<'_>,
        parse: impl FnOnce(&Scalar) -> Result<T, Refused>,
    ) -> Option<T> {
        let is_secret = declaration.is_secret;
        let entry = self.take(key, declaration)?;
        let scalar = self.scalar_of(entry)?;
        let path = self.path_of(&entry.key);
        self.check_scalar(&path, entry.value.span, scalar, is_secret, parse)
    }

    pub(super) fn check_scalar<T>(
        &mut self,
        path: &str,
        span: crate::source::Span,
        scalar: &Scalar,
        is_secret: bool,
        parse: impl FnOnce(&Scalar) -> Result<T, Refused>,
    ) -> Option<T> {
        let shown = if is_secret { "the value".to_owned() } else { format!("`{}`", scalar.text) };
        let (message, hint) = match parse(scalar) {
            Ok(value) => return Some(value),
            // An unset `${…}` for an option that is no string: as if the option were absent.
            Err(_) if scalar.is_null() => return None,
            Err(Refused::Kind(wanted)) => {
                let hint = kind_hint(&wanted, scalar, is_secret);
                (format!("`{path}` must be {wanted}, not {}", scalar.kind()), hint)
            }
            Err(Refused::Text(wanted, why)) => {
                (format!("`{path}`: {shown} is not {wanted}: {why}"), None)
            }
            Err(Refused::Value(wanted)) => {
                (format!("`{path}` must be {wanted}, not {shown}"), None)
            }
        };
        self.push(Diagnostic::error(span, message).with_hint_if(hint));
        None
    }

    /// The entry's scalar; nothing if it is null; an error if it is a list or a mapping.
    fn scalar_of(&mut self, entry: &'a Entry) -> Option<&'a Scalar> {
        match entry.value.as_scalar() {
            // An unset `${…}` is null too, but strings take it as the empty string.
            Some(scalar) if scalar.is_null() && !scalar.expanded => None,
            Some(scalar) => Some(scalar),
            None => {
                let message = format!(
                    "`{}` must be a single value, not {}",
                    self.path_of(&entry.key),
                    entry.value.kind()
                );
                self.push(Diagnostic::error(entry.value.span, message));
                None
            }
        }
    }
}

pub(super) fn string_of(scalar: &Scalar) -> Result<String, Refused> {
    scalar.as_string().map(str::to_owned).ok_or_else(|| Refused::Kind("a string".to_owned()))
}

fn boolean_of(scalar: &Scalar) -> Result<bool, Refused> {
    scalar.as_boolean().ok_or_else(|| Refused::Kind("`true` or `false`".to_owned()))
}

fn integer_of<T: Integer>(scalar: &Scalar, range: &RangeInclusive<T>) -> Result<T, Refused> {
    let value = scalar.as_integer().ok_or_else(|| Refused::Kind("a whole number".to_owned()))?;
    let value = T::try_from(value).ok().filter(|value| range.contains(value));
    value.ok_or_else(|| Refused::Value(integer_bounds(range).wanted("or more")))
}

fn float_of(scalar: &Scalar, range: &RangeInclusive<f64>) -> Result<f64, Refused> {
    match scalar.as_float() {
        Some(value) if range.contains(&value) => Ok(value),
        Some(_) => Err(Refused::Value(float_bounds(range).wanted("or more"))),
        None => Err(Refused::Kind("a number".to_owned())),
    }
}

fn size_of(scalar: &Scalar, range: &RangeInclusive<u64>) -> Result<u64, Refused> {
    let bytes = match (scalar.as_integer(), scalar.as_string()) {
        (Some(bytes), _) => {
            u64::try_from(bytes).map_err(|_| Refused::Value("a size of 0 or more".to_owned()))?
        }
        (None, Some(text)) => {
            size::parse(text).map_err(|why| Refused::Text("a size".to_owned(), why))?
        }
        (None, None) => return Err(Refused::Kind("a size such as `4MiB`".to_owned())),
    };
    if range.contains(&bytes) {
        Ok(bytes)
    } else {
        Err(Refused::Value(size_bounds(range).wanted("or more")))
    }
}

/// The correct form, where that is clear.
fn kind_hint(wanted: &str, scalar: &Scalar, is_secret: bool) -> Option<String> {
    if wanted == "a string" {
        let example = if is_secret { "\"…\"".to_owned() } else { format!("\"{}\"", scalar.text) };
        return Some(format!("put it in quotes: {example}"));
    }
    if wanted == "`true` or `false`" {
        return match scalar.text.to_ascii_lowercase().as_str() {
            "yes" | "on" | "true" | "y" => Some("write `true`, without quotes".to_owned()),
            "no" | "off" | "false" | "n" => Some("write `false`, without quotes".to_owned()),
            _ => None,
        };
    }
    None
}

/// A range in words. Without an end, only the type itself bounds it.
struct Bounds {
    start: String,
    end: Option<String>,
}

impl Bounds {
    fn of<T: PartialEq>(range: &RangeInclusive<T>, most: T, show: impl Fn(&T) -> String) -> Bounds {
        let end = (*range.end() != most).then(|| show(range.end()));
        Bounds { start: show(range.start()), end }
    }

    /// For the documentation: `integer (1 to 5)`.
    fn kind(&self, name: &str) -> String {
        match &self.end {
            Some(end) => format!("{name} ({} to {end})", self.start),
            None => format!("{name} ({} or more)", self.start),
        }
    }

    /// For messages, after "must be ".
    fn wanted(&self, or_more: &str) -> String {
        match &self.end {
            Some(end) => format!("between {} and {end}", self.start),
            None => format!("{} {or_more}", self.start),
        }
    }
}

fn integer_bounds<T: Integer>(range: &RangeInclusive<T>) -> Bounds {
    Bounds::of(range, T::MAX, T::to_string)
}

fn float_bounds(range: &RangeInclusive<f64>) -> Bounds {
    Bounds::of(range, f64::INFINITY, f64::to_string)
}

fn duration_bounds(range: &RangeInclusive<Duration>) -> Bounds {
    Bounds::of(range, Duration::MAX, |duration| duration::format(*duration))
}

fn size_bounds(range: &RangeInclusive<u64>) -> Bounds {
    Bounds::of(range, u64::MAX, |bytes| size::format(*bytes))
}

fn duration_kind(range: &RangeInclusive<Duration>) -> String {
    match *range == (Duration::ZERO..=Duration::MAX) {
        true => "duration".to_owned(),
        false => duration_bounds(range).kind("duration"),
    }
}

fn size_kind(range: &RangeInclusive<u64>) -> String {
    if *range == (0..=u64::MAX) { "size".to_owned() } else { size_bounds(range).kind("size") }
}

fn choice_kind<T>(choices: &[(&str, T)]) -> String {
    let names: Vec<String> = choices
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    format!("one of {}", names.join(", "))
}
