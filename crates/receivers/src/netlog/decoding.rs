//! Decodes a stream of bytes into UTF-8 as they come, so that boundaries are searched in the text
//! and no byte is decoded twice.

use encoding_rs::Decoder;
use sluice_tail::Charset;

/// A byte becomes at most this many.
pub(super) const GROWTH: usize = 3;
/// Beside that, for a character that began before.
pub(super) const REST_BYTES: usize = 16;

pub(super) struct Decoding {
    charset: Charset,
    /// Of an encoding whose characters have several bytes.
    decoder: Option<Decoder>,
}

impl Decoding {
    /// `None`: the bytes are used as they come.
    pub(super) fn of(charset: Charset) -> Option<Decoding> {
        let decoder = match charset {
            Charset::Utf8 | Charset::Utf8Raw | Charset::Nop => return None,
            Charset::Latin1 => None,
            Charset::Other(encoding) => Some(encoding.new_decoder_without_bom_handling()),
        };
        Some(Decoding { charset, decoder })
    }

    /// Appends the text of the bytes. A character whose rest has not come waits for it, unless this
    /// is the end.
    pub(super) fn decode(&mut self, bytes: &[u8], is_end: bool, text: &mut Vec<u8>) {
        let Some(decoder) = &mut self.decoder else {
            text.extend_from_slice(&self.charset.decode(bytes));
            return;
        };
        let before = text.len();
        let most = bytes.len() * GROWTH + REST_BYTES;
        text.reserve_exact(most);
        text.resize(before + most, 0);
        let (_, read, written, _) = decoder.decode_to_utf8(bytes, &mut text[before..], is_end);
        debug_assert_eq!(read, bytes.len(), "there was room");
        text.truncate(before + written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: wherever a stream is cut, its text is that of the whole.
    #[test]
    fn a_stream_is_decoded_as_its_whole_is() {
        for (name, bytes) in [
            ("latin-1", &b"\xe4\x80\n"[..]),
            ("windows-1252", b"\xe4\x80\n"),
            ("utf-16le", b"\xe4\0\x0a\xd8x\0\x3d\xd8\0\xdea"),
            ("utf-16be", b"\0\xe4\xd8\x3d\xde\0"),
            ("big5", b"\xa4\xa4\xa5\xffx\n\x81"),
            ("shift_jis", b"\x93\xfa\x93\nx\xa0"),
            ("gb18030", b"\x81\x30\x81\x30\xd6\xd0\x81x"),
            ("iso-2022-jp", b"ab\x1b$B\x46\x7c\x1b(B\xff"),
        ] {
            let charset = Charset::named(name).expect("is known");
            let whole = charset.decode(bytes);
            for size in 1..=bytes.len() {
                let mut decoding = Decoding::of(charset).expect("is decoded");
                let mut text = Vec::new();
                bytes.chunks(size).for_each(|piece| decoding.decode(piece, false, &mut text));
                decoding.decode(&[], true, &mut text);
                assert_eq!(text, whole.as_ref(), "{name} in pieces of {size}");
            }
        }
        assert!(Decoding::of(Charset::Utf8).is_none());
    }
}
