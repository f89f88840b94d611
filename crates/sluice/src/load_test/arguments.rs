//! What can be said to `sluice load-test`. Each group of options is defined where its subject is.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::agents::AgentArguments;
use super::faults::FaultArguments;
use super::find_limit::LimitArguments;
use super::load::LoadArguments;
use super::output::OutputArguments;
use super::prometheus::PrometheusArguments;
use super::subjects::SubjectArguments;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LoadTestArguments {
    #[command(subcommand)]
    pub(super) command: Option<LoadTestCommand>,
    #[command(flatten)]
    pub(super) load: LoadArguments,
    #[command(flatten)]
    pub(super) agents: AgentArguments,
    #[command(flatten)]
    pub(super) faults: FaultArguments,
    #[command(flatten)]
    pub(super) limit: LimitArguments,
    #[command(flatten)]
    pub(super) subjects: SubjectArguments,
    #[command(flatten)]
    pub(super) prometheus: PrometheusArguments,
    #[command(flatten)]
    pub(super) output: OutputArguments,
    /// Check everything, say what would be done, and do nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum LoadTestCommand {
    /// List the subjects that come with this program
    #[command(after_help = "Example:\n  sluice load-test subjects")]
    Subjects,
    /// Merge the records of several runs into one table
    #[command(after_help = "Examples:\n  sluice load-test report results-1.1 results-1.2\n  \
        sluice load-test report results-1.1 results-1.2 --output both")]
    Report {
        /// Folders that `--output` wrote, or records
        #[arg(required = true, value_name = "DIR")]
        places: Vec<PathBuf>,
        /// Write all reports into this folder
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
}
