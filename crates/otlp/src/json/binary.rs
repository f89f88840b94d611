//! Bytes as text: hexadecimal ids, base64 for all other `bytes` fields.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::error::JsonReason;

/// Any base64 that protobuf's JSON mapping allows: padded or not, of one alphabet or the other.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Appends the decoded bytes to `out`.
pub(super) fn decode_base64(text: &str, out: &mut Vec<u8>) -> Result<(), JsonReason> {
    let engine =
        if text.bytes().any(|byte| matches!(byte, b'-' | b'_')) { &URL_SAFE } else { &STANDARD };
    engine.decode_vec(text, out).map_err(|_| JsonReason::InvalidBase64)
}

/// Appends the bytes as padded base64 of the standard alphabet, quoted.
pub(super) fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written =
        STANDARD.encode_slice(bytes, &mut out[start..]).expect("four characters for three bytes");
    out.truncate(start + written);
    out.push(b'"');
}

/// Appends the bytes of an id of `len` bytes, or none if the text is empty.
pub(super) fn decode_id(text: &str, len: usize, out: &mut Vec<u8>) -> Result<(), JsonReason> {
    if text.is_empty() {
        return Ok(());
    }
    if text.len() != 2 * len {
        return Err(JsonReason::IdLength { expected: 2 * len, actual: text.len() });
    }
    for pair in text.as_bytes().chunks_exact(2) {
        out.push(hex_digit(pair[0])? << 4 | hex_digit(pair[1])?);
    }
    Ok(())
}

/// Appends the bytes in lower-case hexadecimal, quoted.
pub(super) fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let digits = |&byte: &u8| [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
    out.extend(bytes.iter().flat_map(digits));
    out.push(b'"');
}

fn hex_digit(byte: u8) -> Result<u8, JsonReason> {
    char::from(byte).to_digit(16).map(|digit| digit as u8).ok_or(JsonReason::InvalidHex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allowed_base64_is_read() {
        for text in ["+/8=", "+/8", "-_8=", "-_8"] {
            let mut out = Vec::new();
            assert_eq!(decode_base64(text, &mut out), Ok(()), "{text}");
            assert_eq!(out, [0xfb, 0xff], "{text}");
        }
        for text in ["a", "+/_8", "a b=", "====", "é"] {
            assert_eq!(
                decode_base64(text, &mut Vec::new()),
                Err(JsonReason::InvalidBase64),
                "{text}"
            );
        }
    }

    #[test]
    fn base64_is_written_padded() {
        let written = |bytes: &[u8]| {
            let mut out = Vec::new();
            write_base64(bytes, &mut out);
            String::from_utf8(out).expect("base64 is text")
        };
        assert_eq!(written(b""), r#""""#);
        assert_eq!(written(&[0xfb, 0xff]), r#""+/8=""#);
        assert_eq!(written(b"abc"), r#""YWJj""#);
    }

    #[test]
    fn ids_are_hexadecimal_of_either_case_and_of_their_length() {
        let mut out = Vec::new();
        assert_eq!(decode_id("5B8effF798038103", 8, &mut out), Ok(()));
        assert_eq!(out, [0x5b, 0x8e, 0xff, 0xf7, 0x98, 0x03, 0x81, 0x03]);
        assert_eq!(decode_id("", 8, &mut out), Ok(()));
        assert_eq!(out.len(), 8, "an empty id is none");
        assert_eq!(
            decode_id("5b8e", 8, &mut out),
            Err(JsonReason::IdLength { expected: 16, actual: 4 })
        );
        assert_eq!(decode_id("5b8efff79803810g", 8, &mut out), Err(JsonReason::InvalidHex));
    }
}
