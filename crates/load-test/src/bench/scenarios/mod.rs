//! Each scenario: its setting, what is special in how it is measured, its columns and its bars.

pub(super) mod backlog;
pub(super) mod backpressure;
pub(super) mod drain;
pub(super) mod durable;
pub(super) mod isolation;
pub(super) mod many_pipelines;
pub(super) mod on_demand;
pub(super) mod overload;
