//! Cuts what comes over a connection into messages: at boundaries, or by the lengths before them
//! (RFC 6587, octet counting).

use std::borrow::Cow;

use sluice_tail::{Boundary, Cut, End, Splitter};

use super::refused::{Reason, Refused};

/// Digits of a length.
const DIGITS_MAX: usize = 10;
/// Bytes of a character, but for its first one.
const CHARACTER_REST: usize = 3;

/// All connections share one: a pattern has memory for each thread, and not for each connection.
#[derive(Clone, Debug)]
pub(crate) enum Cutter {
    /// The bytes are UTF-8, or have no encoding.
    Lines(Splitter),
    /// Each message has its length before it. A longer one is refused.
    Counted { max_bytes: usize },
}

impl Cutter {
    /// Cuts the first part off. `None`: more bytes are needed, [`Cutter::window_bytes`] at most.
    /// `limit_bytes`: of a message, if memory allows for less than the options.
    ///
    /// # Errors
    /// The length is none, or beyond the limit: nothing behind it can be read.
    pub(super) fn next(
        &self,
        bytes: &[u8],
        end: End,
        is_within: bool,
        limit_bytes: usize,
    ) -> Result<Option<Cut>, Refused> {
        match self {
            Cutter::Lines(splitter) => {
                let cut = splitter.next(bytes, end, is_within);
                let is_too_long = || bytes.len() >= limit_bytes;
                Ok(cut.or_else(|| is_too_long().then(|| shortened(splitter, bytes, is_within))))
            }
            Cutter::Counted { max_bytes } => counted(bytes, end, *max_bytes),
        }
    }

    /// The longest message.
    pub(super) fn max_bytes(&self) -> usize {
        let (Cutter::Lines(Splitter { max_bytes, .. }) | Cutter::Counted { max_bytes }) = self;
        *max_bytes
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

    /// Whether a search in vain costs as much as all that is there, and not only a glance.
    pub(super) fn has_pattern(&self) -> bool {
        let Cutter::Lines(Splitter { boundary, .. }) = self else { return false };
        matches!(boundary, Boundary::Start { .. } | Boundary::End { .. })
    }

    /// Whether reading can go on behind a part that was cut short.
    pub(super) fn may_cut_short(&self) -> bool {
        matches!(self, Cutter::Lines(_))
    }

    /// Whether a message of this length was cut because it is too long: it is as long as a message
    /// may be, but for a character.
    pub(super) fn is_cut(&self, len: usize, limit_bytes: usize) -> bool {
        let limit_bytes = limit_bytes.min(self.max_bytes());
        matches!(self, Cutter::Lines(_)) && len + CHARACTER_REST >= limit_bytes
    }

    /// The number of messages in the last bytes of a connection.
    pub(super) fn count(&self, mut bytes: &[u8], mut is_within: bool, limit_bytes: usize) -> u32 {
        let mut count = 0;
        loop {
            match self.next(bytes, End::Last, is_within, limit_bytes) {
                Ok(Some(cut)) => {
                    count += u32::from(cut.text.is_some_and(|(start, stop)| start < stop));
                    is_within = cut.is_within;
                    bytes = &bytes[cut.consumed..];
                }
                Ok(None) => return count,
                // The rest, which cannot be cut, is one.
                Err(_) => return count + 1,
            }
        }
    }
}

/// A message of which no more fits into memory.
fn shortened(splitter: &Splitter, bytes: &[u8], is_within: bool) -> Cut {
    if is_within {
        return Cut { consumed: bytes.len(), text: None, is_within: true };
    }
    let last = bytes.len().saturating_sub(1);
    let begins = |at: &usize| bytes[*at] & 0xc0 != 0x80;
    let start = (last.saturating_sub(CHARACTER_REST)..=last).rev().find(begins);
    // The last character may not be whole.
    let cut = start.filter(|at| *at > 0).unwrap_or(bytes.len());
    Cut { consumed: cut, text: Some((0, cut)), is_within: splitter.truncates }
}

/// The bytes behind the length, if it is theirs.
fn behind_length(message: &[u8]) -> Option<&[u8]> {
    let digits = message.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let behind = message.get(digits..)?.strip_prefix(b" ")?;
    let length = str::from_utf8(&message[..digits]).ok()?.parse::<usize>().ok()?;
    (length == behind.len()).then_some(behind)
}

/// The text of a message with its length before it. The length counts the bytes that came, and the
/// text may have others: then it gets its own.
pub(super) fn with_own_length<'t>(text: Cow<'t, str>, message: &[u8]) -> Cow<'t, str> {
    let Some(behind) = behind_length(message) else { return text };
    let Some((_, decoded)) = text.split_once(' ').filter(|it| it.1.len() != behind.len()) else {
        return text;
    };
    Cow::Owned(format!("{} {decoded}", decoded.len()))
}

fn counted(bytes: &[u8], end: End, max_bytes: usize) -> Result<Option<Cut>, Refused> {
    let cut = |consumed, text| Ok(Some(Cut { consumed, text, is_within: false }));
    // Some senders end their messages with a line feed as well.
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    if blank > 0 {
        return cut(blank, None);
    }
    let all = || if end.flushes() { cut(bytes.len(), Some((0, bytes.len()))) } else { Ok(None) };
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
            match (Cutter::Counted { max_bytes: 20 }).next(rest, end, false, 20) {
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

    #[test]
    fn a_length_counts_the_bytes_that_came() {
        let own = |text: &str, message: &[u8]| with_own_length(text.into(), message).into_owned();
        assert_eq!(own("3 aäb", b"3 a\xe4b"), "4 aäb");
        assert_eq!(own("3 a b", b"3 a b"), "3 a b");
        // It is wrong, and stays so.
        assert_eq!(own("9 aäb", b"9 a\xe4b"), "9 aäb");
        assert_eq!(own("aäb", b"a\xe4b"), "aäb");
    }

    fn lines(boundary: Boundary) -> Cutter {
        Cutter::Lines(Splitter {
            boundary,
            charset: sluice_tail::Charset::Utf8,
            max_bytes: 100,
            truncates: false,
            keeps_leading: false,
            keeps_trailing: false,
        })
    }

    #[test]
    fn memory_may_allow_for_less_than_the_options() {
        let cutter = lines(Boundary::LineFeed);
        let next = |text: &str, is_within| {
            let cut = cutter.next(text.as_bytes(), End::Open, is_within, 6).expect("is cut");
            cut.map(|cut| (cut.consumed, cut.text))
        };
        assert_eq!(next("abcde", false), None);
        assert_eq!(next("abcd€", false), Some((4, Some((0, 4)))));
        assert_eq!(next("abcdefgh", true), Some((8, None)));
        assert_eq!(next("a\nbcdefgh", false), Some((2, Some((0, 1)))));
        assert!(cutter.is_cut(4, 6) && !cutter.is_cut(4, 100));
    }

    #[test]
    fn messages_that_are_left_are_counted() {
        let count = |cutter: &Cutter, bytes: &[u8]| cutter.count(bytes, false, usize::MAX);
        assert_eq!(count(&lines(Boundary::LineFeed), b"a\n\nb\nc"), 3);
        assert_eq!(count(&lines(Boundary::LineFeed), b""), 0);
        assert_eq!(count(&Cutter::Counted { max_bytes: 9 }, b"1 a2 bc3 d"), 3);
        assert_eq!(count(&Cutter::Counted { max_bytes: 9 }, b"1 awrong"), 2);
    }
}
