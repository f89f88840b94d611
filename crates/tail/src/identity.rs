//! The marks by which a content is told from others: the inode that holds it, the bytes at its
//! beginning, and the bytes before a place in it.

/// A file of a file system, until it is removed: then another may get the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    pub device: u64,
    pub number: u64,
}

/// Bytes before a place that are compared before reading goes on there.
pub(crate) const LEAD_BYTES: usize = 256;

/// The fingerprint: a content's first bytes. It grows with the content up to the length that its
/// user chose; a content has the fingerprint of each of its beginnings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Head {
    pub len: u32,
    pub hash: u64,
}

impl Head {
    pub(crate) fn of(bytes: &[u8]) -> Head {
        Head { len: bytes.len() as u32, hash: hash(bytes) }
    }

    pub(crate) fn begins(self, bytes: &[u8]) -> bool {
        bytes.get(..self.len as usize).is_some_and(|bytes| hash(bytes) == self.hash)
    }

    /// The heads of every beginning of these bytes, the longest last.
    pub(crate) fn all_of(bytes: &[u8]) -> impl Iterator<Item = Head> {
        let mut state = SEED;
        bytes.iter().enumerate().map(move |(index, byte)| {
            state = step(state, *byte);
            Head { len: index as u32 + 1, hash: state }
        })
    }
}

/// A place in a content at which reading can go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Bytes before it; of the inflated content if the file is compressed.
    pub offset: u64,
    /// Records before it.
    pub records: u64,
    /// Of the bytes before it, at most 256: see `Mark::fits`.
    pub lead: u64,
    /// It is within a record whose rest is left out.
    pub is_within: bool,
}

impl Mark {
    /// The number of bytes before the mark that are compared.
    pub(crate) fn lead_len(self) -> usize {
        self.offset.min(LEAD_BYTES as u64) as usize
    }

    /// Whether these are the bytes before it.
    pub(crate) fn fits(self, lead: &[u8]) -> bool {
        lead.len() == self.lead_len() && (lead.is_empty() || hash(lead) == self.lead)
    }
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;

const fn step(state: u64, byte: u8) -> u64 {
    (state ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

/// FNV-1a: the same in every release, since checkpoints hold it.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(SEED, |state, byte| step(state, *byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_has_the_head_of_each_of_its_beginnings() {
        let heads: Vec<Head> = Head::all_of(b"abc").collect();
        assert_eq!(heads, [&b"a"[..], b"ab", b"abc"].map(Head::of));
        assert!(heads.iter().all(|head| head.begins(b"abcd")));
        assert!(!Head::of(b"abd").begins(b"abcd") && !Head::of(b"abcd").begins(b"abc"));
    }

    #[test]
    fn a_mark_fits_only_behind_the_same_bytes() {
        let mark = Mark { offset: 3, lead: hash(b"abc"), ..Mark::default() };
        assert!(mark.fits(b"abc") && !mark.fits(b"abd") && !mark.fits(b"ab"));
        assert!(Mark::default().fits(b""));
    }
}
