//! A page of text: Prometheus' format 0.0.4 and 1.0.0, or OpenMetrics.

use std::fmt::Write as _;

use super::names::{each_label, shown};
use super::value::{Exemplar, Series, Value};
use super::{Family, Page};
use crate::kind::Kind;

/// Lines of a page. Formatting into a string does not fail.
pub(super) struct Text {
    pub(super) out: String,
    page: Page,
    is_open: bool,
}

/// The name of a sample: of the family, and what stands behind it.
type Sample<'a> = (&'a str, bool, &'static str);

impl Text {
    pub(super) fn new(page: Page, is_open: bool, capacity: usize) -> Text {
        Text { out: String::with_capacity(capacity), page, is_open }
    }

    pub(super) fn family(&mut self, name: &str, family: &Family) {
        let (name, is_quoted) = shown(name, self.page.escapes);
        let (mut base, mut behind, mut kind) = (&*name, "", family.kind.as_str());
        if self.is_open && family.kind == Kind::Counter {
            // OpenMetrics knows counters by this suffix, which its metadata does not have.
            match name.strip_suffix("_total") {
                Some(stem) => (base, behind) = (stem, "_total"),
                None => kind = Kind::Unknown.as_str(),
            }
        } else if family.kind == Kind::Unknown && !self.is_open {
            kind = "untyped";
        }
        for (what, text) in [("HELP", &*family.help), ("TYPE", kind)] {
            let _ = write!(self.out, "# {what} ");
            self.name((base, is_quoted, ""));
            self.out.push(' ');
            escape(&mut self.out, text, self.is_open);
            self.out.push('\n');
        }
        for (labels, series) in family.sorted() {
            self.series((base, is_quoted, behind), labels, series);
        }
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        if self.is_open {
            self.out.push_str("# EOF\n");
        }
        self.out.into_bytes()
    }

    fn series(&mut self, (base, is_quoted, behind): Sample<'_>, labels: &[u8], series: &Series) {
        let named = |suffix| (base, is_quoted, suffix);
        let mut exemplars = series.exemplars.iter().peekable();
        match &series.value {
            Value::Number(value) => {
                self.sample(named(behind), labels, None);
                self.float(*value, false);
                self.end_of_line(series, exemplars.next());
            }
            Value::Summary(summary) => {
                for (quantile, value) in &summary.quantiles {
                    self.sample(named(""), labels, Some(("quantile", *quantile)));
                    self.float(*value, false);
                    self.end_of_line(series, None);
                }
                self.total(named("_sum"), labels, series, summary.sum);
                self.count(named("_count"), labels, series, summary.count);
            }
            Value::Classic(classic) => {
                let mut cumulative = 0_u64;
                for (index, (bound, count)) in classic.buckets.iter().enumerate() {
                    cumulative = cumulative.saturating_add(*count);
                    let exemplar = exemplars.next_if(|it| it.bucket == index);
                    self.bucket(named("_bucket"), labels, series, (*bound, cumulative), exemplar);
                }
                let last = (f64::INFINITY, classic.count);
                self.bucket(named("_bucket"), labels, series, last, exemplars.next());
                self.total(named("_sum"), labels, series, classic.sum);
                self.count(named("_count"), labels, series, classic.count);
            }
            Value::Native(native) => {
                let last = (f64::INFINITY, native.count);
                self.bucket(named("_bucket"), labels, series, last, None);
                self.total(named("_sum"), labels, series, native.sum.unwrap_or_default());
                self.count(named("_count"), labels, series, native.count);
            }
        }
    }

    fn bucket(
        &mut self,
        sample: Sample<'_>,
        labels: &[u8],
        series: &Series,
        (bound, count): (f64, u64),
        exemplar: Option<&Exemplar>,
    ) {
        self.sample(sample, labels, Some(("le", bound)));
        self.integer(count);
        self.end_of_line(series, exemplar);
    }

    fn total(&mut self, sample: Sample<'_>, labels: &[u8], series: &Series, value: f64) {
        self.sample(sample, labels, None);
        self.float(value, false);
        self.end_of_line(series, None);
    }

    fn count(&mut self, sample: Sample<'_>, labels: &[u8], series: &Series, value: u64) {
        self.sample(sample, labels, None);
        self.integer(value);
        self.end_of_line(series, None);
    }

    fn name(&mut self, (base, is_quoted, suffix): Sample<'_>) {
        match is_quoted {
            true => {
                self.out.push('"');
                escape(&mut self.out, base, true);
                let _ = write!(self.out, "{suffix}\"");
            }
            false => {
                let _ = write!(self.out, "{base}{suffix}");
            }
        }
    }

    /// Writes the name, the labels and a space.
    fn sample(&mut self, sample: Sample<'_>, labels: &[u8], extra: Option<(&str, f64)>) {
        let mut next = '{';
        if sample.1 {
            self.out.push('{');
            next = ',';
        }
        self.name(sample);
        each_label(labels, self.page.escapes, |name, value| {
            self.out.push(next);
            next = ',';
            write_label(&mut self.out, name, value);
        });
        if let Some((name, value)) = extra {
            let _ = write!(self.out, "{next}{name}=\"");
            next = ',';
            self.float(value, self.is_open);
            self.out.push('"');
        }
        self.out.push_str(if next == '{' { " " } else { "} " });
    }

    fn end_of_line(&mut self, series: &Series, exemplar: Option<&Exemplar>) {
        if self.page.timestamps && series.time_ns > 0 {
            let ms = series.time_ns / 1_000_000;
            let _ = match self.is_open {
                true => write!(self.out, " {}.{:03}", ms / 1000, ms % 1000),
                false => write!(self.out, " {ms}"),
            };
        }
        if let Some(exemplar) = exemplar.filter(|_| self.is_open) {
            self.out.push_str(" # {");
            for (index, (name, value)) in exemplar.labels().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                let _ = write!(self.out, "{comma}{name}=\"{value}\"");
            }
            self.out.push_str("} ");
            self.float(exemplar.value, true);
            let (seconds, nanos) = (exemplar.time_ns / NANOS, exemplar.time_ns % NANOS);
            let _ = write!(self.out, " {seconds}.{nanos:09}");
        }
        self.out.push('\n');
    }

    /// OpenMetrics has integers.
    fn integer(&mut self, value: u64) {
        match self.is_open {
            true => {
                let _ = write!(self.out, "{value}");
            }
            false => self.float(value as f64, false),
        }
    }

    /// As Go writes it. `with_point`: also `1.0`, as bounds are in OpenMetrics.
    fn float(&mut self, value: f64, with_point: bool) {
        let start = self.out.len();
        write_float(&mut self.out, value);
        if with_point && value.is_finite() && !self.out[start..].contains(['.', 'e']) {
            self.out.push_str(".0");
        }
    }
}

const NANOS: u64 = 1_000_000_000;

/// `strconv.FormatFloat(value, 'g', -1, 64)`.
fn write_float(out: &mut String, value: f64) {
    let magnitude = value.abs();
    let _ = match magnitude {
        _ if value.is_nan() => write!(out, "NaN"),
        f64::INFINITY => write!(out, "{}Inf", if value > 0.0 { '+' } else { '-' }),
        0.0 => write!(out, "0"),
        1e-4..1e6 if magnitude.fract() == 0.0 => write!(out, "{}", value as i64),
        1e-4..1e6 => write!(out, "{value}"),
        _ => {
            let start = out.len();
            let _ = write!(out, "{value:e}");
            let exponent = out[start..].find('e').map_or(out.len(), |at| start + at + 1);
            let number: i32 = out[exponent..].parse().unwrap_or_default();
            out.truncate(exponent);
            write!(out, "{}{:02}", if number < 0 { '-' } else { '+' }, number.abs())
        }
    };
}

fn write_label(
    out: &mut String,
    (name, is_quoted): (std::borrow::Cow<'_, str>, bool),
    value: &str,
) {
    match is_quoted {
        true => {
            out.push('"');
            escape(out, &name, true);
            out.push_str("\"=\"");
        }
        false => {
            out.push_str(&name);
            out.push_str("=\"");
        }
    }
    escape(out, value, true);
    out.push('"');
}

/// The length of a series' labels as text.
pub(super) fn labels_bytes(labels: &[u8], scratch: &mut String) -> usize {
    scratch.clear();
    each_label(labels, false, |name, value| write_label(scratch, name, value));
    scratch.len() + labels.len() / 4
}

fn escape(out: &mut String, text: &str, with_quotes: bool) {
    let mut rest = text;
    let is_special = |found: char| found == '\\' || found == '\n' || found == '"' && with_quotes;
    while let Some(at) = rest.find(is_special) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'\\' => "\\\\",
            b'\n' => "\\n",
            _ => "\\\"",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: numbers look as those of Go's library, which the Collector uses.
    #[test]
    fn numbers_look_as_go_writes_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (999_999.0, "999999"),
            (1_277_952.0, "1.277952e+06"),
            (1e21, "1e+21"),
            (0.0001, "0.0001"),
            (0.000_012, "1.2e-05"),
            (1e-128, "1e-128"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            let mut out = String::new();
            write_float(&mut out, value);
            assert_eq!(out, expected);
        }
    }
}
