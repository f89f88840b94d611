//! Makes a request with text that is not UTF-8 acceptable, without changing its length.

use crate::Signal;
use crate::scan::{NESTING_LIMIT, scalar};
use crate::schema::{Message, WireKind};
use crate::wire::{LEN, Result, read_len, read_tag};

/// Stands for a byte that is not part of UTF-8. One byte long, so that no length changes.
const REPLACEMENT: u8 = b'?';

/// Writes `?` in place of every byte of a `string` field that is not part of valid UTF-8, and
/// answers the number of strings that it changed. For requests that [`crate::scan`] refuses because
/// of a string; whatever else is wrong with them stays, also behind the first such place.
pub fn repair_strings(signal: Signal, request: &mut [u8]) -> u64 {
    let mut changed = 0;
    let end = request.len();
    // An error ends it: a scan afterwards finds the same.
    let _ = message(request, 0, end, signal.request(), 0, &mut changed);
    changed
}

fn message(
    request: &mut [u8],
    mut position: usize,
    end: usize,
    message_type: &'static Message,
    depth: usize,
    changed: &mut u64,
) -> Result<()> {
    if depth > NESTING_LIMIT {
        return Ok(());
    }
    while position < end {
        let bytes = &request[..end];
        let start = position;
        let (number, wire_type, after_tag) = read_tag(bytes, start)?;
        let kind = message_type.wire_kind(number);
        if wire_type != LEN {
            position = scalar(bytes, kind, number, wire_type, start, after_tag)?;
            continue;
        }
        let content = read_len(bytes, after_tag)?;
        position = content.end;
        let nested = match kind {
            WireKind::KeyValue => &crate::schema::KEY_VALUE,
            WireKind::Message(nested)
            | WireKind::Level(nested)
            | WireKind::Item(nested)
            | WireKind::Data(nested) => nested,
            WireKind::String => {
                *changed += u64::from(text(&mut request[content]));
                continue;
            }
            _ => continue,
        };
        message(request, content.start, content.end, nested, depth + 1, changed)?;
    }
    Ok(())
}

/// Whether it had to be changed.
fn text(bytes: &mut [u8]) -> bool {
    let (mut from, mut is_changed) = (0, false);
    while let Err(error) = str::from_utf8(&bytes[from..]) {
        let at = from + error.valid_up_to();
        let len = error.error_len().unwrap_or(bytes.len() - at);
        bytes[at..at + len].fill(REPLACEMENT);
        (from, is_changed) = (at + len, true);
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan;

    /// A field of a number below 16 and less than 128 bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let len = u8::try_from(content.len()).expect("is short");
        [&[number << 3 | LEN, len], content].concat()
    }

    /// A log record with this body and an attribute of this key.
    fn record(body: &[u8], key: &[u8]) -> Vec<u8> {
        let attribute = field(6, &[field(1, key), field(2, &field(1, b"v"))].concat());
        field(2, &[field(5, &field(1, body)), attribute].concat())
    }

    fn request(records: &[Vec<u8>]) -> Vec<u8> {
        field(1, &field(2, &records.concat()))
    }

    /// Scenario: Latin-1, a cut character and a lone continuation, in a value and in a key, among
    /// valid records. Guarantee: only these bytes change, the strings are counted, and the request
    /// passes the scan with all its items.
    #[test]
    fn only_what_is_not_utf8_is_replaced() {
        let given = [("caf\u{e9}", "k"), ("ok", "k")]
            .map(|(body, key)| record(body.as_bytes(), key.as_bytes()));
        let mut valid = request(&given);
        let before = valid.clone();
        assert_eq!((repair_strings(Signal::Logs, &mut valid), &valid), (0, &before));
        for (wrong, right) in [
            (&b"caf\xe9 au lait"[..], &b"caf? au lait"[..]),
            (b"\xe2\x82", b"??"),
            (b"\xe2\x82x\xc3\xa4", "??x\u{e4}".as_bytes()),
            (b"\x80\xff", b"??"),
            (b"\xed\xa0\x80", b"???"),
        ] {
            let good = record(b"good", b"k");
            let mut both = request(&[good.clone(), record(wrong, wrong), good.clone()]);
            assert!(scan(Signal::Logs, &both).expect_err("is refused").is_text());
            assert_eq!(repair_strings(Signal::Logs, &mut both), 2);
            assert_eq!(both, request(&[good.clone(), record(right, right), good]));
            assert_eq!(scan(Signal::Logs, &both), Ok(3));
        }
    }

    /// Scenario: a request that is cut, or has a trace id of a wrong length, behind a string that
    /// is not UTF-8. Guarantee: no panic, and what else is wrong stays so.
    #[test]
    fn what_else_is_wrong_stays() {
        let whole = request(&[record(b"\xff", b"k"), record(b"b", b"k")]);
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            repair_strings(Signal::Logs, &mut cut);
            assert_eq!(cut.len(), len);
            let scanned = scan(Signal::Logs, &cut);
            assert!(len == 0 || scanned.is_err_and(|error| !error.is_text()), "{len}");
        }
        let id = field(2, &[field(5, &field(1, b"\xff")), field(9, b"short")].concat());
        let mut request = request(&[id]);
        assert_eq!(repair_strings(Signal::Logs, &mut request), 1);
        assert!(!scan(Signal::Logs, &request).expect_err("is refused").is_text());
    }
}
