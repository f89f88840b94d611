//! The seam between the chain and one operator.

use std::sync::Arc;
use std::time::Duration;

use crate::record::{Origin, Record};

/// An operator that works on one record at a time: a parser, `move`, `add`.
pub(crate) trait Transform: Send {
    /// Changes the record.
    ///
    /// # Errors
    /// The reason, in a line. The record is as it was, and `on_error` says what becomes of it.
    fn apply(&mut self, record: &mut Record) -> Result<(), String>;
}

/// A record that an operator fails on, as it was, and the reason in a line.
pub(crate) type Refused = Box<(Record, String)>;

/// An operator that keeps records, or decides where they go: `recombine`, `router`, `filter`.
pub(crate) trait Stage: Send {
    /// Takes a record. Records that leave are put into `out`, each with the index of the way that
    /// it takes out of the operator: 0 is `output`.
    ///
    /// # Errors
    /// The record, unchanged, with the reason in a line.
    fn take(&mut self, record: Record, out: &mut Vec<(usize, Record)>) -> Result<(), Refused>;

    /// Lets go what has been held for its time. `now` is a monotonic time since any moment. Called
    /// about every 100 ms, and at the end with [`Duration::MAX`].
    fn flush(&mut self, _now: Duration, _out: &mut Vec<(usize, Record)>) {}

    /// Bytes of the records that it holds, roughly.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Lets go what it has held for longest, whether or not it is complete.
    fn let_go_oldest(&mut self, _out: &mut Vec<(usize, Record)>) {}

    /// The origins of the records that it holds.
    fn held(&self, _origins: &mut Vec<Origin>) {}

    /// Drops the records that it holds of this stream: they will be read again.
    fn forget(&mut self, _stream: u64) {}
}

/// An operator at work.
pub(crate) enum Work {
    Transform(Box<dyn Transform>),
    Stage(Box<dyn Stage>),
}

/// Makes operators of one configuration. None of them knows of the others.
pub(crate) type Build = Arc<dyn Fn() -> Work + Send + Sync>;

pub(crate) fn transform<T: Transform + Clone + Sync + 'static>(made: T) -> Option<Build> {
    Some(Arc::new(move || Work::Transform(Box::new(made.clone()))))
}

pub(crate) fn stage<S: Stage + Clone + Sync + 'static>(made: S) -> Option<Build> {
    Some(Arc::new(move || Work::Stage(Box::new(made.clone()))))
}
