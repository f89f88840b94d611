//! Numbers, times and tables for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use sluice_otlp::civil_time;

/// `1234567` as `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// `1 frame`, `2 frames`.
pub(crate) fn counted(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// The two largest units: `3d 4h`, `12m 5s`, `8s`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

/// The age by the wall clock; zero for times in the future.
pub(crate) fn age(unix_ns: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_nanos(unix_ns))
}

/// Nanoseconds since 1970 as `2026-11-21T06:05:43.120Z`.
pub(crate) fn time(unix_ns: u64) -> String {
    let seconds = (unix_ns / 1_000_000_000).cast_signed();
    format!("{}.{:03}Z", civil_time(seconds), unix_ns / 1_000_000 % 1000)
}

/// A table without lines; columns whose title begins with `>` are numbers.
pub(crate) fn table(titles: &[&str]) -> Table {
    let mut table = Table::new();
    // On a terminal, cells wrap so that a row is no wider.
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(titles.iter().map(|title| title.trim_start_matches('>')));
    for (column, title) in table.column_iter_mut().zip(titles) {
        if title.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The width of the terminal, if the standard output is one.
pub(crate) fn terminal_width() -> Option<usize> {
    Table::new().width().map(usize::from)
}

/// Lines wrapped at spaces; their continuations are indented two columns deeper.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let words = line.trim_start();
        let indentation = &line[..line.len() - words.len()];
        wrapped.push_str(indentation);
        let mut column = indentation.len();
        for (index, word) in words.split(' ').enumerate() {
            let len = word.chars().count();
            if index > 0 && column + 1 + len > width {
                wrapped.push_str(&format!("\n{indentation}  "));
                column = indentation.len() + 2;
            } else if index > 0 {
                wrapped.push(' ');
                column += 1;
            }
            wrapped.push_str(word);
            column += len;
        }
        wrapped.push('\n');
    }
    wrapped
}

/// Progress on the standard error, if that is a terminal.
pub(crate) fn progress(bar: ProgressBar, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Text from another program, on one line.
pub(crate) fn cell(text: &str) -> Cell {
    Cell::new(text.replace(|character: char| character.is_control(), " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            (counted(1, "frame"), counted(1200, "frame")),
            ("1 frame".into(), "1,200 frames".into())
        );
    }

    #[test]
    fn long_lines_wrap_at_words() {
        let text = "Disk:\n  one two three four\n\n  └─ verylongwordindeed x\n";
        let expected =
            "Disk:\n  one two\n    three\n    four\n\n  └─\n    verylongwordindeed\n    x\n";
        assert_eq!(wrapped(text, 10), expected);
        assert_eq!(wrapped(text, 80), text);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(951_782_400_000_000_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(time(1_700_000_000_123_456_789), "2023-11-14T22:13:20.123Z");
        assert_eq!(age(u64::MAX), Duration::ZERO);
        let texts =
            [8, 725, 3600, 7_380, 273_600].map(|seconds| duration(Duration::from_secs(seconds)));
        assert_eq!(texts, ["8s", "12m 5s", "1h 0m", "2h 3m", "3d 4h"]);
    }
}
