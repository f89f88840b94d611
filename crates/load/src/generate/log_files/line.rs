//! A line of flog's `--format json` as a container runtime stores it, patched in place.

use sluice_otlp::{civil_date, civil_time};

use crate::identity::{Identity, Stamp, TEXT_END, TEXT_MARK};

const RFC3339_LEN: usize = 30;
const APACHE_LEN: usize = 26;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// containerd and CRI-O cut lines that are longer than this.
const PIECE_BYTES: usize = 16 << 10;
/// Repeated until the line has its length.
const FILLING: &str = "pages/and/paths/that/fill/the/line/";

/// One line with the offsets of its variable parts.
pub(super) struct LineTemplate {
    pub(super) bytes: Vec<u8>,
    /// Offset of the time in each piece.
    times_at: Vec<usize>,
    date_at: usize,
    stamp_at: usize,
}

impl LineTemplate {
    pub(super) fn minimum_body_bytes() -> usize {
        body("").len()
    }

    /// `body_bytes` is at least [`LineTemplate::minimum_body_bytes`].
    pub(super) fn new(body_bytes: usize) -> LineTemplate {
        let missing = body_bytes - LineTemplate::minimum_body_bytes();
        let body = body(&FILLING.chars().cycle().take(missing).collect::<String>());
        let (mut bytes, mut times_at) = (Vec::new(), Vec::new());
        let mut pieces = body.as_bytes().chunks(PIECE_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            times_at.push(bytes.len());
            let tag = if pieces.peek().is_some() { " stdout P " } else { " stdout F " };
            bytes.extend([rfc3339(0).as_bytes(), tag.as_bytes(), piece, b"\n"].concat());
        }
        // Both are in the first piece.
        let find =
            |text: &str| memchr::memmem::find(&bytes, text.as_bytes()).expect("just written");
        let (date_at, stamp_at) = (find(&apache(0)), find(TEXT_MARK) + TEXT_MARK.len());
        LineTemplate { bytes, times_at, date_at, stamp_at }
    }

    pub(super) fn stamp(&self, line: &mut [u8], identity: Identity, time: &LineTime) {
        for &at in &self.times_at {
            line[at..at + RFC3339_LEN].copy_from_slice(time.rfc3339.as_bytes());
        }
        line[self.date_at..self.date_at + APACHE_LEN].copy_from_slice(time.apache.as_bytes());
        let stamp = Stamp { identity, sent_unix_ns: time.unix_ns };
        stamp.write(&mut line[self.stamp_at..self.stamp_at + Stamp::LEN]);
    }
}

/// The time of lines that are written together, in all forms that it has in a line.
pub(super) struct LineTime {
    unix_ns: u64,
    rfc3339: String,
    apache: String,
}

impl LineTime {
    pub(super) fn of(unix_ns: u64) -> LineTime {
        LineTime { unix_ns, rfc3339: rfc3339(unix_ns), apache: apache(unix_ns) }
    }
}

fn body(filling: &str) -> String {
    let (stamp, date) = ("0".repeat(Stamp::LEN), apache(0));
    format!(
        "{{\"host\":\"203.0.113.17\", \"user-identifier\":\"{TEXT_MARK}{stamp}\", \
         \"datetime\":\"{date}\", \"method\": \"GET\", \"request\": \"/{filling}\", \
         \"protocol\":\"HTTP/1.1\", \"status\":200, \"bytes\":20480, \
         \"referer\": \"https://www.example.com/{TEXT_END}\"}}"
    )
}

fn seconds(unix_ns: u64) -> i64 {
    (unix_ns / SECOND_NS).cast_signed()
}

/// RFC 3339 with nanoseconds, which begins a CRI line. Always of [`RFC3339_LEN`] bytes.
fn rfc3339(unix_ns: u64) -> String {
    format!("{}.{:09}Z", civil_time(seconds(unix_ns)), unix_ns % SECOND_NS)
}

/// As Apache and flog write it. Always of [`APACHE_LEN`] bytes.
fn apache(unix_ns: u64) -> String {
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

    const UNIX_NS: u64 = 1_709_210_096_000_000_789;

    fn line(body_bytes: usize) -> String {
        let template = LineTemplate::new(body_bytes);
        let mut line = template.bytes.to_vec();
        // An earlier stamp leaves nothing behind.
        template.stamp(&mut line, Identity::new(9, 999_999), &LineTime::of(u64::MAX / 4));
        template.stamp(&mut line, Identity::new(7, 0xabc), &LineTime::of(UNIX_NS));
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_line_is_cris_and_its_body_flogs_json() {
        let line = line(400);
        let body = line
            .strip_prefix("2024-02-29T12:34:56.000000789Z stdout F ")
            .unwrap()
            .strip_suffix('\n')
            .unwrap();
        assert_eq!(body.len(), 400);
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let fields: Vec<&String> = body.as_object().unwrap().keys().collect();
        let flogs = [
            "host",
            "user-identifier",
            "datetime",
            "method",
            "request",
            "protocol",
            "status",
            "bytes",
            "referer",
        ];
        assert_eq!(fields, flogs);
        let stamp = format!("{TEXT_MARK}0007000000000abc{UNIX_NS:016x}");
        assert_eq!(
            (&body["user-identifier"], &body["datetime"]),
            (&stamp.as_str().into(), &"29/Feb/2024:12:34:56 +0000".into())
        );
    }

    #[test]
    fn a_long_line_comes_in_pieces_of_16_kib_that_make_the_line_again() {
        let text = line(40_000);
        let pieces: Vec<(&str, &str)> = text
            .lines()
            .map(|piece| piece.strip_prefix("2024-02-29T12:34:56.000000789Z stdout ").unwrap())
            .map(|piece| piece.split_once(' ').unwrap())
            .collect();
        let shape: Vec<(&str, usize)> =
            pieces.iter().map(|(tag, piece)| (*tag, piece.len())).collect();
        assert_eq!(shape, [("P", 16_384), ("P", 16_384), ("F", 40_000 - 2 * 16_384)]);
        let whole: String = pieces.iter().map(|(_, piece)| *piece).collect();
        assert!(
            serde_json::from_str::<serde_json::Value>(&whole).unwrap()["referer"]
                .as_str()
                .unwrap()
                .ends_with(TEXT_END)
        );
    }

    #[test]
    fn the_shortest_body_is_still_a_line() {
        let minimum = LineTemplate::minimum_body_bytes();
        assert!(minimum <= 300, "{minimum}");
        assert!(line(minimum).contains("\"request\": \"/\""));
    }

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
