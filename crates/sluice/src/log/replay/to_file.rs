//! Writes dead letters or a backlog as OTLP JSON lines.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use sluice_log::dead_letters::DeadLetterReader;
use sluice_log::segment::Damage;

use super::{letters, progress};
use crate::log::arguments::ReplayArguments;
use crate::log::directory::{Directory, StoredDelivery};
use crate::log::frames::{Frames, next_letter, report_damage};
use crate::log::{body, text};
use crate::output::complain;

/// Stands for the standard output.
const STDOUT: &str = "-";

pub(super) fn run(
    directory: &Directory,
    delivery: &StoredDelivery,
    path: &Path,
    arguments: &ReplayArguments,
) -> Result<ExitCode> {
    if arguments.remove && path == Path::new(STDOUT) {
        bail!("--remove needs a file that can be made durable, not `--to-file -`");
    }
    let mut source = Source::open(directory, delivery, arguments.backlog)?;
    let mut sink = Sink::create(path)?;
    let mut written = Written::default();
    let bar = progress();
    let mut line = Vec::new();
    while written.frames + written.failed < arguments.limit
        && let Some(telemetry) = source.next()?
    {
        line.clear();
        let Telemetry { number, encoding, payload, .. } = &telemetry;
        match body::append_line(delivery.log.signal, *encoding, payload, &mut line) {
            Ok(()) => {
                sink.output.write_all(&line)?;
                written.frames += 1;
                written.items += telemetry.items;
            }
            Err(error) => {
                written.failed += 1;
                complain!("sluice: {}: {} {number}: {error:#}", delivery.name, source.noun());
            }
        }
        written.below = telemetry.number + 1;
        bar.inc(1);
    }
    sink.finish(path)
        .with_context(|| format!("{}: cannot make the file durable", path.display()))?;
    bar.finish_and_clear();
    report_damage(&delivery.log.path, source.damage());
    complain!(
        "sluice: {}: {} ({}) written to {}",
        delivery.name,
        text::counted(written.frames, source.noun()),
        text::counted(written.items, "item"),
        path.display()
    );
    if written.failed > 0 {
        let kept = if arguments.remove { "; no dead letter was removed" } else { "" };
        let failed = text::counted(written.failed, source.noun());
        bail!("{failed} could not be written as JSON{kept}");
    }
    if arguments.remove && written.frames > 0 {
        directory.remove_letters(delivery, Some(written.below))?;
        let removed = text::counted(written.frames, source.noun());
        complain!("sluice: {}: {removed} removed", delivery.name);
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Default)]
struct Written {
    frames: u64,
    items: u64,
    /// Frames that cannot be written as JSON.
    failed: u64,
    /// The number after the last one.
    below: u64,
}

struct Telemetry {
    /// The number of a letter, or the offset of a frame.
    number: u64,
    items: u64,
    encoding: u8,
    payload: Bytes,
}

enum Source {
    Letters(DeadLetterReader),
    /// `None` for a delivery without a cursor: it has no backlog.
    Backlog(Option<Frames>),
}

impl Source {
    fn open(directory: &Directory, delivery: &StoredDelivery, backlog: bool) -> Result<Source> {
        if !backlog {
            return Ok(Source::Letters(letters(directory, delivery)?));
        }
        Ok(Source::Backlog(Frames::backlog(directory.disk.clone(), delivery, 0)?))
    }

    fn next(&mut self) -> Result<Option<Telemetry>> {
        match self {
            Source::Letters(letters) => Ok(next_letter(letters)?.map(|letter| Telemetry {
                number: letter.number,
                items: letter.items,
                encoding: letter.facts.encoding,
                payload: letter.payload,
            })),
            Source::Backlog(None) => Ok(None),
            Source::Backlog(Some(frames)) => Ok(frames.next()?.map(|frame| Telemetry {
                number: frame.header.offset,
                items: frame.header.charge.items,
                encoding: frame.header.facts.encoding,
                payload: frame.body.payload,
            })),
        }
    }

    fn noun(&self) -> &'static str {
        match self {
            Source::Letters(_) => "dead letter",
            Source::Backlog(_) => "frame",
        }
    }

    fn damage(&self) -> Damage {
        match self {
            Source::Letters(letters) => letters.damage(),
            Source::Backlog(frames) => frames.as_ref().map(Frames::damage).unwrap_or_default(),
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
