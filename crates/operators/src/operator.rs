//! The seam between the chain and one operator.

use std::time::Duration;

use crate::record::{Origin, Record};

/// An operator that works on one record at a time: a parser, `move`, `add`.
pub(crate) trait Transform: CloneTransform + Send + Sync {
    /// Changes the record. After an error, whose reason takes a line, the record is as it was, and
    /// `on_error` says what becomes of it.
    fn apply(&mut self, record: &mut Record) -> Result<(), String>;
}

/// A record that an operator fails on, as it was, and the reason in a line.
pub(crate) type Refused = Box<(Record, String)>;

/// An operator that keeps records, or decides where they go: `recombine`, `router`, `filter`.
pub(crate) trait Stage: CloneStage + Send + Sync {
    /// Takes a record. Records that leave are put into `out`, each with the index of the way that
    /// it takes out of the operator: 0 is `output`.
    fn take(&mut self, record: Record, out: &mut Vec<(usize, Record)>) -> Result<(), Refused>;

    /// Lets go what has been held for its time. `now` is a monotonic time since any moment. Called
    /// about every 100 ms, and at the end with [`Duration::MAX`].
    fn flush(&mut self, _now: Duration, _out: &mut Vec<(usize, Record)>) {}

    /// Bytes of one record, beyond which its options let it go. 0: they have no such limit.
    fn longest(&self) -> usize {
        0
    }

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

/// An operator at work. A clone of one that has not begun is another one.
#[derive(Clone)]
pub(crate) enum Work {
    Transform(Box<dyn Transform>),
    Stage(Box<dyn Stage>),
}

/// Clones an operator whose type is not known.
pub(crate) trait CloneTransform {
    fn cloned(&self) -> Box<dyn Transform>;
}

impl<T: Transform + Clone + 'static> CloneTransform for T {
    fn cloned(&self) -> Box<dyn Transform> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Transform> {
    fn clone(&self) -> Box<dyn Transform> {
        (**self).cloned()
    }
}

/// As [`CloneTransform`].
pub(crate) trait CloneStage {
    fn cloned(&self) -> Box<dyn Stage>;
}

impl<S: Stage + Clone + 'static> CloneStage for S {
    fn cloned(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Stage> {
    fn clone(&self) -> Box<dyn Stage> {
        (**self).cloned()
    }
}
