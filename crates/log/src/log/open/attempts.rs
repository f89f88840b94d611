//! Several files that begin at the same offset: attempts at writing the same frames. The latest one
//! counts, since no frame in the earlier ones was ever durable. Only a file that was copied by hand
//! can be an attempt that was not sealed behind one that was: it is set aside.

use super::Recovery;
use crate::error::FileError;
use crate::format::SegmentName;
use crate::segment::{ScanOptions, SegmentScan};
use crate::types::Record;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Sealed,
    Unsealed,
    /// Nothing was written to it.
    Empty,
    Refused,
}

impl<T: Record> Recovery<'_, T> {
    /// Leaves one file for each offset.
    pub(super) fn take_attempts(&mut self, files: &mut Vec<(SegmentName, u64)>) {
        let mut left = Vec::with_capacity(files.len());
        for attempts in files.chunk_by(|(a, _), (b, _)| a.first_offset == b.first_offset) {
            let [others @ .., latest] = attempts else { continue };
            if others.is_empty() {
                left.push(*latest);
                continue;
            }
            let kinds: Vec<_> = attempts.iter().map(|(name, _)| self.attempt(*name)).collect();
            let sealed = kinds.iter().rposition(|kind| *kind == Attempt::Sealed);
            let counts = sealed.unwrap_or(others.len());
            left.push(attempts[counts]);
            for (index, (&file, kind)) in attempts.iter().zip(kinds).enumerate() {
                match kind {
                    _ if index == counts => {}
                    // It is looked at again by the next start.
                    Attempt::Refused => {}
                    Attempt::Unsealed if index > counts => self.take_aside(file, file.0),
                    _ => self.leftovers.files.push(self.directory.join(file.0.to_string())),
                }
            }
        }
        *files = left;
    }

    fn attempt(&self, name: SegmentName) -> Attempt {
        let path = self.directory.join(name.to_string());
        let open = || SegmentScan::open_path(self.disk, &path, ScanOptions::default());
        match self.patience.ask(open) {
            Ok(scan) if scan.info().footer.is_some_and(|it| it.frames > 0) => Attempt::Sealed,
            Err(FileError::Unfinished { .. }) => Attempt::Empty,
            Err(FileError::Io { .. }) => Attempt::Refused,
            Ok(_) | Err(_) => Attempt::Unsealed,
        }
    }
}
