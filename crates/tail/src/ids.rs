//! A map by the ids of contents. Each line looks its file up.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::FileId;

pub(crate) type IdMap<T> = HashMap<FileId, T, BuildHasherDefault<IdHasher>>;

/// Multiplies. This process gives the ids, one after the other: no input can make them collide.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher as _;

    use super::*;

    /// Guarantee: neither the low bits nor the high ones of many ids are those of others, beyond
    /// what their number makes necessary.
    #[test]
    fn ids_are_spread() {
        let build = BuildHasherDefault::<IdHasher>::default();
        let hashes: Vec<u64> = (0..1 << 16).map(|id| build.hash_one(FileId(id))).collect();
        let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xffff).collect();
        assert_eq!(low.len(), 1 << 16);
        for high in 0..128 {
            let count = hashes.iter().filter(|hash| *hash >> 57 == high).count();
            assert!((256..=1024).contains(&count), "{high}: {count}");
        }
    }
}
