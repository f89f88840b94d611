//! A hash that stays the same over restarts and releases, as the log on disk remembers it.

use sha2::{Digest, Sha256};

/// Takes in a configuration piece by piece, each delimited: `ab, c` differs from `a, bc`.
pub(crate) struct Fingerprint(Sha256);

impl Fingerprint {
    pub(crate) fn new(kind: &str) -> Self {
        let mut fingerprint = Fingerprint(Sha256::new());
        fingerprint.add(kind);
        fingerprint
    }

    pub(crate) fn add(&mut self, piece: impl AsRef<[u8]>) {
        let piece = piece.as_ref();
        self.0.update((piece.len() as u64).to_le_bytes());
        self.0.update(piece);
    }

    pub(crate) fn optional<T: AsRef<[u8]>>(&mut self, piece: Option<T>) {
        self.0.update([u8::from(piece.is_some())]);
        self.add(piece.as_ref().map_or(&[][..], T::as_ref));
    }

    pub(crate) fn list<T>(&mut self, items: &[T], each: impl Fn(&mut Self, &T)) {
        self.0.update((items.len() as u64).to_le_bytes());
        for item in items {
            each(self, item);
        }
    }

    pub(crate) fn finish(self) -> u64 {
        let digest = self.0.finalize();
        digest.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
    }
}
