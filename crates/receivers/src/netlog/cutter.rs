//! Cuts what comes over a connection into messages: at boundaries, or by the lengths before them
//! (RFC 6587, octet counting).

use sluice_tail::{Boundary, Cut, End, Splitter};

use super::refused::{Reason, Refused};

/// Digits of a length.
const DIGITS_MAX: usize = 10;

#[derive(Clone, Debug)]
pub(crate) enum Cutter {
    Lines(Splitter),
    /// Each message has its length before it. A longer one is refused.
    Counted {
        max_bytes: usize,
    },
}

impl Cutter {
    /// Cuts the first part off. `None`: more bytes are needed, [`Cutter::window_bytes`] at most.
    ///
    /// # Errors
    /// The length is none, or beyond the limit: nothing behind it can be read.
    pub(super) fn next(
        &self,
        bytes: &[u8],
        end: End,
        is_within: bool,
    ) -> Result<Option<Cut>, Refused> {
        match self {
            Cutter::Lines(splitter) => Ok(splitter.next(bytes, end, is_within)),
            Cutter::Counted { max_bytes } => counted(bytes, end, *max_bytes),
        }
    }

    /// Enough bytes to cut a part off.
    pub(super) fn window_bytes(&self) -> usize {
        match self {
            Cutter::Lines(splitter) => splitter.window_bytes(),
            Cutter::Counted { max_bytes } => max_bytes + DIGITS_MAX + 1,
        }
    }

    /// Nothing more came for a moment: a match at the end of what is there is one.
    pub(super) fn at_pause(&self) -> End {
        match self {
            Cutter::Lines(Splitter { boundary: Boundary::End { .. }, .. }) => End::Here,
            _ => End::Open,
        }
    }

    /// Whether reading can go on behind a part that was cut short.
    pub(super) fn may_cut_short(&self) -> bool {
        matches!(self, Cutter::Lines(_))
    }

    /// The longest message is as long as this, or shorter.
    pub(super) fn limit(&mut self, bytes: usize) {
        let (Cutter::Lines(Splitter { max_bytes, .. }) | Cutter::Counted { max_bytes }) = self;
        *max_bytes = bytes.min(*max_bytes);
    }

    /// Whether a message of this length was cut because it is too long: it is as long as a message
    /// may be, but for a character.
    pub(super) fn is_cut(&self, len: usize) -> bool {
        matches!(self, Cutter::Lines(splitter) if len + 3 >= splitter.max_bytes)
    }
}

fn counted(bytes: &[u8], end: End, max_bytes: usize) -> Result<Option<Cut>, Refused> {
    let cut = |consumed, text| Ok(Some(Cut { consumed, text, is_within: false }));
    // Some senders end their messages with a line feed as well.
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    if blank > 0 {
        return cut(blank, None);
    }
    let all =
        || if end == End::Flush { cut(bytes.len(), Some((0, bytes.len()))) } else { Ok(None) };
    if bytes.is_empty() {
        return Ok(None);
    }
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_length = bytes[0] != b'0' && (1..=DIGITS_MAX).contains(&digits);
    match bytes.get(digits) {
        None if is_length => return all(),
        Some(b' ') if is_length => {}
        _ => return Err(Refused::new(Reason::Invalid, "a message does not begin with its length")),
    }
    let length = bytes[..digits].iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    if length > max_bytes as u64 {
        let message = format!("a message of {length} bytes exceeds the limit of {max_bytes} bytes");
        return Err(Refused::new(Reason::TooLarge, message));
    }
    let stop = digits + 1 + length as usize;
    if stop <= bytes.len() { cut(stop, Some((0, stop))) } else { all() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(bytes: &[u8], end: End) -> (Vec<&[u8]>, Option<Reason>) {
        let (mut rest, mut texts) = (bytes, Vec::new());
        loop {
            match (Cutter::Counted { max_bytes: 20 }).next(rest, end, false) {
                Ok(Some(cut)) => {
                    texts.extend(cut.text.map(|(start, stop)| &rest[start..stop]));
                    rest = &rest[cut.consumed..];
                }
                Ok(None) => return (texts, None),
                Err(refused) => return (texts, Some(refused.reason)),
            }
        }
    }

    /// The cases are those of the Collector, but for what is no length.
    #[test]
    fn messages_are_as_long_as_their_lengths_say() {
        let log = b"17 my log LOGEND 123";
        assert_eq!(texts(log, End::Open), (vec![&log[..]], None));
        let two = [&log[..], log].concat();
        assert_eq!(texts(&two, End::Open), (vec![&log[..], log], None));
        assert_eq!(
            texts(b"2 a\n\n2 b\n\r\n1 c", End::Open),
            (vec![&b"2 a\n"[..], b"2 b\n", b"1 c"], None)
        );
        assert_eq!(texts(&log[..9], End::Open), (vec![], None));
        assert_eq!(texts(&log[..9], End::Flush), (vec![&log[..9]], None));
        assert_eq!(texts(b"17", End::Open), (vec![], None));
        for (wrong, reason) in [
            (&b"no matches in it"[..], Reason::Invalid),
            (b"01 a", Reason::Invalid),
            (b"1\ta", Reason::Invalid),
            (b"12345678901", Reason::Invalid),
            (b"21 a", Reason::TooLarge),
            (b"9999999999 ", Reason::TooLarge),
        ] {
            let all = [&log[..], wrong].concat();
            assert_eq!(texts(&all, End::Open), (vec![&log[..]], Some(reason)));
        }
    }
}
