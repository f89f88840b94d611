//! Prints frames or dead letters: as tables, as JSON lines, or only the telemetry in them.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::process::ExitCode;

use anyhow::Result;
use comfy_table::{Cell, Table};
use serde_json::Value;
use sluice_log::StoredRecord;
use sluice_otlp::Signal;

use super::arguments::Output;
use super::body;
use crate::output::complain;
use crate::text;

/// A long list is printed as several tables, so that memory is bounded.
const ROWS_PER_TABLE: usize = 1000;

/// A frame or a dead letter, in all its forms.
pub(super) struct Entry<'e> {
    pub stored: &'e StoredRecord,
    pub cells: Vec<Cell>,
    pub json: Value,
}

pub(super) struct Kind<'k> {
    pub signal: Signal,
    /// The line above each table.
    pub heading: &'k str,
    /// The columns of a table: see [`text::table`].
    pub titles: &'static [&'static str],
    /// Name of an entry in messages, before its number.
    pub name: String,
    /// The message if there are more entries than the limit.
    pub more: String,
}

pub(super) struct Listing {
    output: BufWriter<StdoutLock<'static>>,
    format: Output,
    /// The most entries of one list.
    limit: u64,
    /// False once a body could not be read.
    is_readable: bool,
}

impl Listing {
    pub(super) fn new(format: Output, limit: u64) -> Self {
        let output = BufWriter::new(io::stdout().lock());
        Listing { output, format, limit, is_readable: true }
    }

    /// Prints the entries of `next`, up to the limit. Returns their number.
    pub(super) fn list<T>(
        &mut self,
        kind: &Kind<'_>,
        mut next: impl FnMut() -> Result<Option<T>>,
        describe: impl Fn(&T) -> Entry<'_>,
    ) -> Result<u64> {
        let mut table = text::table(kind.titles);
        let (mut printed, mut beyond) = (0, None);
        while let Some(entry) = next()? {
            let entry = describe(&entry);
            if printed == self.limit {
                beyond = Some(entry.stored.offset);
                break;
            }
            printed += 1;
            if self.format.body {
                self.print_body(kind, entry.stored)?;
            } else if self.format.json {
                writeln!(self.output, "{}", entry.json)?;
            } else {
                table.add_row(entry.cells);
                if table.row_count() == ROWS_PER_TABLE {
                    self.print_table(kind, &table)?;
                    table = text::table(kind.titles);
                }
            }
        }
        if table.row_count() > 0 {
            self.print_table(kind, &table)?;
        }
        self.output.flush()?;
        if let Some(from) = beyond {
            complain!("sluice: {}: use --from {from}, or a higher --limit", kind.more);
        }
        Ok(printed)
    }

    /// Prints a line where tables are printed, and nothing for JSON.
    pub(super) fn note(&mut self, text: &str) -> io::Result<()> {
        if self.format.body || self.format.json { Ok(()) } else { writeln!(self.output, "{text}") }
    }

    pub(super) fn finish(mut self) -> Result<ExitCode> {
        self.output.flush()?;
        Ok(if self.is_readable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print_body(&mut self, kind: &Kind<'_>, stored: &StoredRecord) -> io::Result<()> {
        let mut line = Vec::new();
        match body::append_line(kind.signal, stored, &mut line) {
            Ok(()) => self.output.write_all(&line),
            Err(error) => {
                complain!("sluice: {} {}: {error:#}", kind.name, stored.offset);
                self.is_readable = false;
                Ok(())
            }
        }
    }

    fn print_table(&mut self, kind: &Kind<'_>, table: &Table) -> io::Result<()> {
        writeln!(self.output, "{}\n{}\n", kind.heading, table.trim_fmt())
    }
}
