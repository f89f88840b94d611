//! Options with one value.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Fields, Mode, OptionDoc};
use crate::diagnostics::{Diagnostic, Severity};
use crate::nearest::did_you_mean;
use crate::secret::Secret;
use crate::source::Span;
use crate::yaml::{Entry, Scalar};
use crate::{duration, expand, size};

/// The integer types that an option can have.
pub trait Integer: Copy + PartialOrd + Display + TryFrom<i128> {
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
    Kind(&'static str),
    /// "{text} is not {0}: {1}"
    Text(String, String),
    /// "must be {0}"
    Value(String),
}

impl<'a> Fields<'a> {
    /// A string with a default.
    pub fn string(&mut self, key: &str, default: &str, doc: &str) -> String {
        let shown = shown(Some(default).filter(|default| !default.is_empty()));
        let given = self.scalar(key, OptionDoc::new("string", shown, doc), string_of);
        given.unwrap_or_else(|| default.to_owned())
    }

    /// A string that may be absent. An empty string counts as given.
    pub fn optional_string(&mut self, key: &str, doc: &str) -> Option<String> {
        self.scalar(key, OptionDoc::new("string", "", doc), string_of)
    }

    /// A string that may be absent. An empty string counts as absent.
    pub fn non_empty_string(&mut self, key: &str, doc: &str) -> Option<String> {
        self.optional_string(key, doc).filter(|text| !text.is_empty())
    }

    /// A required string. If the file does not have it, that is an error and the string is empty.
    pub fn required_string(&mut self, key: &str, doc: &str) -> String {
        let value = self.scalar(key, OptionDoc::new("string, required", "", doc), string_of);
        if value.as_deref().unwrap_or_default().is_empty() && !self.has_error_at(key) {
            self.error_missing(key);
        }
        value.unwrap_or_default()
    }

    /// A string that is never shown.
    pub fn secret(&mut self, key: &str, doc: &str) -> Option<Secret> {
        let entry = self.take_secret(key, "secret string", doc)?;
        let scalar = self.scalar_of(entry)?;
        let path = self.path_of(key);
        self.check_scalar(&path, entry.value.span, scalar, true, string_of).map(Secret::new)
    }

    pub fn boolean(&mut self, key: &str, default: bool, doc: &str) -> bool {
        let option = OptionDoc::new("boolean", shown(Some(default)), doc);
        let wrong = Refused::Kind("`true` or `false`");
        self.scalar(key, option, |scalar| scalar.as_boolean().ok_or(wrong)).unwrap_or(default)
    }

    /// A whole number within a range.
    pub fn integer<T: Integer>(
        &mut self,
        key: &str,
        default: T,
        range: RangeInclusive<T>,
        doc: &str,
    ) -> T {
        let given = self.optional_integer(key, range, doc);
        self.show_default(default);
        given.unwrap_or(default)
    }

    /// A whole number within a range, if the file has it.
    pub fn optional_integer<T: Integer>(
        &mut self,
        key: &str,
        range: RangeInclusive<T>,
        doc: &str,
    ) -> Option<T> {
        let bounds = Bounds { range, most: T::MAX, show: T::to_string, or_more: "or more" };
        let option = OptionDoc::new(bounds.kind("integer"), "", doc);
        self.scalar(key, option, |scalar| {
            let value = scalar.as_integer().ok_or(Refused::Kind("a whole number"))?;
            bounds.check(T::try_from(value).ok())
        })
    }

    /// A finite number within a range, if the file has it. `default` is for the documentation.
    pub fn optional_float(
        &mut self,
        key: &str,
        default: f64,
        range: RangeInclusive<f64>,
        doc: &str,
    ) -> Option<f64> {
        let show = f64::to_string;
        let bounds = Bounds { range, most: f64::INFINITY, show, or_more: "or more" };
        let option = OptionDoc::new(bounds.kind("number"), shown(Some(default)), doc);
        self.scalar(key, option, |scalar| {
            bounds.check(Some(scalar.as_float().ok_or(Refused::Kind("a number"))?))
        })
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
        let given = self.optional_duration(key, range, doc);
        self.show_default(duration::format(default));
        given.unwrap_or(default)
    }

    /// A duration within a range, if the file has it.
    pub fn optional_duration(
        &mut self,
        key: &str,
        range: RangeInclusive<Duration>,
        doc: &str,
    ) -> Option<Duration> {
        let is_any = range == (Duration::ZERO..=Duration::MAX);
        let show = |value: &Duration| duration::format(*value);
        let bounds = Bounds { range, most: Duration::MAX, show, or_more: "or longer" };
        let kind = if is_any { "duration".to_owned() } else { bounds.kind("duration") };
        let option = OptionDoc::new(kind, "", doc);
        let mut bare_number = None;
        let value = self.scalar(key, option, |scalar| {
            let value = match (scalar.as_integer(), scalar.as_string()) {
                (Some(nanoseconds), _) => {
                    bare_number = Some(nanoseconds).filter(|number| *number > 0);
                    let range = 0..=i128::from(i64::MAX);
                    let too_long = || Refused::Value("a duration of at most 292 years".to_owned());
                    let nanoseconds = Some(nanoseconds).filter(|value| range.contains(value));
                    Duration::from_nanos(nanoseconds.ok_or_else(too_long)? as u64)
                }
                (None, Some(text)) => duration::parse(text)
                    .map_err(|why| Refused::Text("a duration".to_owned(), why))?,
                (None, None) => return Err(Refused::Kind("a duration such as `5s`")),
            };
            bounds.check(Some(value))
        });
        if let Some(number) = bare_number {
            let message =
                format!("a number without unit means nanoseconds, as in the Collector: {number}ns");
            let hint = format!("write a unit: `{number}s` for seconds, `{number}ms`");
            self.remark(Severity::Warning, Some(key), &message, Some(&hint));
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
        let show = |bytes: &u64| size::format(*bytes);
        let bounds = Bounds { range, most: u64::MAX, show, or_more: "or more" };
        let default = shown(Some(size::format(default_bytes)));
        let option = OptionDoc::new(bounds.kind("size"), default, doc);
        let given = self.scalar(key, option, |scalar| {
            let bytes = match (scalar.as_integer(), scalar.as_string()) {
                (Some(bytes), _) => u64::try_from(bytes)
                    .map_err(|_| Refused::Value("a size of 0 or more".to_owned()))?,
                (None, Some(text)) => {
                    size::parse(text).map_err(|why| Refused::Text("a size".to_owned(), why))?
                }
                (None, None) => return Err(Refused::Kind("a size such as `4MiB`")),
            };
            bounds.check(Some(bytes))
        });
        given.unwrap_or(default_bytes)
    }

    /// One of several names, each with its value. Letter case does not matter.
    pub fn choice<T: Clone + PartialEq>(
        &mut self,
        key: &str,
        default: T,
        choices: &[(&str, T)],
        doc: &str,
    ) -> T {
        let given = self.optional_choice(key, choices, doc);
        if let Some((name, _)) = choices.iter().find(|(_, value)| *value == default) {
            self.show_default(name);
        }
        given.unwrap_or(default)
    }

    /// One of several names, if the file has it.
    pub fn optional_choice<T: Clone>(
        &mut self,
        key: &str,
        choices: &[(&str, T)],
        doc: &str,
    ) -> Option<T> {
        let names = choices.iter().map(|(name, _)| *name).filter(|name| !name.is_empty());
        let quoted: Vec<String> = names.clone().map(|name| format!("`{name}`")).collect();
        let kind = format!("one of {}", quoted.join(", "));
        let entry = self.take(key, OptionDoc::new(&*kind, "", doc))?;
        let scalar = self.scalar_of(entry)?;
        let named = |text: &str| choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        if let Some((_, value)) = scalar.as_string().and_then(named) {
            return Some(value.clone());
        }
        if !scalar.is_null() {
            let message = format!("must be {kind}, not `{}`", scalar.text);
            let hint = did_you_mean(&scalar.text, names);
            self.remark(Severity::Error, Some(key), &message, hint.as_deref());
        }
        None
    }

    /// A scalar that `parse` turns into a value. `kind`: what it must be, "an address `host:port`".
    /// Null counts as absent.
    pub fn parsed<T>(
        &mut self,
        key: &str,
        kind: &str,
        default: Option<&str>,
        doc: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.parsed_by(string_of, key, kind, default, doc, parse)
    }

    /// As [`Fields::parsed`]. `read`: the text of a scalar.
    pub(super) fn parsed_by<T>(
        &mut self,
        read: impl Fn(&Scalar) -> Result<String, Refused>,
        key: &str,
        kind: &str,
        default: Option<&str>,
        doc: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.scalar(key, OptionDoc::new(kind, shown(default), doc), |scalar| {
            let wanted = kind.strip_suffix(", required").unwrap_or(kind);
            parse(&read(scalar)?).map_err(|why| Refused::Text(wanted.to_owned(), why))
        });
        // A wrong value is an error, and has no default.
        let default = default.filter(|_| value.is_none() && !self.is_given(key));
        value.or_else(|| parse(default?).ok())
    }

    /// Notes, for the documentation, the default of the option that was declared last.
    fn show_default(&mut self, default: impl Display) {
        if let Mode::Describing(options) = &mut self.mode
            && let Some(option) = options.last_mut()
        {
            option.default = shown(Some(default));
        }
    }

    /// Declares an option, finds it and parses it. Nothing if absent, null, or wrong (an error).
    pub(super) fn scalar<T>(
        &mut self,
        key: &str,
        option: OptionDoc,
        parse: impl FnOnce(&Scalar) -> Result<T, Refused>,
    ) -> Option<T> {
        let entry = self.take(key, option)?;
        let scalar = self.scalar_of(entry)?;
        let path = self.path_of(key);
        self.check_scalar(&path, entry.value.span, scalar, false, parse)
    }

    pub(super) fn check_scalar<T>(
        &mut self,
        path: &str,
        span: Span,
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
                let hint = kind_hint(wanted, path, scalar, is_secret);
                (format!("`{path}` must be {wanted}, not {}", scalar.kind()), hint)
            }
            Err(Refused::Text(wanted, why)) => {
                (format!("`{path}`: {shown} is not {wanted}: {why}"), None)
            }
            Err(Refused::Value(wanted)) => {
                (format!("`{path}` must be {wanted}, not {shown}"), None)
            }
        };
        let hint = reference_hint(scalar, is_secret).or(hint);
        self.push(Diagnostic::error(span, message).with_hint_if(hint));
        None
    }

    /// The entry's scalar; nothing if it is null; an error if it is a list or a mapping.
    fn scalar_of(&mut self, entry: &'a Entry) -> Option<&'a Scalar> {
        let scalar = entry.value.as_text();
        if scalar.is_none() {
            let message = format!("must be a single value, not {}", entry.value.kind());
            self.error_at(&entry.key, &message);
        }
        // An unset `${…}` is null too, but strings take it as the empty string.
        scalar.filter(|scalar| !scalar.is_null() || scalar.expanded)
    }
}

pub(super) fn string_of(scalar: &Scalar) -> Result<String, Refused> {
    scalar.as_string().map(str::to_owned).ok_or(Refused::Kind("a string"))
}

/// For a wrong value that was meant to be replaced by a variable.
pub(super) fn reference_hint(scalar: &Scalar, is_secret: bool) -> Option<String> {
    let name = expand::bare_variable(&scalar.text)?;
    let may_be_secret = is_secret || scalar.expanded || scalar.text.contains('@');
    let name = if may_be_secret { "NAME" } else { name };
    Some(format!("`$` without braces is not replaced: write `${{env:{name}}}`"))
}

/// The correct form, where that is clear.
fn kind_hint(wanted: &str, path: &str, scalar: &Scalar, is_secret: bool) -> Option<String> {
    if wanted == "a whole number" && path.ends_with("_mib") && !is_secret {
        let bytes = scalar.as_string().and_then(|text| size::parse(text).ok())?;
        // Without a unit the text is a quoted number of MiB.
        let mib = scalar.text.parse().unwrap_or(bytes.div_ceil(1 << 20));
        return Some(format!("write `{mib}`: the unit is MiB"));
    }
    let boolean = match (wanted, scalar.text.to_ascii_lowercase().as_str()) {
        ("a string", _) if is_secret => return Some("put it in quotes: \"…\"".to_owned()),
        ("a string", _) => return Some(format!("put it in quotes: \"{}\"", scalar.text)),
        ("`true` or `false`", "yes" | "on" | "true" | "y") => true,
        ("`true` or `false`", "no" | "off" | "false" | "n") => false,
        _ => return None,
    };
    Some(format!("write `{boolean}`, without quotes"))
}

/// A default for the documentation.
pub(super) fn shown(default: Option<impl Display>) -> String {
    default.map_or(String::new(), |default| format!("`{default}`"))
}

/// A range in words. If it ends with `most`, only the type itself bounds it.
struct Bounds<T> {
    range: RangeInclusive<T>,
    most: T,
    show: fn(&T) -> String,
    or_more: &'static str,
}

impl<T: PartialOrd> Bounds<T> {
    /// The first and the last value.
    fn shown(&self) -> (String, Option<String>) {
        let end = Some(self.range.end()).filter(|end| **end != self.most);
        ((self.show)(self.range.start()), end.map(self.show))
    }

    /// For the documentation: `integer (1 to 5)`.
    fn kind(&self, name: &str) -> String {
        match self.shown() {
            (start, Some(end)) => format!("{name} ({start} to {end})"),
            (start, None) => format!("{name} ({start} or more)"),
        }
    }

    /// `None` is a value that the type does not have.
    fn check(&self, value: Option<T>) -> Result<T, Refused> {
        value.filter(|value| self.range.contains(value)).ok_or_else(|| {
            Refused::Value(match self.shown() {
                (start, Some(end)) => format!("between {start} and {end}"),
                (start, None) => format!("{start} {}", self.or_more),
            })
        })
    }
}
