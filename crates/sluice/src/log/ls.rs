//! `sluice log ls`: the content of a directory.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Result;
use comfy_table::Cell;
use serde_json::{Value, json};
use sluice_config::size;
use sluice_log::format::CursorState;
use sluice_log::inspect::{DeadLetterOverview, LogOverview};
use sluice_log::{FileError, Holding};

use super::arguments::LsArguments;
use super::directory::Directory;
use super::frames;
use crate::configuration;
use crate::text;

const TITLES: [&str; 8] = [
    "Delivery",
    ">Frames",
    ">Items",
    ">Bytes",
    ">Oldest",
    ">Items dropped",
    ">Dead letters",
    "Configured",
];

pub(super) fn run(arguments: &LsArguments) -> Result<ExitCode> {
    let directory = Directory::open(&arguments.target.directory)?;
    // Its error says what to do if there is no log.
    let wanted = directory.logs(arguments.target.signal)?;
    let configured = configured(&arguments.config)?;
    let mut output = BufWriter::new(io::stdout().lock());
    let mut listed = Vec::new();
    for log in &directory.overview()? {
        if !wanted.iter().any(|folder| folder.path == log.directory) {
            continue;
        }
        let rows = rows(log, configured.as_deref())?;
        if arguments.json {
            listed.push(to_json(log, &rows));
        } else {
            print(log, &rows, &mut output)?;
        }
    }
    if arguments.json {
        let directory = directory.path.display().to_string();
        let all = json!({ "directory": directory, "logs": listed });
        writeln!(output, "{}", serde_json::to_string_pretty(&all).map_err(io::Error::from)?)?;
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Names of the deliveries of a configuration. `None` if none was given.
fn configured(locations: &[String]) -> Result<Option<Vec<String>>> {
    if locations.is_empty() {
        return Ok(None);
    }
    let plan = configuration::load(locations).0?;
    Ok(Some(plan.deliveries.iter().map(|delivery| delivery.id.to_string()).collect()))
}

/// One delivery with its backlog, dropped ranges and dead letters.
#[derive(Default)]
struct Row<'a> {
    cursor: Option<&'a CursorState>,
    held: Holding,
    oldest_unix_ns: Option<u64>,
    dead_letters: Option<&'a DeadLetterOverview>,
    is_configured: Option<bool>,
}

type Rows<'a> = BTreeMap<&'a str, Row<'a>>;

fn rows<'a>(log: &'a LogOverview, configured: Option<&[String]>) -> Result<Rows<'a>> {
    let mut rows = Rows::new();
    for cursor in &log.cursors {
        let Ok(state) = &cursor.state else { continue };
        let oldest_unix_ns = match cursor.held.frames {
            0 => None,
            _ => frames::oldest_unix_ns(&log.directory, state)?,
        };
        let row = Row { cursor: Some(state), held: cursor.held, oldest_unix_ns, ..Row::default() };
        rows.insert(&state.name, row);
    }
    for letters in &log.dead_letters {
        rows.entry(&letters.delivery).or_default().dead_letters = Some(letters);
    }
    for (name, row) in &mut rows {
        row.is_configured = configured.map(|known| known.iter().any(|known| known == name));
    }
    Ok(rows)
}

fn print(log: &LogOverview, rows: &Rows<'_>, output: &mut impl Write) -> io::Result<()> {
    let lost = &log.lost_cursors;
    let is_empty = log.segments.is_empty() && log.set_aside.is_empty();
    if is_empty && rows.is_empty() && lost.is_empty() && log.damaged_list.is_none() {
        return writeln!(output, "{}: nothing on disk\n", log.name);
    }
    let bytes = log.segments.iter().map(|segment| segment.len_bytes).sum();
    let segments = text::counted(log.segments.len() as u64, "segment");
    writeln!(output, "{}: {segments}, {} on disk", log.name, size::rounded(bytes))?;
    let is_compared = rows.values().any(|row| row.is_configured.is_some());
    let columns = TITLES.len() - usize::from(!is_compared);
    let mut table = text::table(&TITLES[..columns]);
    for (name, row) in rows {
        let mut cells = vec![text::cell(name)];
        cells.extend(numbers(row).map(Cell::new));
        if let Some(is_configured) = row.is_configured {
            let is_kept = row.held.frames > 0 || row.dead_letters.is_some();
            let no = if is_kept { "no: kept until `sluice log drop`" } else { "no" };
            cells.push(Cell::new(if is_configured { "yes" } else { no }));
        }
        table.add_row(cells);
    }
    if !rows.is_empty() {
        writeln!(output, "{}", table.trim_fmt())?;
    }
    for (name, row) in rows {
        for range in row.cursor.iter().flat_map(|cursor| &cursor.dropped_ranges) {
            let frames = text::counted(range.dropped.frames, "frame");
            let items = text::counted(range.dropped.items, "item");
            let (first, last) = (range.start, range.end.saturating_sub(1));
            let between = format!("between offsets {first} and {last}");
            let time = text::time(range.dropped_unix_ns);
            writeln!(
                output,
                "  dropped: {name}: {frames} ({items}) {between}, the last at {time}"
            )?;
        }
        let dropped = row.dead_letters.map(|letters| letters.dropped).unwrap_or_default();
        if dropped.frames > 0 {
            let letters = text::counted(dropped.frames, "dead letter");
            let items = text::counted(dropped.items, "item");
            let why = "are not kept: deleted to make space, or larger than the limit of all";
            writeln!(output, "  {name}: {letters} ({items}) {why}")?;
        }
        for (path, damage) in row.dead_letters.iter().flat_map(|letters| &letters.damaged) {
            let letters = text::counted(damage.frames, "damaged dead letter");
            let places = text::counted(damage.regions, "unreadable place");
            writeln!(
                output,
                "  {name}: {letters} and {places} in {}: they are skipped, and the file is kept; \
                 `sluice log verify` shows where",
                path.display()
            )?;
        }
        if row.dead_letters.is_some_and(|letters| letters.is_state_lost) {
            writeln!(
                output,
                "  {name}: the state of its dead letters is gone or cannot be read: letters that \
                 were removed may be back"
            )?;
        }
    }
    for name in lost {
        writeln!(
            output,
            "  lost cursor: it is unknown what its delivery had resolved, so everything on disk is \
             kept for it; replay --delivery '{name}' --backlog --to-file FILE writes it to a file, \
             drop --delivery '{name}' deletes it"
        )?;
    }
    for (name, frames) in &log.missing.by_reader {
        let frames = text::counted(*frames, "frame");
        writeln!(
            output,
            "  missing: {frames} that {name} waits for: no file on disk has them; segments were \
             removed, emptied or cut"
        )?;
    }
    for path in &log.missing.empty_files {
        writeln!(output, "  empty: {}: frames were in it", path.display())?;
    }
    for file in &log.set_aside {
        writeln!(
            output,
            "  set aside: {} ({}): a delivery could not read something in it; `sluice log repair` \
             says what can be done",
            file.path.display(),
            size::rounded(file.len_bytes)
        )?;
    }
    for file in log.dead_letters.iter().flat_map(|letters| &letters.set_aside) {
        writeln!(
            output,
            "  set aside: {} ({}): something in it could not be read when its dead letters were \
             removed; `sluice log drop --dead-letters` deletes it, with all others",
            file.path.display(),
            size::rounded(file.len_bytes)
        )?;
    }
    for problem in problems(log) {
        writeln!(output, "  unreadable: {problem}")?;
    }
    writeln!(output)
}

fn numbers(row: &Row<'_>) -> [String; 6] {
    let dash = || "-".to_owned();
    let dropped = row.cursor.map_or(0, |cursor| cursor.dropped.items);
    let letters = row.dead_letters.map(|letters| letters.held).filter(|held| held.frames > 0);
    [
        text::count(row.held.frames),
        text::count(row.held.items),
        size::rounded(row.held.bytes),
        row.oldest_unix_ns.map_or_else(dash, |oldest| text::duration(text::age(oldest))),
        if dropped > 0 { text::count(dropped) } else { dash() },
        letters.map_or_else(dash, |Holding { frames, items, .. }| {
            format!("{} ({})", text::count(frames), text::counted(items, "item"))
        }),
    ]
}

fn problems(log: &LogOverview) -> Vec<String> {
    let segments = log.segments.iter().filter_map(|segment| segment.info.as_ref().err());
    // They hold no frame. Those that did have a line of their own.
    let segments = segments.filter(|error| !matches!(error, FileError::Unfinished { .. }));
    let cursors = log.cursors.iter().filter_map(|cursor| cursor.state.as_ref().err());
    // Lost cursors have a line of their own.
    let cursors = cursors.filter(|error| !matches!(error, FileError::DamagedCursor { .. }));
    let letters = log.dead_letters.iter().flat_map(|letters| &letters.unreadable);
    let problems = segments.chain(cursors).chain(letters).chain(&log.damaged_list);
    problems.map(ToString::to_string).collect()
}

fn to_json(log: &LogOverview, rows: &Rows<'_>) -> Value {
    let segments = log.segments.iter().map(|segment| {
        let footer = segment.info.as_ref().ok().and_then(|info| info.footer);
        json!({
            "file": segment.path.display().to_string(),
            "bytes": segment.len_bytes,
            "sealed": footer.is_some(),
            "frames": footer.map(|footer| footer.frames),
            "error": segment.info.as_ref().err().map(ToString::to_string),
        })
    });
    let of_letters = log.dead_letters.iter().flat_map(|letters| &letters.set_aside);
    let set_aside = log.set_aside.iter().chain(of_letters);
    json!({
        "signal": log.name,
        "bytes": log.segments.iter().map(|segment| segment.len_bytes).sum::<u64>(),
        "segments": segments.collect::<Vec<_>>(),
        "deliveries": rows.iter().map(|(name, row)| delivery_json(name, row)).collect::<Vec<_>>(),
        "set_aside": set_aside.map(|file| json!({
            "file": file.path.display().to_string(),
            "bytes": file.len_bytes,
        })).collect::<Vec<_>>(),
        "lost_cursors": log.lost_cursors,
        "missing": log.missing.by_reader.iter().map(|(delivery, frames)| json!({
            "delivery": delivery,
            "frames": frames,
        })).collect::<Vec<_>>(),
        "empty": log.missing.empty_files.iter().map(|path| path.display().to_string())
            .collect::<Vec<_>>(),
        "unreadable": problems(log),
    })
}

fn delivery_json(name: &str, row: &Row<'_>) -> Value {
    let dropped_ranges = row.cursor.map_or(&[][..], |cursor| &cursor.dropped_ranges);
    let dropped = row.cursor.map(|cursor| cursor.dropped).unwrap_or_default();
    let letters = row.dead_letters.map(|letters| (letters.held, letters.dropped));
    let (letters, letters_dropped) = letters.unwrap_or_default();
    let damaged = row.dead_letters.iter().flat_map(|letters| &letters.damaged);
    let damaged: u64 = damaged.map(|(_, damage)| damage.frames + damage.regions).sum();
    json!({
        "name": name,
        "waiting": holding_json(row.held),
        "oldest": row.oldest_unix_ns.map(text::time),
        "oldest_age_s": row.oldest_unix_ns.map(|oldest| text::age(oldest).as_secs()),
        "floor": row.cursor.map(|cursor| cursor.floor),
        "cursor_written": row.cursor.map(|cursor| text::time(cursor.written_unix_ns)),
        "dropped": holding_json(dropped),
        "dropped_ranges": dropped_ranges.iter().map(|range| json!({
            "first": range.start,
            "last": range.end.saturating_sub(1),
            "dropped": holding_json(range.dropped),
            "time": text::time(range.dropped_unix_ns),
        })).collect::<Vec<_>>(),
        "dead_letters": holding_json(letters),
        "dead_letters_dropped": holding_json(letters_dropped),
        "dead_letters_damaged": damaged,
        "dead_letters_state_lost": row.dead_letters.is_some_and(|letters| letters.is_state_lost),
        "configured": row.is_configured,
    })
}

fn holding_json(holding: Holding) -> Value {
    json!({ "frames": holding.frames, "items": holding.items, "bytes": holding.bytes })
}
