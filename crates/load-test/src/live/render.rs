//! The live view as text, made of a scene and the size of a screen alone.

use std::time::Duration;

use console::{Style, truncate_str};

use super::scene::{Phase, Scene};
use crate::report::{Kpis, Sample};

const MEBIBYTE: f64 = (1 << 20) as f64;
/// Below this many columns or rows, figures share a line.
const ROOMY_COLUMNS: usize = 56;
const ROOMY_ROWS: usize = 14;
const BAR_COLUMNS: usize = 40;
const CURVE_COLUMNS: usize = 60;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The size and the abilities of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Screen {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) has_colours: bool,
    pub(super) has_unicode: bool,
}

impl Screen {
    /// A line that is never longer than the screen is wide.
    fn line(self, parts: &[(Style, &str)]) -> String {
        let paint = |(style, text): &(Style, &str)| {
            // Names come from elsewhere. Control characters in them would move the cursor.
            let text: String = text.chars().filter(|character| !character.is_control()).collect();
            style.clone().force_styling(self.has_colours).apply_to(text).to_string()
        };
        let line: String = parts.iter().map(paint).collect();
        // The last column stays free: some terminals wrap when it is written.
        truncate_str(&line, self.columns.saturating_sub(1), "").into_owned()
    }
}

fn plain() -> Style {
    Style::new()
}

/// A full picture, at most as high as the screen less one row, for the cursor.
pub(super) fn frame(scene: &Scene, elapsed: Duration, screen: Screen) -> Vec<String> {
    let is_roomy = screen.columns >= ROOMY_COLUMNS && screen.rows >= ROOMY_ROWS;
    let mut lines = if is_roomy { roomy(scene, elapsed, screen) } else { compact(scene, elapsed, screen) };
    lines.truncate(screen.rows.saturating_sub(1).max(1));
    lines
}

fn roomy(scene: &Scene, elapsed: Duration, screen: Screen) -> Vec<String> {
    let turn = scene.turns.map_or_else(String::new, |turns| format!("  turn {} of {turns}", scene.turn));
    let (done, left) = bar(scene, elapsed, screen);
    let mut lines = vec![
        screen.line(&[(plain().bold(), "sluice load-test"), (plain(), &format!("  {}", scene.title))]),
        screen.line(&[
            (plain().bold(), &scene.label),
            (plain().dim(), &turn),
            (plain(), &format!("  {}", doing(scene))),
        ]),
        screen.line(&[
            (plain().cyan(), &done),
            (plain().dim(), &left),
            (plain(), &format!("  {}", time(scene, elapsed))),
        ]),
        String::new(),
    ];
    let latest = scene.samples.back().cloned().unwrap_or_default();
    lines.extend(FIGURES.iter().map(|figure| {
        let (label, value) = (format!("  {:<9}", figure.name), format!("{:>12}  ", figure.text(&latest)));
        let curve = curve(scene, figure.value, screen);
        screen.line(&[(plain().dim(), &label), (plain().bold(), &value), (plain().cyan(), &curve)])
    }));
    let faults = scene.faults(elapsed);
    if !faults.is_empty() {
        lines.push(screen.line(&[(plain().red(), &format!("  faults: {}", faults.join("; ")))]));
    }
    lines
}

fn compact(scene: &Scene, elapsed: Duration, screen: Screen) -> Vec<String> {
    let (subject, time) = (who(scene), time(scene, elapsed));
    let figures = short_figures(&scene.samples.back().cloned().unwrap_or_default());
    if screen.rows < 4 {
        return vec![screen.line(&[(plain().bold(), &subject), (plain(), &format!(" {time} {figures}"))])];
    }
    let mut lines = vec![
        screen.line(&[(plain().bold(), &subject), (plain(), &format!("  {}", doing(scene)))]),
        screen.line(&[(plain(), &time)]),
        screen.line(&[(plain(), &figures)]),
    ];
    let faults = scene.faults(elapsed);
    if !faults.is_empty() {
        lines.push(screen.line(&[(plain().red(), &format!("faults: {}", faults.join("; ")))]));
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

/// The figures of a turn that has ended, in one line.
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
        // These are known by their unit and need no name in front.
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

/// The part of the bar that is done and the part that is left.
fn bar(scene: &Scene, elapsed: Duration, screen: Screen) -> (String, String) {
    let share = scene.lasts().map_or(0.0, |lasts| elapsed.as_secs_f64() / lasts.as_secs_f64().max(1e-3));
    let done = (share.clamp(0.0, 1.0) * BAR_COLUMNS as f64).round() as usize;
    let (full, empty) = if screen.has_unicode { ("━", "─") } else { ("=", "-") };
    (full.repeat(done), empty.repeat(BAR_COLUMNS - done))
}

/// The latest seconds, one a column, scaled to their highest value. Empty where the terminal has no characters for it.
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
