//! Generators that cost less than what they test: a request is encoded once, then stamped in place
//! and sent. So is a page for scrapers (`farm/`), and a line of a log file (`log_files/`).

mod answer;
mod client;
mod farm;
mod load;
mod log_files;
mod message;
mod packed;
mod report;
mod retry;
mod running;
pub(crate) mod template;
mod worker;

pub use answer::Ending;
pub use farm::{Farm, FarmError, OpenFarm};
pub use load::{Load, LoadError, Pace, Protocol};
pub use log_files::{LogFiles, LogFilesError, OpenLogFiles};
pub use report::{LoadReport, Problem, Progress};
pub use retry::Retry;
pub use running::RunningLoad;
pub use template::Shape;
