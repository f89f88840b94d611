//! Times as log lines have them, in UTC.

use sluice_otlp::{civil_date, civil_time};

pub(super) const RFC3339_LEN: usize = 30;
pub(super) const APACHE_LEN: usize = 26;
const SECOND_NS: u64 = 1_000_000_000;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn seconds(unix_ns: u64) -> i64 {
    (unix_ns / SECOND_NS).cast_signed()
}

/// RFC 3339 with nanoseconds: what CRI begins its lines with. Always of [`RFC3339_LEN`] bytes.
pub(super) fn rfc3339(unix_ns: u64) -> String {
    format!("{}.{:09}Z", civil_time(seconds(unix_ns)), unix_ns % SECOND_NS)
}

/// As Apache and flog write it. Always of [`APACHE_LEN`] bytes.
pub(super) fn apache(unix_ns: u64) -> String {
    let seconds = seconds(unix_ns);
    let (year, month, day) = civil_date(seconds / 86_400);
    let (month, time) = (MONTHS[month as usize - 1], &civil_time(seconds)["2026-11-21T".len()..]);
    format!("{day:02}/{month}/{year:04}:{time} +0000")
}

/// The suffix that the kubelet gives a rotated file.
pub(super) fn rotation_suffix(unix_ns: u64) -> String {
    civil_time(seconds(unix_ns)).replace(['-', ':'], "").replace('T', "-")
}

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
            assert_eq!(rfc3339(unix_s * 1_000_000_000), expected);
        }
    }

    #[test]
    fn the_three_forms_have_their_lengths() {
        let unix_ns = 1_709_210_096_000_000_789;
        assert_eq!(rfc3339(unix_ns), "2024-02-29T12:34:56.000000789Z");
        assert_eq!(apache(unix_ns), "29/Feb/2024:12:34:56 +0000");
        assert_eq!(rotation_suffix(unix_ns), "20240229-123456");
        assert_eq!((rfc3339(unix_ns).len(), apache(unix_ns).len()), (RFC3339_LEN, APACHE_LEN));
    }
}
