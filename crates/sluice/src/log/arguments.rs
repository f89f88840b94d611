//! The command line of `sluice log`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sluice_otlp::Signal;

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// List signals, segments, deliveries with their backlogs, dropped ranges and dead letters
    #[command(after_help = "Examples:\n  sluice log ls /var/lib/sluice\n  \
        sluice log ls /var/lib/sluice --json\n  \
        sluice log ls /var/lib/sluice --config gateway.yaml   # which deliveries are configured")]
    Ls(LsArguments),
    /// Show the frames in the log
    #[command(
        after_help = "Examples:\n  sluice log show /var/lib/sluice --signal traces --limit 20\n  \
        sluice log show /var/lib/sluice --delivery 'traces -> otlp/backend' --from 4711\n  \
        sluice log show /var/lib/sluice --limit 1 --body | jq ."
    )]
    Show(ListArguments),
    /// List dead letters: data that backends rejected for good, with the reason
    #[command(after_help = "Examples:\n  sluice log dead-letters /var/lib/sluice\n  \
        sluice log dead-letters /var/lib/sluice --delivery 'logs -> otlp/backend' --body")]
    DeadLetters(ListArguments),
    /// Send dead letters to their delivery again, or write dead letters or a backlog to a file
    #[command(
        after_help = "Without --to-file, letters are appended to the log for their delivery, made \
        durable, and only then removed. If the command is interrupted, nothing is lost. If it is \
        repeated, letters that were already appended are delivered twice. No process may be \
        running on the directory.\n\nWith --to-file, the file gets one OTLP JSON object a line, as \
        the Collector's file exporter writes it. Without --remove the command changes \
        nothing in the directory, and a process may be running on it.\n\nExamples:\n  \
        sluice log replay /var/lib/sluice --delivery 'traces -> otlp/backend'\n  \
        sluice log replay /var/lib/sluice --delivery 'traces -> otlp/backend' \
        --to-file letters.jsonl\n  \
        sluice log replay /var/lib/sluice --delivery 'traces -> otlp/backend' \
        --backlog --to-file backlog.jsonl"
    )]
    Replay(ReplayArguments),
    /// Verify every checksum in a directory
    #[command(after_help = "Exits with 1 if anything is damaged.\n\nExample:\n  \
        sluice log verify /var/lib/sluice")]
    Verify {
        /// The directory that the configuration names in `buffer.directory`
        directory: PathBuf,
    },
    /// Put back files that were set aside, if a delivery still needs readable data in them
    #[command(after_help = "Files are set aside, as `….seg.damaged`, when a delivery could not \
        read something in them. Put back, they are read again by the next start. No process may \
        be running on the directory.\n\nExamples:\n  \
        sluice log repair /var/lib/sluice                   # only prints what it would do\n  \
        sluice log repair /var/lib/sluice --yes\n  \
        sluice log repair /var/lib/sluice --give-up --yes   # what cannot be read is lost")]
    Repair(RepairArguments),
    /// Delete the backlog, or the dead letters, of a delivery
    #[command(after_help = "No process may be running on the directory.\n\nExamples:\n  \
        sluice log drop /var/lib/sluice --delivery 'traces -> otlp/old'         \
        # only prints what it would delete\n  \
        sluice log drop /var/lib/sluice --delivery 'traces -> otlp/old' --yes\n  \
        sluice log drop /var/lib/sluice --delivery 'traces -> otlp/old' --dead-letters --yes")]
    Drop(DropArguments),
}

/// Selects a directory.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The directory that the configuration names in `buffer.directory`
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// Only this signal: traces, metrics or logs
    #[arg(long, value_parser = signal)]
    pub signal: Option<Signal>,
}

#[derive(Debug, Args)]
pub(crate) struct LsArguments {
    #[command(flatten)]
    pub target: Target,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Show which deliveries this configuration has; may be given several times
    #[arg(long, value_name = "FILE")]
    pub config: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub target: Target,
    /// Only the backlog, or the dead letters, of this delivery
    #[arg(long, value_name = "NAME")]
    pub delivery: Option<String>,
    /// The first offset, or number of a dead letter, to show
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub from: u64,
    /// The most frames of each signal, or dead letters of each delivery, to show
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub limit: u64,
    #[command(flatten)]
    pub output: Output,
}

/// How frames are printed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Output {
    /// Print only the telemetry, as one OTLP JSON object a line
    #[arg(long, conflicts_with = "json")]
    pub body: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    #[command(flatten)]
    pub target: Target,
    /// The delivery with the dead letters or the backlog
    #[arg(long, value_name = "NAME")]
    pub delivery: String,
    /// Write OTLP JSON lines to this file, which must not exist yet; `-` is the standard output
    #[arg(long, value_name = "FILE")]
    pub to_file: Option<PathBuf>,
    /// Write the delivery's backlog instead of its dead letters. The backlog stays in the log
    #[arg(long, requires = "to_file")]
    pub backlog: bool,
    /// Remove the dead letters once the file is durable
    #[arg(long, requires = "to_file", conflicts_with = "backlog")]
    pub remove: bool,
    /// Only the oldest dead letters or frames, up to this number
    #[arg(long, value_name = "COUNT", default_value_t = u64::MAX, hide_default_value = true)]
    pub limit: u64,
}

#[derive(Debug, Args)]
pub(crate) struct DropArguments {
    #[command(flatten)]
    pub target: Target,
    /// The delivery
    #[arg(long, value_name = "NAME")]
    pub delivery: String,
    /// Delete its dead letters instead of its backlog
    #[arg(long)]
    pub dead_letters: bool,
    /// Delete. Without this flag, the command only prints what it would delete
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArguments {
    #[command(flatten)]
    pub target: Target,
    /// Also delete files that were set aside and have nothing that is waited for and can be read,
    /// and set files aside that the disk refuses to read
    #[arg(long)]
    pub give_up: bool,
    /// Do it. Without this flag, the command only prints what it would do
    #[arg(long)]
    pub yes: bool,
}

fn signal(text: &str) -> Result<Signal, String> {
    Signal::from_name(text).ok_or_else(|| "give traces, metrics or logs".to_owned())
}
