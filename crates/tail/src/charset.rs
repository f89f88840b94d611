//! Encodings of texts: where their lines end, and their characters as UTF-8.

use std::borrow::Cow;
use std::cmp::Ordering;

use encoding_rs::{Encoding, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE};

/// The encoding of a file's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Charset {
    /// Bytes that are no UTF-8 become U+FFFD: the beginning of a character one, others one each.
    Utf8,
    /// Bytes that are no UTF-8 stay.
    Utf8Raw,
    /// Bytes without meaning: not cut into lines.
    Nop,
    /// ISO 8859-1: each byte is the character of that number.
    Latin1,
    Other(&'static Encoding),
}

impl Charset {
    /// The encoding of this name. Letter case does not matter.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn named(name: &str) -> Result<Charset, String> {
        let lower = name.to_ascii_lowercase();
        Ok(match lower.as_str() {
            "" | "utf-8" | "utf8" | "ascii" | "us-ascii" => Charset::Utf8,
            "utf-8-raw" | "utf8-raw" => Charset::Utf8Raw,
            "nop" => Charset::Nop,
            "iso-8859-1" | "iso8859-1" | "iso_8859-1" | "latin-1" | "latin1" | "l1" => {
                Charset::Latin1
            }
            "utf-16" | "utf16" | "utf-16le" | "utf16le" => Charset::Other(UTF_16LE),
            "utf-16be" | "utf16be" => Charset::Other(UTF_16BE),
            other => match Encoding::for_label_no_replacement(other.as_bytes()) {
                Some(encoding) => Charset::Other(encoding),
                None => return Err("there is no encoding of this name".to_owned()),
            },
        })
    }

    /// Bytes of the smallest unit of a text.
    pub fn unit(self) -> usize {
        if self == Charset::Other(UTF_16LE) || self == Charset::Other(UTF_16BE) { 2 } else { 1 }
    }

    /// The character of ASCII as the first unit of these bytes. No other encoding than UTF-16 has
    /// such bytes within other characters, below `0`.
    pub(crate) fn ascii(self, bytes: &[u8]) -> Option<u8> {
        match (self, bytes) {
            (Charset::Other(encoding), [first, second, ..]) if self.unit() == 2 => {
                let (high, low) =
                    if encoding == UTF_16LE { (second, first) } else { (first, second) };
                (*high == 0).then_some(*low)
            }
            (_, [first, ..]) if self.unit() == 1 => Some(*first),
            _ => None,
        }
    }

    /// The place of the first line feed.
    pub(crate) fn line_feed(self, bytes: &[u8]) -> Option<usize> {
        if self.unit() == 1 {
            return memchr::memchr(b'\n', bytes);
        }
        let found = memchr::memchr_iter(b'\n', bytes).map(|at| at & !1);
        found.into_iter().find(|at| self.ascii(&bytes[*at..]) == Some(b'\n'))
    }

    /// The bytes of the first line without and with its line feed. `None`: it has none.
    pub fn line(self, bytes: &[u8]) -> Option<(usize, usize)> {
        self.line_feed(bytes).map(|stop| (stop, stop + self.unit()))
    }

    /// The longest beginning, of at most `max` bytes, that ends with a whole character.
    pub(crate) fn cut(self, bytes: &[u8], max: usize) -> usize {
        let max = max.min(bytes.len());
        // Whether a beginning ends within a character.
        let is_within = |at: usize| match self {
            // Earlier bytes tell nothing.
            Charset::Utf8 | Charset::Utf8Raw => {
                ends_within(UTF_8, &bytes[at.saturating_sub(4)..at])
            }
            Charset::Other(encoding) if !encoding.is_single_byte() => {
                ends_within(encoding, &bytes[..at])
            }
            _ => false,
        };
        let cut = (max.saturating_sub(3).max(1)..=max).rev().find(|at| !is_within(*at));
        let cut = cut.unwrap_or(max);
        if self == Charset::Other(ISO_2022_JP) { cut_in_ascii(&bytes[..cut]) } else { cut }
    }

    /// The text as UTF-8. `Nop` and `Utf8Raw` are left as they are.
    pub fn decode(self, bytes: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Charset::Nop | Charset::Utf8Raw => Cow::Borrowed(bytes),
            Charset::Utf8 => match String::from_utf8_lossy(bytes) {
                Cow::Borrowed(_) => Cow::Borrowed(bytes),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
            Charset::Latin1 => match encoding_rs::mem::decode_latin1(bytes) {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
            Charset::Other(encoding) => match encoding.decode_without_bom_handling(bytes).0 {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
        }
    }

    /// The number of these bytes of which the first `length` bytes of their text were made.
    pub(crate) fn place(self, bytes: &[u8], text: &[u8], length: usize) -> usize {
        let beginning = || String::from_utf8_lossy(&text[..length]);
        let place = match self {
            // The last character may have begun only, with three bytes of four.
            Charset::Other(_) if self.unit() == 2 && length == text.len() => bytes.len(),
            Charset::Other(_) if self.unit() == 2 => beginning().encode_utf16().count() * 2,
            Charset::Other(encoding) if !encoding.is_single_byte() => {
                stepped(encoding, bytes, length)
            }
            Charset::Latin1 | Charset::Other(_) => beginning().chars().count(),
            _ => length,
        };
        place.min(bytes.len())
    }
}

/// The length of the longest beginning of ISO-2022-JP after which the text is ASCII: a part behind
/// another place would be read without the escape before it. All of it if there is none.
fn cut_in_ascii(bytes: &[u8]) -> usize {
    const TO_ASCII: &[u8] = b"\x1b(B";
    let (mut is_ascii, mut cut) = (true, 0);
    for at in memchr::memchr_iter(TO_ASCII[0], bytes) {
        if is_ascii {
            cut = at;
        }
        is_ascii = bytes[at..].starts_with(TO_ASCII);
        if is_ascii {
            cut = at + TO_ASCII.len();
        }
    }
    if is_ascii || cut == 0 { bytes.len() } else { cut }
}

/// Whether the bytes end within a character.
fn ends_within(encoding: &'static Encoding, mut bytes: &[u8]) -> bool {
    let (mut decoder, mut text) = (encoding.new_decoder_without_bom_handling(), [0; 4096]);
    while !bytes.is_empty() {
        let (_, read, ..) = decoder.decode_to_utf8(bytes, &mut text, false);
        bytes = &bytes[read..];
    }
    // In the place of a part of a character is another one.
    decoder.decode_to_utf8(&[], &mut text, true).2 > 0
}

/// [`Charset::place`] for an encoding whose characters have several lengths, some of which are not
/// those that they are written with: byte by byte.
fn stepped(encoding: &'static Encoding, bytes: &[u8], length: usize) -> usize {
    if length == 0 {
        return 0;
    }
    let (mut decoder, mut made) = (encoding.new_decoder_without_bom_handling(), 0);
    let mut text = [0; 64];
    for (at, byte) in bytes.iter().enumerate() {
        made += decoder.decode_to_utf8(&[*byte], &mut text, false).2;
        match made.cmp(&length) {
            Ordering::Less => {}
            Ordering::Equal => return at + 1,
            // The byte showed that those before it are no character, and is one itself.
            Ordering::Greater => return at,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_have_the_names_of_the_collector() {
        for name in ["utf-8", "UTF-16LE", "ascii", "big5", "gbk", "shift_jis", "windows-1252"] {
            assert!(Charset::named(name).is_ok(), "{name}");
        }
        assert!(Charset::named("utf-9").is_err());
    }

    #[test]
    fn texts_become_utf_8() {
        for (name, bytes, expected) in [
            ("utf-8", &b"a\xff\xfeb\xe2\x82"[..], "a\u{fffd}\u{fffd}b\u{fffd}"),
            ("latin-1", b"\xe4\x80", "ä\u{80}"),
            ("windows-1252", b"\xe4\x80", "ä€"),
            ("utf-16le", b"\xe4\0b\0", "äb"),
            ("utf-16be", b"\0\xe4\0b", "äb"),
            ("big5", b"\xa4\xa4", "中"),
        ] {
            let charset = Charset::named(name).expect("is known");
            assert_eq!(charset.decode(bytes), expected.as_bytes(), "{name}");
        }
        assert_eq!(Charset::Utf8Raw.decode(b"\xff"), &b"\xff"[..]);
    }

    #[test]
    fn line_feeds_of_utf_16_are_whole_units() {
        let little = Charset::Other(UTF_16LE);
        assert_eq!(little.line_feed(b"\x0a\x0aa\0\0\x0a\x0a\0"), Some(6));
        assert_eq!(Charset::Other(UTF_16BE).line_feed(b"\x0a\0\0\x0a"), Some(2));
        assert_eq!(little.line_feed(b"a\0\x0a"), None);
    }

    #[test]
    fn places_in_a_text_are_places_in_its_bytes() {
        for (name, bytes) in [
            ("big5", &b"\xa4\xa4\xa5\xffx\n\x81"[..]),
            ("shift_jis", b"\x93\xfa\x93\nx\xa0"),
            ("gb18030", b"\x81\x30\x81\x30\xd6\xd0\x81x"),
            ("iso-2022-jp", b"ab\x1b$B\x46\x7c\x1b(B\xff"),
            ("windows-1252", b"\xe4\x81x"),
            ("latin-1", b"\xe4\x81x"),
            ("utf-16le", b"\xe4\0\x0a\xd8x\0y"),
            ("utf-8", "aä€".as_bytes()),
        ] {
            let charset = Charset::named(name).expect("is known");
            let text = charset.decode(bytes).into_owned();
            let text = str::from_utf8(&text).expect("is text");
            let places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            let places: Vec<usize> =
                places.map(|at| charset.place(bytes, text.as_bytes(), at)).collect();
            assert!(places.is_sorted() && places[0] == 0, "{name}: {places:?}");
            assert_eq!(places.last(), Some(&bytes.len()), "{name}: {places:?}");
            for (character, place) in text.chars().zip(places).filter(|(it, _)| it.is_ascii()) {
                assert_eq!(charset.ascii(&bytes[place..]), Some(character as u8), "{name}");
            }
        }
    }

    #[test]
    fn no_character_is_cut() {
        let text = "aäb€".as_bytes();
        let cuts: Vec<usize> = (1..=7).map(|max| Charset::Utf8.cut(text, max)).collect();
        assert_eq!(cuts, [1, 1, 3, 4, 4, 4, 7]);
        assert_eq!(Charset::Utf8.cut(&[0x80; 9], 5), 5);
        assert_eq!(Charset::Utf8.cut(&text[..6], 6), 4, "the rest may be to come");
        assert_eq!(Charset::Other(UTF_16LE).cut(&[0; 9], 5), 4);
        assert_eq!(Charset::Latin1.cut(&[0xe4; 9], 5), 5);
    }

    /// Guarantee: parts of a text whose bytes have a meaning that escapes change are what they are
    /// in the whole.
    #[test]
    fn no_part_of_iso_2022_jp_begins_behind_an_escape() {
        let charset = Charset::named("iso-2022-jp").expect("is known");
        let all = b"ab\x1b$B\x46\x7c\x4b\x5c\x1b(Bcd\x1b(J\x5c\x1b$B\x46\x7c\x1b(Befghijklmn";
        for max in 14..=all.len() {
            let (mut rest, mut text) = (&all[..], Vec::new());
            while !rest.is_empty() {
                let cut = charset.cut(rest, max);
                text.extend_from_slice(&charset.decode(&rest[..cut]));
                rest = &rest[cut..];
            }
            assert_eq!(str::from_utf8(&text), Ok("ab日本cd¥日efghijklmn"), "{max}");
        }
        // Longer than a part may be without a place at which one can begin.
        assert_eq!(charset.cut(b"\x1b$B\x46\x7c\x4b\x5c\x46\x7c", 8), 7);
    }
}
