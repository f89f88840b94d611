//! The live view as text: of a scene and the size of a screen, and of nothing else.

use std::time::Duration;

use super::scene::{Phase, Scene};
use crate::report::{Kpis, Sample};

const MEBIBYTE: f64 = (1 << 20) as f64;
/// Below this many columns or rows, figures share a line.
const ROOMY_COLUMNS: usize = 56;
const ROOMY_ROWS: usize = 14;
const BAR_COLUMNS: usize = 40;
const CURVE_COLUMNS: usize = 60;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Screen {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) has_colours: bool,
    pub(super) has_unicode: bool,
}

#[derive(Clone, Copy)]
enum Ink {
    Plain,
    Bold,
    Faint,
    Bar,
    Fault,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Ink::Plain => "",
            Ink::Bold => "\x1b[1m",
            Ink::Faint => "\x1b[2m",
            Ink::Bar => "\x1b[36m",
            Ink::Fault => "\x1b[31m",
        }
    }
}

/// A line that is never longer than the screen is wide.
struct Line {
    text: String,
    left: usize,
    screen: Screen,
}

impl Line {
    fn new(screen: Screen) -> Line {
        // The last column stays free: some terminals wrap when it is written.
        Line { text: String::new(), left: screen.columns.saturating_sub(1), screen }
    }

    fn add(mut self, ink: Ink, text: &str) -> Line {
        // What others named may hold control characters, which would move the cursor.
        let fits: String = text.chars().filter(|character| !character.is_control()).take(self.left).collect();
        self.left -= fits.chars().count();
        if self.screen.has_colours && !ink.code().is_empty() && !fits.is_empty() {
            self.text += &format!("{}{fits}\x1b[0m", ink.code());
        } else {
            self.text += &fits;
        }
        self
    }
}

/// A full picture, at most as high as the screen less one row, for the cursor.
pub(super) fn frame(scene: &Scene, elapsed: Duration, screen: Screen) -> Vec<String> {
    let is_roomy = screen.columns >= ROOMY_COLUMNS && screen.rows >= ROOMY_ROWS;
    let lines = if is_roomy { roomy(scene, elapsed, screen) } else { compact(scene, elapsed, screen) };
    lines.into_iter().map(|line| line.text).take(screen.rows.saturating_sub(1).max(1)).collect()
}

fn roomy(scene: &Scene, elapsed: Duration, screen: Screen) -> Vec<Line> {
    let line = || Line::new(screen);
    let turn = scene.turns.map_or_else(String::new, |turns| format!("  turn {} of {turns}", scene.turn));
    let mut lines = vec![
        line().add(Ink::Bold, "sluice load-test").add(Ink::Plain, &format!("  {}", scene.title)),
        line().add(Ink::Bold, &scene.label).add(Ink::Faint, &turn).add(Ink::Plain, &format!("  {}", doing(scene))),
        bar(line(), scene, elapsed, BAR_COLUMNS).add(Ink::Plain, &format!("  {}", time(scene, elapsed))),
        line(),
    ];
    let latest = scene.samples.back().cloned().unwrap_or_default();
    for figure in &FIGURES {
        let value = figure.text(&latest);
        let curve = curve(scene, figure.value, screen);
        let label = format!("  {:<9}", figure.name);
        lines.push(line().add(Ink::Faint, &label).add(Ink::Bold, &format!("{value:>12}  ")).add(Ink::Bar, &curve));
    }
    let faults = scene.faults(elapsed);
    if !faults.is_empty() {
        lines.push(line().add(Ink::Fault, &format!("  faults: {}", faults.join("; "))));
    }
    lines
}

fn compact(scene: &Scene, elapsed: Duration, screen: Screen) -> Vec<Line> {
    let line = || Line::new(screen);
    let head = line().add(Ink::Bold, &who(scene));
    let latest = scene.samples.back().cloned().unwrap_or_default();
    let figures = line().add(Ink::Plain, &short_figures(&latest));
    if screen.rows < 4 {
        let mut head = head.add(Ink::Plain, &format!(" {} ", time(scene, elapsed)));
        head = head.add(Ink::Plain, &short_figures(&latest));
        return vec![head];
    }
    let mut lines = vec![head.add(Ink::Plain, &format!("  {}", doing(scene)))];
    lines.push(line().add(Ink::Plain, &time(scene, elapsed)));
    lines.push(figures);
    let faults = scene.faults(elapsed);
    if !faults.is_empty() {
        lines.push(line().add(Ink::Fault, &format!("faults: {}", faults.join("; "))));
    }
    lines
}

/// The subject, and which turn of several it is.
fn who(scene: &Scene) -> String {
    match scene.turns {
        Some(turns) if turns > 1 => format!("{} ({}/{turns})", scene.label, scene.turn),
        _ => scene.label.clone(),
    }
}

/// One line for logs.
pub(super) fn log_line(scene: &Scene, elapsed: Duration) -> String {
    let latest = scene.samples.back().cloned().unwrap_or_default();
    let mut text = format!("{:>4} s  {}: {}", elapsed.as_secs(), who(scene), figures(&latest));
    let faults = scene.faults(elapsed);
    if !faults.is_empty() {
        text += &format!(", faults: {}", faults.join("; "));
    }
    text
}

/// What a turn came to, in one line that stays.
pub(super) fn summary(scene: &Scene, kpis: &Kpis) -> String {
    let sample = Sample {
        received_per_s: kpis.received_per_s,
        exported_per_s: kpis.exported_per_s,
        queue: kpis.queue,
        memory_bytes: kpis.memory_bytes,
        cpu_cores: kpis.cpu_cores,
        latency_p99_ms: kpis.latency_p99_ms,
        ..Sample::default()
    };
    let count = |value: Option<u64>| value.map_or_else(|| "–".to_owned(), |value| value.to_string());
    format!("{}: {}, lost {}, doubled {}", who(scene), figures(&sample), count(kpis.lost), count(kpis.doubled))
}

fn figures(sample: &Sample) -> String {
    let texts = FIGURES.iter().map(|figure| {
        let value = figure.text(sample);
        // A unit of its own tells what it is.
        if matches!(figure.name, "memory" | "CPU") {
            format!("{value} {}", figure.after)
        } else {
            format!("{} {value}", figure.name)
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn short_figures(sample: &Sample) -> String {
    let [received, exported, queue, memory, cpu, _] = FIGURES.each_ref().map(|figure| figure.text(sample));
    format!("in {received}  out {exported}  queue {queue}  {memory}  {cpu} CPU")
}

struct Figure {
    name: &'static str,
    value: fn(&Sample) -> Option<f64>,
    decimals: usize,
    unit: &'static str,
    /// Behind the figure where it stands in a sentence.
    after: &'static str,
}

const FIGURES: [Figure; 6] = [
    Figure { name: "received", value: |sample| sample.received_per_s, decimals: 0, unit: "/s", after: "" },
    Figure { name: "exported", value: |sample| sample.exported_per_s, decimals: 0, unit: "/s", after: "" },
    Figure { name: "queue", value: |sample| sample.queue, decimals: 0, unit: "", after: "" },
    Figure {
        name: "memory",
        value: |sample| sample.memory_bytes.map(|bytes| bytes / MEBIBYTE),
        decimals: 0,
        unit: " MB",
        after: "memory",
    },
    Figure { name: "CPU", value: |sample| sample.cpu_cores, decimals: 2, unit: "", after: "CPU" },
    Figure { name: "p99", value: |sample| sample.latency_p99_ms, decimals: 1, unit: " ms", after: "" },
];

impl Figure {
    fn text(&self, sample: &Sample) -> String {
        let value = (self.value)(sample);
        value.map_or_else(|| "–".to_owned(), |value| format!("{value:.*}{}", self.decimals, self.unit))
    }
}

fn doing(scene: &Scene) -> String {
    match &scene.phase {
        Phase::Starting => "starts".to_owned(),
        Phase::Waiting(for_whom) => format!("waits for {for_whom}"),
        Phase::Load { .. } => "under load".to_owned(),
        Phase::Draining { .. } => "drains: what is on its way may arrive".to_owned(),
    }
}

fn time(scene: &Scene, elapsed: Duration) -> String {
    let Some(lasts) = scene.lasts() else { return clock(elapsed) };
    let left = clock(lasts.saturating_sub(elapsed));
    match (&scene.phase, scene.all_left(elapsed)) {
        (Phase::Draining { .. }, _) => format!("{} of at most {}", clock(elapsed.min(lasts)), clock(lasts)),
        (_, Some(all)) => format!("{left} left, about {} for all turns", clock(all)),
        (_, None) => format!("{left} left of {}", clock(lasts)),
    }
}

/// `0:07`, `12:34`, `1:02:03`.
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().ceil() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

fn bar(line: Line, scene: &Scene, elapsed: Duration, columns: usize) -> Line {
    let share = scene.lasts().map_or(0.0, |lasts| elapsed.as_secs_f64() / lasts.as_secs_f64().max(1e-3));
    let done = ((share.clamp(0.0, 1.0) * columns as f64).round() as usize).min(columns);
    let (full, empty) = if line.screen.has_unicode { ("━", "─") } else { ("=", "-") };
    line.add(Ink::Bar, &full.repeat(done)).add(Ink::Faint, &empty.repeat(columns - done))
}

/// The latest seconds, one a column, between nothing and their highest value. Nothing where characters cannot tell it.
fn curve(scene: &Scene, value: fn(&Sample) -> Option<f64>, screen: Screen) -> String {
    if !screen.has_unicode {
        return String::new();
    }
    let columns = CURVE_COLUMNS.min(screen.columns.saturating_sub(26));
    let skipped = scene.samples.len().saturating_sub(columns);
    let values: Vec<Option<f64>> = scene.samples.iter().skip(skipped).map(value).collect();
    let most = values.iter().copied().flatten().fold(0.0, f64::max);
    let level = |value: &Option<f64>| match value {
        None => ' ',
        Some(value) if most > 0.0 => LEVELS[((value / most * 7.0).round().max(0.0) as usize).min(7)],
        Some(_) => LEVELS[0],
    };
    values.iter().map(level).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
