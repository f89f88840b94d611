//! Writes dead letters or a backlog as OTLP JSON lines.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sluice_log::StoredRecord;
use sluice_log::dead_letters::DeadLetterScan;
use sluice_log::segment::Damage;

use super::{letters, progress};
use crate::log::arguments::ReplayArguments;
use crate::log::body;
use crate::log::directory::StoredDelivery;
use crate::log::frames::{Frames, readable, report_damage};
use crate::output::complain;
use crate::text;

const STDOUT: &str = "-";

pub(super) fn run(
    delivery: &StoredDelivery,
    path: &Path,
    arguments: &ReplayArguments,
) -> Result<ExitCode> {
    if arguments.remove && path == Path::new(STDOUT) {
        bail!("--remove needs a file that can be made durable, not `--to-file -`");
    }
    let mut source = match arguments.backlog {
        true => Source::Backlog(Frames::backlog(delivery, 0)?),
        false => Source::Letters(letters(delivery)?),
    };
    let noun = if arguments.backlog { "frame" } else { "dead letter" };
    let mut sink = Sink::create(path)?;
    let (mut frames, mut items, mut failed, mut below) = (0, 0, 0, 0);
    let bar = progress();
    let mut line = Vec::new();
    while frames + failed < arguments.limit
        && let Some(stored) = source.next()?
    {
        line.clear();
        let number = stored.offset;
        match body::append_line(delivery.log.signal, &stored, &mut line) {
            Ok(()) => {
                sink.output.write_all(&line)?;
                frames += 1;
                items += stored.charge.items;
            }
            Err(error) => {
                failed += 1;
                complain!("sluice: {}: {noun} {number}: {error:#}", delivery.name);
            }
        }
        below = number + 1;
        bar.inc(1);
    }
    sink.finish(path)
        .with_context(|| format!("{}: cannot make the file durable", path.display()))?;
    bar.finish_and_clear();
    report_damage(&source.damaged());
    let name = &delivery.name;
    let (written, items) = (text::counted(frames, noun), text::counted(items, "item"));
    complain!("sluice: {name}: {written} ({items}) written to {}", path.display());
    if failed > 0 {
        let kept = if arguments.remove { "; no dead letter was removed" } else { "" };
        let failed = text::counted(failed, noun);
        bail!("{failed} could not be written as JSON{kept}");
    }
    if arguments.remove && frames > 0 {
        delivery.remove_letters(below)?;
        complain!("sluice: {name}: {written} removed");
    }
    Ok(ExitCode::SUCCESS)
}

enum Source {
    Letters(DeadLetterScan),
    Backlog(Frames),
}

impl Source {
    fn next(&mut self) -> Result<Option<StoredRecord>> {
        Ok(match self {
            Source::Letters(letters) => {
                readable(|| letters.next_letter())?.map(|(letter, _)| letter)
            }
            Source::Backlog(frames) => frames.next()?.map(|frame| frame.stored),
        })
    }

    fn damaged(&self) -> Vec<(PathBuf, Damage)> {
        match self {
            Source::Letters(letters) => letters.damaged(),
            Source::Backlog(frames) => frames.chain.damaged(),
        }
    }
}

struct Sink {
    output: Box<dyn Write>,
    /// None: the standard output.
    file: Option<File>,
}

impl Sink {
    /// The file is readable by its owner only, and an existing file is not overwritten.
    fn create(path: &Path) -> Result<Sink> {
        if path == Path::new(STDOUT) {
            let output = Box::new(BufWriter::new(io::stdout().lock()));
            return Ok(Sink { output, file: None });
        }
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => {
                let output = Box::new(BufWriter::with_capacity(1 << 20, file.try_clone()?));
                Ok(Sink { output, file: Some(file) })
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                bail!("{}: the file exists already; give the name of a new file", path.display())
            }
            Err(error) => {
                Err(error).with_context(|| format!("{}: cannot create the file", path.display()))
            }
        }
    }

    /// A file and its name in the directory are durable when this returns.
    fn finish(mut self, path: &Path) -> io::Result<()> {
        self.output.flush()?;
        let Some(file) = self.file else { return Ok(()) };
        file.sync_all()?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
}
