//! How far a run is, on standard error.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on a terminal, a line every five seconds elsewhere.
pub(crate) struct ProgressView {
    bar: Option<ProgressBar>,
    duration: Duration,
}

impl ProgressView {
    pub(crate) fn new(duration: Duration) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{elapsed:>4} [{bar:30}] {msg}");
            let bar = ProgressBar::new(duration.as_millis() as u64);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        ProgressView { bar, duration }
    }

    pub(crate) fn show(&self, elapsed: Duration, message: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(elapsed.min(self.duration).as_millis() as u64);
                bar.set_message(message.to_owned());
            }
            None if elapsed.as_secs().is_multiple_of(5) || elapsed >= self.duration => {
                eprintln!("{:>3} s: {message}", elapsed.as_secs());
            }
            None => {}
        }
    }

    pub(crate) fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}
