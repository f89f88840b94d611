//! What can be seen while a run goes: a picture on a terminal, a line every few seconds elsewhere, nothing with `--quiet`.

mod render;
mod scene;
mod terminal;

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

pub(crate) use scene::Phase;

use crate::report::{Kpis, Sample};
use scene::Scene;
use terminal::Picture;

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
    picture: Picture,
    last_line: Option<Instant>,
    is_over: bool,
}

struct Shared {
    mode: Mode,
    state: Mutex<State>,
    changed: Condvar,
}

/// The view that is up, for those who have something to say meanwhile.
static CURRENT: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

/// Shows a run on standard error until it is dropped; the terminal is then as it was.
pub(crate) struct LiveView {
    shared: Arc<Shared>,
    drawing: Option<JoinHandle<()>>,
}

/// Says something on standard error, above the picture where there is one.
pub fn note(text: &str) {
    match CURRENT.lock().upgrade() {
        Some(shared) => shared.note(text),
        None => terminal::write(&format!("{text}\n")),
    }
}

/// Gives the terminal back at once: for those who end the process without ceremony.
pub fn restore() {
    if let Some(shared) = CURRENT.lock().upgrade() {
        let mut state = shared.state.lock();
        state.is_over = true;
        state.picture.clear(terminal::screen().columns);
    }
}

impl LiveView {
    /// `title` says what the load is, for all of so many turns, where that is known.
    pub(crate) fn new(title: &str, turns: Option<usize>, is_quiet: bool) -> LiveView {
        let mode = match (is_quiet, terminal::is_drawable()) {
            (true, _) => Mode::Nothing,
            (false, true) => Mode::Picture,
            (false, false) => Mode::Lines,
        };
        let state =
            State { scene: Scene::new(title, turns), picture: Picture::default(), last_line: None, is_over: false };
        let shared = Arc::new(Shared { mode, state: Mutex::new(state), changed: Condvar::new() });
        *CURRENT.lock() = Arc::downgrade(&shared);
        let drawing = (mode == Mode::Picture).then(|| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("live-view".to_owned()).spawn(move || shared.draw_until_over()).ok()
        });
        LiveView { shared, drawing: drawing.flatten() }
    }

    pub(crate) fn begin_turn(&self, label: &str) {
        self.shared.state.lock().scene.begin_turn(label);
    }

    pub(crate) fn begin(&self, phase: Phase) {
        let mut state = self.shared.state.lock();
        state.scene.begin(phase);
        state.last_line = Some(Instant::now());
    }

    /// The second that has just gone.
    pub(crate) fn show(&self, sample: &Sample) {
        let mut state = self.shared.state.lock();
        state.scene.add(sample);
        let elapsed = state.scene.phase_began.elapsed();
        // Seconds are not exact: a tenth early is on time.
        let is_due = state.last_line.is_none_or(|last| last.elapsed() + DRAW_EVERY / 2 >= LINE_EVERY);
        if self.shared.mode == Mode::Lines && is_due {
            state.last_line = Some(Instant::now());
            terminal::write(&format!("{}\n", render::log_line(&state.scene, elapsed)));
        }
    }

    /// What the turn came to.
    pub(crate) fn end_turn(&self, kpis: &Kpis) {
        let text = render::summary(&self.shared.state.lock().scene, kpis);
        self.shared.note(&text);
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
        if let Some(drawing) = self.drawing.take() {
            // An error means that it has panicked, which has been said.
            let _ = drawing.join();
        }
        self.shared.state.lock().picture.clear(terminal::screen().columns);
    }
}

impl Shared {
    fn draw_until_over(&self) {
        let mut state = self.state.lock();
        while !state.is_over {
            if state.scene.turn > 0 {
                state.draw();
            }
            self.changed.wait_for(&mut state, DRAW_EVERY);
        }
    }

    fn note(&self, text: &str) {
        if self.mode == Mode::Nothing {
            return;
        }
        let mut state = self.state.lock();
        state.picture.clear(terminal::screen().columns);
        terminal::write(&format!("{text}\n"));
        if self.mode == Mode::Picture && !state.is_over {
            state.draw();
        }
    }
}

impl State {
    fn draw(&mut self) {
        let screen = terminal::screen();
        let lines = render::frame(&self.scene, self.scene.phase_began.elapsed(), screen);
        self.picture.draw(&lines, screen.columns);
    }
}
