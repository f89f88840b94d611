//! Shows a run while it goes: a picture on a terminal, a line every few seconds elsewhere, nothing with `--quiet`.

mod render;
mod scene;

use std::io::IsTerminal as _;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use parking_lot::Mutex;

pub(crate) use scene::Phase;

use crate::report::{Kpis, Sample};
use render::Screen;
use scene::Scene;

/// Four pictures a second.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// Lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Where a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Picture,
    Lines,
    Nothing,
}

struct State {
    scene: Scene,
    last_line: Option<Instant>,
}

struct Shared {
    mode: Mode,
    state: Arc<Mutex<State>>,
    /// Draws the picture; hidden in the other modes. Never called while the state is locked, which drawing locks.
    picture: ProgressBar,
}

/// The view that is up, for notes from elsewhere.
static CURRENT: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

/// Shows a run on standard error until it is dropped. The terminal is then as it was.
pub(crate) struct LiveView {
    shared: Arc<Shared>,
}

/// Writes to standard error, above the picture where there is one.
pub fn note(text: &str) {
    let current = CURRENT.lock().upgrade();
    match current {
        Some(shared) => shared.note(text),
        None => write(text),
    }
}

/// Gives the terminal back at once, for an end of the process that drops nothing.
pub fn restore() {
    let current = CURRENT.lock().upgrade();
    if let Some(shared) = current {
        shared.restore();
    }
}

impl LiveView {
    /// `title` names the load; `turns` is their number, where that is known.
    pub(crate) fn new(title: &str, turns: Option<usize>, is_quiet: bool) -> LiveView {
        let mode = match (is_quiet, is_drawable()) {
            (true, _) => Mode::Nothing,
            (false, true) => Mode::Picture,
            (false, false) => Mode::Lines,
        };
        let state = Arc::new(Mutex::new(State { scene: Scene::new(title, turns), last_line: None }));
        let target = if mode == Mode::Picture { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let picture = ProgressBar::with_draw_target(None, target).with_style(picture_style(Arc::clone(&state)));
        let shared = Arc::new(Shared { mode, state, picture });
        *CURRENT.lock() = Arc::downgrade(&shared);
        LiveView { shared }
    }

    pub(crate) fn begin_turn(&self, label: &str) {
        self.shared.state.lock().scene.begin_turn(label);
        if self.shared.mode == Mode::Picture {
            // A terminal that is gone is no reason to end a measurement.
            let _ = Term::stderr().hide_cursor();
            self.shared.picture.enable_steady_tick(DRAW_EVERY);
        }
    }

    pub(crate) fn begin(&self, phase: Phase) {
        let mut state = self.shared.state.lock();
        state.scene.begin(phase);
        state.last_line = Some(Instant::now());
    }

    /// Shows the latest second.
    pub(crate) fn show(&self, sample: &Sample) {
        let mut state = self.shared.state.lock();
        state.scene.add(sample);
        let elapsed = state.scene.phase_began.elapsed();
        // Seconds are not exact: a line that is early by less than this is on time.
        let is_due = state.last_line.is_none_or(|last| last.elapsed() + DRAW_EVERY / 2 >= LINE_EVERY);
        if self.shared.mode == Mode::Lines && is_due {
            state.last_line = Some(Instant::now());
            write(&render::log_line(&state.scene, elapsed));
        }
    }

    /// Leaves a line with the turn's figures.
    pub(crate) fn end_turn(&self, kpis: &Kpis) {
        let text = render::summary(&self.shared.state.lock().scene, kpis);
        self.shared.note(&text);
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        self.shared.restore();
    }
}

impl Shared {
    fn note(&self, text: &str) {
        if self.mode != Mode::Nothing {
            self.picture.suspend(|| write(text));
        }
    }

    fn restore(&self) {
        if self.mode == Mode::Picture {
            self.picture.finish_and_clear();
            let _ = Term::stderr().show_cursor();
        }
    }
}

/// The scene as it is at the moment of drawing, in a template's only part.
fn picture_style(state: Arc<Mutex<State>>) -> ProgressStyle {
    let draw = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
        let state = state.lock();
        if state.scene.turn > 0 {
            let lines = render::frame(&state.scene, state.scene.phase_began.elapsed(), screen());
            // Indicatif hands a string, which takes everything.
            let _ = out.write_str(&lines.join("\n"));
        }
    };
    ProgressStyle::with_template("{picture}").expect("a valid template").with_key("picture", draw)
}

/// Whether standard error is a terminal that can be drawn on.
fn is_drawable() -> bool {
    std::io::stderr().is_terminal() && !console::is_dumb()
}

/// Looked up for every picture: the terminal may have been resized.
fn screen() -> Screen {
    let (rows, columns) = Term::stderr().size();
    Screen {
        columns: usize::from(columns),
        rows: usize::from(rows),
        has_colours: console::colors_enabled_stderr(),
        has_unicode: has_unicode(|name| std::env::var(name).ok()),
    }
}

/// Reads the first of these variables that is set, as the C library does.
fn has_unicode(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

fn write(text: &str) {
    // A terminal that is gone is no reason to end a measurement.
    let _ = Term::stderr().write_line(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_says_whether_there_is_unicode_and_the_stronger_variable_wins() {
        let with = |set: &[(&str, &str)]| {
            has_unicode(|name| set.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(with(&[("LANG", "en_US.UTF-8")]) && with(&[("LC_CTYPE", "C.utf8")]));
        assert!(!with(&[]) && !with(&[("LANG", "C")]) && !with(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
        assert!(with(&[("LC_ALL", ""), ("LANG", "C.UTF-8")]), "empty is as good as unset");
    }
}
