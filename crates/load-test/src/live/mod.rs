//! Shows a run: a picture on a terminal, a line every few seconds elsewhere, nothing if `--quiet`.

mod picture;

use std::sync::Arc;
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use parking_lot::Mutex;

pub(crate) use picture::Phase;

use crate::report::{Kpis, Sample};
use picture::Scene;

const DRAW_EVERY: Duration = Duration::from_millis(250);
/// Interval of the lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows a run on standard error until it is dropped. The terminal is then as it was.
pub(crate) struct LiveView {
    is_quiet: bool,
    scene: Arc<Mutex<Scene>>,
    /// Hidden where nothing is drawn. Drawing locks the scene: do not draw while it is locked.
    picture: ProgressBar,
}

/// The picture that is shown now, for notes from other modules, and whether the view is quiet.
static CURRENT: Mutex<Option<(ProgressBar, bool)>> = Mutex::new(None);

/// Writes to standard error, above the picture where there is one.
pub fn note(text: &str) {
    let current = CURRENT.lock().clone();
    match current {
        None => write(text),
        Some((picture, false)) => picture.suspend(|| write(text)),
        Some((_, true)) => {}
    }
}

impl LiveView {
    /// `title` names the load; `turns` is their number, where that is known.
    pub(crate) fn new(title: &str, turns: Option<usize>, is_quiet: bool) -> LiveView {
        let scene = Arc::new(Mutex::new(Scene::new(title, turns)));
        // Indicatif hides the picture by itself where standard error is no terminal.
        let target = match is_quiet || console::is_dumb() {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr(),
        };
        let style = picture_style(Arc::clone(&scene));
        let picture = ProgressBar::with_draw_target(None, target).with_style(style);
        *CURRENT.lock() = Some((picture.clone(), is_quiet));
        LiveView { is_quiet, scene, picture }
    }

    pub(crate) fn begin_turn(&self, label: &str) {
        self.scene.lock().begin_turn(label);
        if !self.picture.is_hidden() {
            // A terminal that is gone is no reason to end a measurement.
            let _ = Term::stderr().hide_cursor();
            self.picture.enable_steady_tick(DRAW_EVERY);
        }
    }

    pub(crate) fn begin(&self, phase: Phase) {
        self.scene.lock().begin(phase);
    }

    /// Shows the latest second.
    pub(crate) fn show(&self, sample: &Sample) {
        let mut scene = self.scene.lock();
        scene.samples.push(sample.clone());
        // Seconds are not exact: a line that is early by less than this is on time.
        let is_due = scene.last_line.elapsed() + DRAW_EVERY / 2 >= LINE_EVERY;
        if is_due && !self.is_quiet && self.picture.is_hidden() {
            scene.last_line = Instant::now();
            write(&picture::log_line(&scene, scene.phase_began.elapsed()));
        }
    }

    /// Leaves a line with the turn's figures.
    pub(crate) fn end_turn(&self, kpis: &Kpis) {
        let text = picture::summary(&self.scene.lock(), kpis);
        note(&text);
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        *CURRENT.lock() = None;
        if !self.picture.is_hidden() {
            self.picture.finish_and_clear();
            let _ = Term::stderr().show_cursor();
        }
    }
}

/// A style whose template has one part: the scene at the moment of drawing.
fn picture_style(scene: Arc<Mutex<Scene>>) -> ProgressStyle {
    let draw = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
        let scene = scene.lock();
        if scene.turn == 0 {
            return;
        }
        // Looked up for every picture: the terminal may have been resized.
        let (rows, columns) = Term::stderr().size();
        let screen = picture::Screen { rows: rows.into(), columns: columns.into() };
        // Indicatif writes to a string, which cannot fail.
        let _ = out.write_str(&picture::draw(&scene, scene.phase_began.elapsed(), screen));
    };
    ProgressStyle::with_template("{picture}").expect("a valid template").with_key("picture", draw)
}

fn write(text: &str) {
    // A terminal that is gone is no reason to end a measurement.
    let _ = Term::stderr().write_line(text);
}
