//! Generators that cost less than the systems under test: a request is encoded once, then stamped
//! in place and sent. So is a page for scrapers (`farm/`), and a line of a log file (`log_files/`).
//! `k6/` writes samples as k6 does.

mod client;
mod farm;
pub mod k6;
mod load;
mod log_files;
mod message;
mod report;
pub(crate) mod template;
mod worker;

pub use client::Ending;
pub use farm::{Farm, OpenFarm};
pub use load::{Load, Pace, Protocol, Retry};
pub use log_files::{LogFiles, OpenLogFiles};
pub use report::{LoadReport, RunningLoad};
pub use template::Shape;
