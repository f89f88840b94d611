//! `sluice docs`: the references of all options and all metrics, from the code that reads and
//! writes them.

use clap::ValueEnum;

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reference {
    /// Every option of every component
    Configuration,
    /// Every metric that `/metrics` exposes
    Metrics,
}

impl Reference {
    pub(crate) fn markdown(self) -> String {
        match self {
            Reference::Configuration => sluice_engine::reference::markdown(),
            Reference::Metrics => sluice_engine::reference::metrics_markdown(),
        }
    }
}
