//! Times as log lines have them.

use sluice_otlp::civil_date;

/// A moment in UTC, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    year: i64,
    month: i64,
    day: i64,
    hour: u64,
    minute: u64,
    second: u64,
    nanosecond: u64,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Moment {
    pub(super) fn of(unix_ns: u64) -> Moment {
        let (seconds, nanosecond) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000);
        let (year, month, day) = civil_date((seconds / 86_400).cast_signed());
        let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
        Moment { year, month, day, hour, minute, second, nanosecond }
    }

    /// RFC 3339 with nanoseconds: what CRI begins its lines with. Always of [`RFC3339_LEN`] bytes.
    pub(super) fn rfc3339(self) -> String {
        let Moment { year, month, day, hour, minute, second, nanosecond } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanosecond:09}Z")
    }

    /// As Apache and flog write it. Always of [`APACHE_LEN`] bytes.
    pub(super) fn apache(self) -> String {
        let Moment { year, month, day, hour, minute, second, .. } = self;
        let month = MONTHS[month as usize - 1];
        format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
    }

    /// The suffix that the kubelet gives a rotated file.
    pub(super) fn rotation_suffix(self) -> String {
        let Moment { year, month, day, hour, minute, second, .. } = self;
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }
}

pub(super) const RFC3339_LEN: usize = 30;
pub(super) const APACHE_LEN: usize = 26;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_709_210_096, "2024-02-29T12:34:56.000000000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ];
        for (unix_s, expected) in cases {
            assert_eq!(Moment::of(unix_s * 1_000_000_000).rfc3339(), expected);
        }
    }

    #[test]
    fn the_three_forms_have_their_lengths() {
        let moment = Moment::of(1_709_210_096_000_000_789);
        assert_eq!(moment.rfc3339(), "2024-02-29T12:34:56.000000789Z");
        assert_eq!(moment.apache(), "29/Feb/2024:12:34:56 +0000");
        assert_eq!(moment.rotation_suffix(), "20240229-123456");
        assert_eq!((moment.rfc3339().len(), moment.apache().len()), (RFC3339_LEN, APACHE_LEN));
    }
}
