//! The options of `sluice reconcile`.

use std::path::PathBuf;

use clap::Args;

use super::filter::{Tag, Time};
use crate::values::number;

#[derive(Debug, Args)]
pub(crate) struct ReconcileArguments {
    /// The summary of the test: of `k6 run --summary-export FILE`, or the data of `handleSummary`
    #[arg(long, value_name = "FILE")]
    pub summary: PathBuf,
    /// An InfluxDB 1.x, as http://localhost:8086
    #[arg(long, value_name = "URL")]
    pub influxdb: String,
    /// Its database
    #[arg(long, default_value = "k6")]
    pub database: String,
    /// Its user
    #[arg(long, value_name = "NAME", requires = "password_env")]
    pub user: Option<String>,
    /// The environment variable with the user's password
    #[arg(long, value_name = "VARIABLE", requires = "user")]
    pub password_env: Option<String>,
    /// Differences up to this many percent count as equal
    #[arg(long, value_name = "PERCENT", default_value = "0",
        value_parser = number(0.0..=100.0, "give 0 to 100 percent"))]
    pub tolerance: f64,
    /// Count points from this time on, as 2026-11-29T14:00:00Z
    #[arg(long, value_name = "TIME")]
    pub from: Option<Time>,
    /// Count points before this time
    #[arg(long, value_name = "TIME")]
    pub to: Option<Time>,
    /// Count points with this tag; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub tag: Vec<Tag>,
    /// Sluice's endpoint of metrics, as http://localhost:8888: says where the difference is
    #[arg(long, value_name = "URL")]
    pub ledger: Option<String>,
    /// Print JSON in place of a table
    #[arg(long)]
    pub json: bool,
}
