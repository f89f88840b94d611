//! OTLP metrics to Prometheus' forms and back: bytes in, bytes out. No I/O, no clock.
//!
//! Outwards, a request is walked once over its wire form:
//!
//! 1. `walk` goes through resources, scopes and metrics; `names` makes the name of a metric,
//!    `point` reads a point's fields in place.
//! 2. `labels` turns attributes into sorted labels. Points with the same attribute keys share a
//!    layout, so that names are made and sorted once, not for each point.
//! 3. `remote` writes series of remote write 1.0 or 2.0, `exponential` and `custom` the buckets of
//!    native histograms.
//!
//! `exposed` keeps the last values of series for pages that are scraped. `inward` is the way back;
//! `native`, `build` and `kind` are shared with scrapes.
//!
//! The mapping is the Collector's (`prometheusremotewriteexporter`). Differences:
//!
//! - A label whose name has no letter or digit is left out; the Collector drops the point.
//! - A label that a histogram or summary needs (`le`, `quantile`) takes the place of an attribute
//!   of this name; the Collector writes both, and Prometheus refuses the series.
//! - Series stand in the order of the request. One that occurs twice is written twice, as the
//!   specification allows: it is not worth a table of all series.

pub mod build;
mod bytes;
mod custom;
mod exponential;
pub mod exposed;
pub mod inward;
mod kind;
mod labels;
mod layout;
mod names;
pub mod native;
mod point;
mod remote;
mod series;
mod settings;
mod symbols;
mod walk;

#[cfg(test)]
mod tests;

pub use kind::Kind;
pub use names::Strategy;
pub use remote::{Counts, WriteError, Written, write};
pub use settings::{CustomBuckets, Pattern, ResourceLabels, Settings, Version};
