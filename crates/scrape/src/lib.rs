//! Scraped pages to OTLP requests: bytes in, bytes out. No I/O, no clock, no configuration.
//!
//! A [`Scraper`] is the memory of one target. The life of a page:
//!
//! 1. *read*: `text` (Prometheus 0.0.4 and OpenMetrics 1.0, on top of `lex`) or `protobuf` cut it
//!    into metadata and samples, without an allocation for each.
//! 2. *recognise*: `series` knows a sample by the raw bytes before its value. A known one costs
//!    little: its labels are neither read, relabelled nor encoded again.
//! 3. *place*: `labels` adds the target's labels and asks for relabelling, `metadata` says which
//!    metric a sample belongs to, `points` keeps the parts of each data point: `native` those of a
//!    native histogram. `collate` makes one sample of a classic histogram of text that is taken as
//!    a native one with custom buckets, `custom` what its parts are.
//! 4. *end*: `scraper` finds the series that are gone, and adds the report on the scrape.
//! 5. *write*: `write` makes the request, with the attributes as `points` has them encoded.
//!
//! The mapping is the Collector's (`prometheusreceiver`), the reading Prometheus' own. Differences:
//!
//! - A failed scrape ends all series, also those that stood before the mistake on the page.
//! - A sample that only shares a name's stem with a metric, as `x_sum` with a gauge `x`, is one of
//!   its own: it neither hides the other one nor gets lost.
//! - A histogram that lost one series of several is not stale, and has no bucket of a wild count.
//! - A native histogram with custom buckets that is gone ends as a histogram, not as an exponential
//!   one. Taken as a classic one too, it is one metric, not two of the same name.
//! - Created timestamps start a point in protobuf, too, and an ended point has no start.

mod collate;
mod custom;
mod error;
mod labels;
mod lex;
mod message;
mod metadata;
mod number;
mod points;
mod protobuf;
mod report;
mod resource;
mod scraper;
mod series;
mod table;
mod target;
mod text;
mod unit;
mod value;
mod write;

pub use error::{Limits, ScrapeError};
pub use labels::{Labels, Relabel};
pub use report::{Extra, Report};
pub use scraper::{Counts, Outcome, Request, Scraper};
pub use target::{Format, Page, Target};
