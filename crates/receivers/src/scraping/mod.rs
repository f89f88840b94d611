//! Parts that receivers share which ask targets for their metrics: when a target is asked, memory
//! for its answer, the reasons for which the engine does not take it, and counters of both.

mod admission;
mod refused;
mod running;
mod schedule;
mod taken;

pub(crate) use admission::{Admission, Admitted, Unread, admit, body_memory};
pub(crate) use refused::Refused;
pub(crate) use running::Running;
pub(crate) use schedule::{Schedule, Tick, millis, now_ns, now_wall};
pub(crate) use taken::Taken;
