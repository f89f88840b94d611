//! The table of texts of remote write 2.0.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::ops::Range;

use sluice_otlp::wire::write_varint;

/// `symbols` of a request.
const SYMBOLS_FIELD: u8 = 4 << 3 | 2;

/// Texts by their numbers. The empty text is number 0.
pub(crate) struct Symbols {
    /// The fields of the request, one after the other.
    encoded: Vec<u8>,
    texts: Vec<Range<usize>>,
    /// By a keyed hash: a sender cannot make texts that share one.
    numbers: HashMap<u64, u32, BuildHasherDefault<Identity>>,
    keys: RandomState,
}

/// The keys are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl Symbols {
    pub(crate) fn new() -> Symbols {
        let (numbers, keys) = (HashMap::default(), RandomState::new());
        let mut symbols = Symbols { encoded: Vec::new(), texts: Vec::new(), numbers, keys };
        symbols.number(b"");
        symbols
    }

    /// The number of a text, which is added if it is new.
    pub(crate) fn number(&mut self, text: &[u8]) -> u32 {
        let hash = self.keys.hash_one(text);
        if let Some(number) = self.numbers.get(&hash)
            && self.is(*number, text)
        {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.encoded.push(SYMBOLS_FIELD);
        write_varint(&mut self.encoded, text.len() as u64);
        let start = self.encoded.len();
        self.encoded.extend_from_slice(text);
        self.texts.push(start..self.encoded.len());
        // Of two texts with the same hash, one may stand twice in the table.
        self.numbers.insert(hash, number);
        number
    }

    /// The same, if it is likely to be this number.
    pub(crate) fn number_or(&mut self, likely: u32, text: &[u8]) -> u32 {
        if self.is(likely, text) { likely } else { self.number(text) }
    }

    fn is(&self, number: u32, text: &[u8]) -> bool {
        let range = self.texts.get(number as usize);
        range.is_some_and(|range| &self.encoded[range.clone()] == text)
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.encoded.len()
    }

    pub(crate) fn into_encoded(self) -> Vec<u8> {
        self.encoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_stands_once_and_the_empty_one_first() {
        let mut symbols = Symbols::new();
        assert_eq!((symbols.number(b"a"), symbols.number(b"b")), (1, 2));
        assert_eq!((symbols.number(b"a"), symbols.number(b"")), (1, 0));
        assert_eq!((symbols.number_or(2, b"b"), symbols.number_or(2, b"a")), (2, 1));
        assert_eq!(symbols.number_or(9, b"c"), 3);
        assert_eq!(symbols.into_encoded(), b"\x22\x00\x22\x01a\x22\x01b\x22\x01c");
    }
}
