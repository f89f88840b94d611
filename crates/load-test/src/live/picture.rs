//! The state of a run and its live view as text, a function of the state and the screen's size.

use std::time::{Duration, Instant};

use console::{StyledObject, style, truncate_str};

use crate::report::{DASH, FaultWindow, Kpis, Sample, count, megabytes};

/// Below this many columns or rows, figures share a line.
const ROOMY: Screen = Screen { rows: 14, columns: 56 };
const BAR_COLUMNS: usize = 40;
const CURVE_COLUMNS: usize = 60;
/// The columns of a figure's name and value.
const FIGURE_COLUMNS: usize = 26;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// A figure's name, value, number of decimals and unit.
type Figure = (&'static str, fn(&Sample) -> Option<f64>, usize, &'static str);

const FIGURES: [Figure; 6] = [
    ("received", |sample| sample.received_per_s, 0, "/s"),
    ("exported", |sample| sample.exported_per_s, 0, "/s"),
    ("queue", |sample| sample.queue, 0, ""),
    ("memory", |sample| megabytes(sample.memory_bytes), 0, " MB"),
    ("CPU", |sample| sample.cpu_cores, 2, ""),
    ("p99", |sample| sample.latency_p99_ms, 1, " ms"),
];

fn text((_, value, decimals, unit): Figure, sample: &Sample) -> String {
    value(sample).map_or_else(|| DASH.to_owned(), |value| format!("{value:.decimals$}{unit}"))
}

/// All lines of the picture. Indicatif leaves out those that the screen has no rows for.
pub(super) fn draw(scene: &Scene, elapsed: Duration, screen: Screen) -> String {
    let is_roomy = screen.columns >= ROOMY.columns && screen.rows >= ROOMY.rows;
    let latest = scene.samples.last().cloned().unwrap_or_default();
    let time = time(scene, elapsed);
    let faults = faults(scene, elapsed).map(painted).map(StyledObject::red);
    let doing = doing(&scene.phase);
    let mut lines = Vec::new();
    if is_roomy {
        let turns = scene.turns.map(|turns| format!("  turn {} of {turns}", scene.turn));
        let lasts = scene.lasts().filter(|lasts| !lasts.is_zero());
        let done = lasts.map_or(0.0, |lasts| elapsed.div_duration_f64(lasts).min(1.0));
        let done = (done * BAR_COLUMNS as f64).round() as usize;
        let (done, left) = ("━".repeat(done), "─".repeat(BAR_COLUMNS - done));
        lines.push(format!("{}  {}", painted("sluice load-test").bold(), scene.title));
        let turns = painted(turns.unwrap_or_default()).dim();
        lines.push(format!("{}{turns}  {doing}", painted(&scene.label).bold()));
        lines.push(format!("{}{}  {time}", painted(done).cyan(), painted(left).dim()));
        lines.push(String::new());
        let columns = CURVE_COLUMNS.min(screen.columns.saturating_sub(FIGURE_COLUMNS));
        lines.extend(FIGURES.map(|figure| {
            let (name, value, ..) = figure;
            let curve = painted(curve(scene, value, columns)).cyan();
            let (name, text) = (painted(name).dim(), painted(text(figure, &latest)).bold());
            format!("  {name:<9}{text:>12}  {curve}")
        }));
        lines.extend(faults.map(|faults| format!("  {faults}")));
    } else {
        lines.push(format!("{}  {doing}", painted(scene.subject()).bold()));
        lines.push(time);
        lines.extend(FIGURES.chunks(2).map(|pair| figures(pair, &latest)));
        lines.extend(faults.map(|faults| faults.to_string()));
    }
    // The last column stays free: some terminals wrap when it is written.
    let columns = screen.columns.saturating_sub(1);
    let lines: Vec<_> = lines.iter().map(|line| truncate_str(line, columns, "")).collect();
    lines.join("\n")
}

pub(super) fn log_line(scene: &Scene, elapsed: Duration) -> String {
    let latest = scene.samples.last().cloned().unwrap_or_default();
    let (seconds, subject) = (elapsed.as_secs(), scene.subject());
    let faults = faults(scene, elapsed).map_or_else(String::new, |faults| format!(", {faults}"));
    format!("{seconds:>4} s  {subject}: {}{faults}", figures(&FIGURES, &latest))
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
    let (figures, lost) = (figures(&FIGURES, &sample), count(kpis.lost));
    format!("{}: {figures}, lost {lost}, doubled {}", scene.subject(), count(kpis.doubled))
}

fn figures(figures: &[Figure], sample: &Sample) -> String {
    let texts = figures.iter().map(|figure| format!("{} {}", figure.0, text(*figure, sample)));
    texts.collect::<Vec<_>>().join(", ")
}

fn faults(scene: &Scene, elapsed: Duration) -> Option<String> {
    let Phase::Load { windows, .. } = &scene.phase else { return None };
    let second = elapsed.as_secs_f64();
    let is_active = |window: &&FaultWindow| {
        window.from_s <= second && window.to_s.is_none_or(|end| second < end)
    };
    let labels = windows.iter().filter(is_active).map(|window| window.label.as_str());
    let labels = labels.collect::<Vec<_>>().join("; ");
    (!labels.is_empty()).then(|| format!("faults: {labels}"))
}

fn painted<T>(text: T) -> StyledObject<T> {
    style(text).for_stderr()
}

fn doing(phase: &Phase) -> String {
    match phase {
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
        (Phase::Draining { .. }, _) => {
            format!("{} of at most {}", clock(elapsed.min(lasts)), clock(lasts))
        }
        (_, Some(all)) => format!("{left} left, about {} for all turns", clock(all)),
        (_, None) => format!("{left} left of {}", clock(lasts)),
    }
}

/// `0:07`, `12:34`, `1:02:03`. Rounded up to whole seconds.
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().ceil() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// The latest seconds, one a column, scaled to their highest value.
fn curve(scene: &Scene, value: fn(&Sample) -> Option<f64>, columns: usize) -> String {
    let skipped = scene.samples.len().saturating_sub(columns);
    let values: Vec<Option<f64>> = scene.samples.iter().skip(skipped).map(value).collect();
    let most = values.iter().flatten().fold(f64::MIN_POSITIVE, |most, &value| most.max(value));
    let level = |value: f64| LEVELS[((value / most * 7.0).round() as usize).min(7)];
    let curve: String = values.into_iter().map(|value| value.map_or(' ', level)).collect();
    curve.trim_end().to_owned()
}

/// Time that a turn takes beside its load, for the estimate of all turns.
const AROUND_A_LOAD: Duration = Duration::from_secs(2);

/// The phase of a turn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    Starting,
    /// The turn waits for this.
    Waiting(String),
    /// The load runs for `lasts`. The windows are in seconds since its start.
    Load {
        lasts: Duration,
        windows: Vec<FaultWindow>,
    },
    Draining {
        within: Duration,
    },
}

/// The run as a whole, and its present turn.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) title: String,
    /// Turns of the whole run, where their number is known.
    pub(super) turns: Option<usize>,
    /// Turns begun so far.
    pub(super) turn: usize,
    /// The subject under load.
    pub(super) label: String,
    pub(super) phase: Phase,
    pub(super) phase_began: Instant,
    /// Time of the latest line of the phase, where there is no picture.
    pub(super) last_line: Instant,
    pub(super) samples: Vec<Sample>,
}

impl Scene {
    pub(super) fn new(title: &str, turns: Option<usize>) -> Scene {
        Scene {
            title: title.to_owned(),
            turns,
            turn: 0,
            label: String::new(),
            phase: Phase::Starting,
            phase_began: Instant::now(),
            last_line: Instant::now(),
            samples: Vec::new(),
        }
    }

    pub(super) fn begin_turn(&mut self, label: &str) {
        self.turn += 1;
        // Names come from files. Control characters in them would move the cursor.
        self.label = label.chars().filter(|character| !character.is_control()).collect();
        self.samples.clear();
        self.begin(Phase::Starting);
    }

    pub(super) fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.phase_began = Instant::now();
        self.last_line = self.phase_began;
    }

    /// The subject under load, and which turn of several it is.
    pub(super) fn subject(&self) -> String {
        match self.turns {
            Some(turns) if turns > 1 => format!("{} ({}/{turns})", self.label, self.turn),
            _ => self.label.clone(),
        }
    }

    /// The longest time that the phase may take, where it is known.
    pub(super) fn lasts(&self) -> Option<Duration> {
        match self.phase {
            Phase::Load { lasts, .. } => Some(lasts),
            Phase::Draining { within } => Some(within),
            Phase::Starting | Phase::Waiting(_) => None,
        }
    }

    /// An estimate for all turns, while a load runs and more turns follow.
    pub(super) fn all_left(&self, elapsed: Duration) -> Option<Duration> {
        let Phase::Load { lasts, .. } = &self.phase else { return None };
        let others = u32::try_from(self.turns?.checked_sub(self.turn)?).ok()?;
        let all = lasts.saturating_sub(elapsed) + (*lasts + AROUND_A_LOAD) * others;
        (others > 0).then_some(all)
    }
}

#[cfg(test)]
mod tests;
