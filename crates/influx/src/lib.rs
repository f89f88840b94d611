//! InfluxDB's line protocol to OTLP metrics and back: bytes in, bytes out. No I/O, no clock.
//!
//! Inwards:
//!
//! 1. [`Reader`] takes a body in pieces. `parse` reads a line where it lies in its piece, in one
//!    pass and without an allocation; only a line that is cut is copied. `extent` says where a line
//!    ends that is cut or at fault. A line at fault is noted, and the next one is read.
//! 2. [`Builder`] sorts the fields of lines into metrics, and makes the request. Tags that are
//!    those of the line before are neither read nor encoded again.
//!
//! Outwards, [`write_as`] walks a request once over its wire form, `point` reads the points, and
//! [`LineWriter`] writes lines. [`set_apart`] changes the times of points that InfluxDB would take
//! for one. `measurements` counts points by measurement.
//!
//! `metadata` has the mapping: a line that went in comes out again with its measurement, tags, and
//! names, types and values of fields, and its time to the nanosecond
//! (docs/decisions/048-line-protocol-as-metrics.md).
//!
//! Lines are read as InfluxDB 1.x reads them, and faults are worded as there. Differences:
//!
//! - A line ends at each line break outside of quotes, also at one behind a backslash. A carriage
//!   return before it belongs to it. So does a line that is left out for its length; but quotes
//!   that do not end hide no more than 25 MB.
//! - Text that is not UTF-8 is a fault of its line: OTLP knows no other.
//! - Unsigned integers are always read. A string that is followed by more than a comma, a space or
//!   the line's end is a fault.

mod apart;
mod builder;
mod escape;
mod extent;
mod fault;
mod k6;
mod line;
mod line_writer;
mod measurements;
pub mod metadata;
mod number;
mod outward;
mod parse;
mod point;
mod precision;
mod reader;

pub use apart::{Moved, NoRoom, set_apart};
pub use builder::{Builder, Settings};
pub use fault::{Fault, Faults};
pub use k6::{K6_COUNTERS, K6_METRICS};
pub use line::{Line, Value};
pub use line_writer::{LineWriter, Unwritable};
pub use measurements::{count_points, measurement};
pub use metadata::{DATABASE, RETENTION_POLICY};
pub use outward::{Form, WriteError, Written, write, write_as, write_counted};
pub use precision::Precision;
pub use reader::{Limits, Reader, Verdict};
