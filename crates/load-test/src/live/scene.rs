//! The state of a run that the live view shows.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::report::{FaultWindow, Sample};

/// Samples that are kept for the small curves: more than a terminal is wide.
const HISTORY_LIMIT: usize = 400;
/// Time that a turn takes beside its load, for the estimate of all turns.
const AROUND_A_LOAD: Duration = Duration::from_secs(2);

/// The phase of a turn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    /// The subject starts.
    Starting,
    /// The turn waits for this.
    Waiting(String),
    /// The load runs for `lasts`. The windows are in seconds since its start.
    Load { lasts: Duration, windows: Vec<FaultWindow> },
    /// Items on their way may still arrive.
    Draining { within: Duration },
}

/// The run as a whole, and its present turn.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) title: String,
    /// Of the whole run, where that is known.
    pub(super) turns: Option<usize>,
    /// Begun so far.
    pub(super) turn: usize,
    /// The subject under load.
    pub(super) label: String,
    pub(super) phase: Phase,
    pub(super) phase_began: Instant,
    /// When the latest line of the phase was written, where there is no picture.
    pub(super) last_line: Instant,
    pub(super) samples: VecDeque<Sample>,
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
            samples: VecDeque::new(),
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

    pub(super) fn add(&mut self, sample: &Sample) {
        if self.samples.len() == HISTORY_LIMIT {
            self.samples.pop_front();
        }
        self.samples.push_back(sample.clone());
    }

    /// The subject under load, and which turn of several it is.
    pub(super) fn subject(&self) -> String {
        match self.turns {
            Some(turns) if turns > 1 => format!("{} ({}/{turns})", self.label, self.turn),
            _ => self.label.clone(),
        }
    }

    /// The faults of a moment of the phase.
    pub(super) fn faults(&self, elapsed: Duration) -> Vec<&str> {
        let Phase::Load { windows, .. } = &self.phase else { return Vec::new() };
        let second = elapsed.as_secs_f64();
        let is_active = |window: &&FaultWindow| {
            window.from_s <= second && window.to_s.is_none_or(|end| second < end)
        };
        windows.iter().filter(is_active).map(|window| window.label.as_str()).collect()
    }

    /// How long the phase lasts at most, where that is known.
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
