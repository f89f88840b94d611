//! A hash that stays the same over restarts and releases, as the log on disk remembers it.

use sha2::{Digest, Sha256};

/// Takes in what makes up a configuration, piece by piece. Every piece is delimited, so that `ab,
/// c` differs from `a, bc`.
pub(crate) struct Fingerprint(Sha256);

impl Fingerprint {
    pub(crate) fn new(kind: &str) -> Self {
        let mut fingerprint = Fingerprint(Sha256::new());
        fingerprint.bytes(kind.as_bytes());
        fingerprint
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn optional(&mut self, bytes: Option<&[u8]>) {
        self.0.update([u8::from(bytes.is_some())]);
        self.bytes(bytes.unwrap_or_default());
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
