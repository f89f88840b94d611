//! The command line of `sluice migrate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Translate a telegraf.conf
    #[command(after_help = "Exits with 0 if all of it is translated, with 1 if something is left \
        out, which the head of the file and the standard error name, and with 2 if the file \
        cannot be read.\n\nExamples:\n  \
        sluice migrate telegraf telegraf.conf > sluice.yaml\n  \
        sluice migrate telegraf telegraf.conf --output sluice.yaml")]
    Telegraf(TelegrafArguments),
}

#[derive(Debug, Args)]
pub(crate) struct TelegrafArguments {
    /// Telegraf's configuration
    pub file: PathBuf,
    /// File for the translation; by default it goes to the standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
