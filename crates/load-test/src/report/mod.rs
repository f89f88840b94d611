//! Records of runs, and the reports made of one or several of them.

mod collect;
mod csv;
#[cfg(test)]
#[path = "tests/fixtures.rs"]
mod fixtures;
mod format;
mod html;
mod k6;
mod limits;
mod markdown;
mod record;
mod table;
mod tables;
mod words;

pub use collect::{load, refuse_to_replace, reports_in, run_files_in, write_all, write_reports};
pub use csv::to_csv;
pub use format::{DASH, MEBIBYTE, Spread, number};
pub(crate) use format::{count, megabytes, whole};
pub use html::to_html;
pub use k6::{K6Counter, K6Figures};
pub use markdown::{to_markdown, to_text};
pub use record::{
    BenchCost, FORMAT, FaultWindow, FoundLimit, Kpis, LimitTry, Machine, PipelineKpis,
    PrometheusReading, Query, RunRecord, Sample, Scenario, SubjectLimits, SubjectRecord, Target,
    Turn, Verdict, Warning,
};
pub use table::Table;
pub use tables::title;
pub use words::{about, load as load_in_words};
