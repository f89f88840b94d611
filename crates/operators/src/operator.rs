//! The seam between the chain and one operator.

use std::time::Duration;

use sluice_config::{Fields, Span};

use crate::record::{Origin, Record};
use crate::step::Step;

/// An operator that works on one record at a time: a parser, `move`, `add`.
pub(crate) trait Transform: CloneTransform + Send + Sync {
    /// Changes the record. After an error, whose reason takes a line, `on_error` says what becomes
    /// of it. It is then as it was, but for what a parser has parsed before one of its sections
    /// (`timestamp`) failed.
    fn apply(&mut self, record: &mut Record) -> Result<(), String>;

    /// The step of a compiled chain that does the same, where there is one.
    fn step(&self) -> Option<Step> {
        None
    }
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

    /// Bytes of the records that a flush at this time would let go, roughly.
    fn due_bytes(&mut self, _now: Duration) -> usize {
        0
    }

    /// Bytes of one record, beyond which its options let it go. 0: they have no such limit.
    fn longest(&self) -> usize {
        0
    }

    /// Bytes of the records that it holds, roughly.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Whether it holds records of this stream.
    fn holds(&self, _stream: u64) -> bool {
        false
    }

    /// Lets go what it has held for longest, whether or not it is complete.
    fn let_go_oldest(&mut self, _out: &mut Vec<(usize, Record)>) {}

    /// The origins of the records that it holds.
    fn held(&self, _origins: &mut Vec<Origin>) {}

    /// Drops the records that it holds of this stream: they will be read again.
    fn forget(&mut self, _stream: u64) {}

    /// The step of a compiled chain that does the same with a record of a stream of which nothing
    /// is held, where there is one.
    fn step(&self) -> Option<Step> {
        None
    }
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

/// A kind of operators.
pub(crate) struct Kind {
    /// The `type` in the configuration.
    pub(crate) name: &'static str,
    /// Its purpose in sentences, for the documentation.
    pub(crate) summary: &'static str,
    pub(crate) read: Read,
}

/// Reads the options of an operator but those that all operators have (`id`, `type`, `output`,
/// `if`, `on_error`). Nothing if they are wrong, which the diagnostics say.
#[derive(Clone, Copy)]
pub(crate) enum Read {
    Transform(fn(&mut Fields<'_>) -> Option<Box<dyn Transform>>),
    Stage(fn(&mut Fields<'_>) -> Option<Box<dyn Stage>>),
    /// It has an output for each of its routes, and neither `output` nor `if` nor `on_error`.
    Router(fn(&mut Fields<'_>) -> Option<Routes>),
}

/// A router, and its routes in the order of its ways out.
pub(crate) type Routes = (Box<dyn Stage>, Vec<Route>);

/// Names of operators to which records go, and where the file has them.
pub(crate) struct Route {
    pub outputs: Vec<String>,
    pub span: Option<Span>,
}
