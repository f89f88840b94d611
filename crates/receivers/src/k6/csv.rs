//! Rows of `--out csv`. The first row of a file names the columns: the metric, the time, the value,
//! the system tags that k6 is set to, then all other tags and metadata.

use std::borrow::Cow;

use memchr::memchr;
use sluice_config::Pattern;

use super::samples::{Fault, Read, Sample, Tags};
use crate::files::HeaderConfig;

/// Begins the first row.
const FIRST_COLUMN: &str = "metric_name";
/// Columns before the tags.
const LEADING: [&str; 3] = [FIRST_COLUMN, "timestamp", "metric_value"];
/// Tags that are no system tags, as `key=value&key=value`.
const EXTRA_TAGS: &str = "extra_tags";
/// It says more of a sample and is no tag: k6's output for InfluxDB leaves it out as well.
const METADATA: &str = "metadata";

const NO_ROW: Fault = Fault("is no row of k6: want a metric, a time and a number");
const NO_COLUMNS: Fault = Fault(
    "stands in a file whose first row does not name the columns, as that of k6's `--out csv` does",
);

/// The first row of a file is its header.
pub(super) fn header() -> Option<HeaderConfig> {
    let pattern = Pattern::new(&format!("^{FIRST_COLUMN},")).ok()?;
    Some(HeaderConfig::text_of(pattern))
}

/// The columns of tags, by name. `None`: they are not those of k6.
pub(super) fn columns(header: &str) -> Option<Vec<String>> {
    let mut names: Vec<_> = cells(header.as_bytes()).map(Cow::into_owned).collect();
    let is_k6 = names.len() >= LEADING.len() && names.iter().zip(LEADING).all(|(a, b)| a == b);
    is_k6.then(|| names.split_off(LEADING.len()))
}

/// Whether a quote is open at the end of a row, which is none then.
pub(super) fn is_open(row: &[u8]) -> bool {
    memchr::memchr_iter(b'"', row).count() % 2 == 1
}

/// Reads a row. `has_columns`: the file has named its columns.
pub(super) fn read(row: &[u8], has_columns: bool) -> Result<Read<'_>, Fault> {
    if row.starts_with(FIRST_COLUMN.as_bytes()) && columns(&String::from_utf8_lossy(row)).is_some()
    {
        // A file that was begun anew.
        return Ok(Read::Nothing);
    }
    if !has_columns {
        return Err(NO_COLUMNS);
    }
    let mut rest = row;
    let mut next = || {
        let (cell, left) = first_cell(rest);
        rest = left.unwrap_or_default();
        cell
    };
    let (name, time, value) = (next(), next(), next());
    let value = value.parse().ok().filter(|it: &f64| it.is_finite());
    match value {
        Some(value) if !name.is_empty() && !time.is_empty() => {
            Ok(Read::Sample(Sample { name, time, value, tags: Tags::Csv(rest) }))
        }
        _ => Err(NO_ROW),
    }
}

/// Reads the cells behind the value. Those that a row lacks are empty.
pub(super) fn tags(raw: &[u8], columns: &[String]) -> Vec<(String, String)> {
    let mut tags = Vec::new();
    for (column, cell) in columns.iter().zip(cells(raw)) {
        match column.as_str() {
            METADATA => {}
            EXTRA_TAGS => {
                let pairs = cell.split('&').filter_map(|pair| pair.split_once('='));
                tags.extend(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
            }
            _ if cell.is_empty() => {}
            _ => tags.push((column.clone(), cell.into_owned())),
        }
    }
    tags
}

fn cells(row: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    let mut rest = Some(row);
    std::iter::from_fn(move || {
        let (cell, left) = first_cell(rest?);
        rest = left;
        Some(cell)
    })
}

/// The first cell of a row, and what follows its comma.
fn first_cell(row: &[u8]) -> (Cow<'_, str>, Option<&[u8]>) {
    let Some(quoted) = row.strip_prefix(b"\"") else {
        let end = memchr(b',', row);
        let cell = &row[..end.unwrap_or(row.len())];
        return (String::from_utf8_lossy(cell), end.map(|end| &row[end + 1..]));
    };
    let (mut text, mut rest) = (Cow::Borrowed(&b""[..]), quoted);
    loop {
        let end = memchr(b'"', rest).unwrap_or(rest.len());
        let (piece, after) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
        if text.is_empty() {
            text = Cow::Borrowed(piece);
        } else {
            text.to_mut().extend_from_slice(piece);
        }
        if after.first() == Some(&b'"') {
            text.to_mut().push(b'"');
            rest = &after[1..];
            continue;
        }
        let end = memchr(b',', after);
        let cell = match text {
            Cow::Borrowed(text) => String::from_utf8_lossy(text),
            Cow::Owned(text) => Cow::Owned(String::from_utf8_lossy(&text).into_owned()),
        };
        return (cell, end.map(|end| &after[end + 1..]));
    }
}
