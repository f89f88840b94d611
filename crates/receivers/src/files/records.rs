//! The part of reading that each receiver of files has of its own.

use bytes::Bytes;
use sluice_otlp::Signal;
use sluice_tail::{FileId, Line};

use super::attributes::Attributes;
use super::operators::Operators;

/// A request is full with this many bytes.
pub(crate) const REQUEST_BYTES: usize = 256 << 10;

/// Makes requests of the lines of files.
pub(crate) trait Records: Send {
    fn signal(&self) -> Signal;

    /// Begins a request of lines of one file, whose records have these attributes.
    fn begin(&mut self, file: FileId, attributes: &Attributes);

    fn push(&mut self, line: Line<'_>);

    /// The request has [`REQUEST_BYTES`] or more.
    fn is_full(&self) -> bool;

    /// Items of the request so far.
    fn items(&self) -> u32;

    /// The file of an item of the last request, and the offset of its line, if that is known.
    fn place_of(&self, item: usize) -> Option<(FileId, u64)>;

    /// Ends the request.
    fn finish(&mut self) -> Bytes;

    /// The engine has taken this request, which may be a part of one that was finished.
    fn note_taken(&self, _request: &Bytes) {}

    /// Operators that change records, if there are some.
    fn operators(&mut self) -> Option<&mut Operators> {
        None
    }
}
