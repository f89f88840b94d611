//! Parts that receivers share which ask targets for their metrics: when a target is asked, memory
//! for its answer, and the reasons for which the engine does not take it.

mod admission;
mod refused;
mod schedule;

pub(crate) use admission::{Admission, Admitted, Unread, admit, body_memory};
pub(crate) use refused::Refused;
pub(crate) use schedule::{Schedule, Tick, millis, now_wall};
