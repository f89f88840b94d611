//! Identities: every generated item is known by its generator and its sequence number, so that a
//! backend can tell lost items from doubled ones.

use std::io::Write as _;
use std::sync::atomic::{AtomicU16, Ordering};

use roaring::RoaringTreemap;

/// Resource attribute that marks a generated request. Its value is the [`Stamp`] of the first item.
pub const REQUEST_ATTRIBUTE: &str = "load_test.request";
/// Attribute of every item whose value is [`ORDINARY_MARK`] or [`POISON_MARK`].
pub const MARK_ATTRIBUTE: &str = "load_test.mark";
pub const ORDINARY_MARK: &str = "ordinary";
pub const POISON_MARK: &str = "poisoned";

/// Begins the identity of an item that is text, a log line: its [`Stamp`] follows.
pub const TEXT_MARK: &str = "load-test-item-";
/// Ends such a text. Without it the item is torn.
pub const TEXT_END: &str = "load-test-end";

/// Begins the identity of an item that is a number, a sample of a scraped target: 16 bits of the
/// generator and 32 bits of the sequence number follow. Such a number is whole, exact in a double,
/// and always of [`SAMPLE_DIGITS`] digits.
const SAMPLE_MARK: u64 = 22 << 48;
pub(crate) const SAMPLE_DIGITS: usize = 16;

/// Sequence numbers take the lower 48 bits of an identity.
const SEQUENCE_BITS: u32 = 48;
/// An item of this "generator" carries its index in the request; the request's attribute says where
/// that begins.
const RELATIVE: u16 = u16::MAX;

/// A generator's number (1 to 65,534, unique in this process) and a 48-bit sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(pub u64);

impl Identity {
    pub fn new(generator: u16, sequence: u64) -> Self {
        debug_assert!(sequence < 1 << SEQUENCE_BITS);
        Identity(u64::from(generator) << SEQUENCE_BITS | sequence)
    }

    pub(crate) fn relative(index: u32) -> Self {
        Identity::new(RELATIVE, u64::from(index))
    }

    pub fn generator(self) -> u16 {
        (self.0 >> SEQUENCE_BITS) as u16
    }

    pub fn sequence(self) -> u64 {
        self.0 & ((1 << SEQUENCE_BITS) - 1)
    }

    /// The value of a sample. The sequence number must be below [`SEQUENCE_LIMIT`].
    pub(crate) fn to_sample(self) -> u64 {
        debug_assert!(self.sequence() < SEQUENCE_LIMIT);
        SAMPLE_MARK | u64::from(self.generator()) << 32 | self.sequence()
    }

    /// `None`: no generator made this value.
    pub(crate) fn from_sample(value: f64) -> Option<Identity> {
        let number = value as u64;
        let is_identity = number >> 48 == SAMPLE_MARK >> 48 && number as f64 == value;
        is_identity.then(|| Identity::new((number >> 32) as u16, number & u64::from(u32::MAX)))
    }

    /// The identity proper of an item whose request begins at `base`.
    pub(crate) fn resolve(self, base: Identity) -> Identity {
        if self.generator() == RELATIVE {
            Identity(base.0.wrapping_add(self.sequence()))
        } else {
            self
        }
    }
}

/// Identity and sending time of an item. As text these are [`Stamp::LEN`] hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub identity: Identity,
    pub sent_unix_ns: u64,
}

impl Stamp {
    pub const LEN: usize = 32;

    pub(crate) fn write(self, mut out: &mut [u8]) {
        write!(out, "{:016x}{:016x}", self.identity.0, self.sent_unix_ns)
            .expect("room for the digits");
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Stamp> {
        let text = str::from_utf8(text).ok()?;
        let is_stamp =
            text.len() == Stamp::LEN && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_stamp)?;
        Some(Stamp { identity: Identity((number >> 64) as u64), sent_unix_ns: number as u64 })
    }
}

/// A generator number that is unique in this process.
pub(crate) fn next_generator() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let generator = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(generator != 0 && generator < RELATIVE, "more than 65,534 generators in one process");
    generator
}

/// A set of sequence numbers below [`SEQUENCE_LIMIT`].
pub type SequenceSet = RoaringTreemap;

/// Bounds a [`SequenceSet`] to 512 MiB.
pub const SEQUENCE_LIMIT: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_keeps_generator_and_sequence() {
        let identity = Identity::new(7, (1 << 48) - 1);
        assert_eq!((identity.generator(), identity.sequence()), (7, (1 << 48) - 1));
        assert_eq!(Identity::relative(5).resolve(Identity::new(3, 100)), Identity::new(3, 105));
        assert_eq!(Identity::new(2, 9).resolve(Identity::new(3, 100)), Identity::new(2, 9));
    }

    #[test]
    fn an_identity_survives_as_the_value_of_a_sample() {
        for (generator, sequence) in [(1, 0), (7, 123_456), (u16::MAX - 1, SEQUENCE_LIMIT - 1)] {
            let identity = Identity::new(generator, sequence);
            let text = identity.to_sample().to_string();
            assert_eq!(text.len(), SAMPLE_DIGITS);
            assert_eq!(Identity::from_sample(text.parse().unwrap()), Some(identity));
            let scientific = format!("{:e}", text.parse::<f64>().unwrap());
            assert_eq!(Identity::from_sample(scientific.parse().unwrap()), Some(identity));
        }
        for strange in [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, 1e18, SAMPLE_MARK as f64 - 1.0] {
            assert_eq!(Identity::from_sample(strange), None, "{strange}");
        }
    }
}
