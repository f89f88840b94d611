//! Sources: tasks that tell a job's index which groups there are.
//!
//! A source that cannot see its groups keeps those of before, and says once why.

pub(crate) mod fetch;
mod file;
mod http;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::group::Group;
use crate::index::Reporter;
use crate::labels::Text;
use crate::scrape_config::SourceConfig;

/// Reasons that are remembered as told.
const TOLD_LIMIT: usize = 1000;

/// Where a source's findings go.
pub(crate) struct Outlet {
    job: Text,
    reporter: Reporter,
    /// What failed, and why, as it was told.
    told: HashMap<String, String>,
}

impl Outlet {
    pub(crate) fn new(job: Text, reporter: Reporter) -> Outlet {
        Outlet { job, reporter, told: HashMap::new() }
    }

    /// The groups are these now.
    fn found(&mut self, what: &str, groups: Vec<Arc<Group>>) {
        match self.reporter.replace(groups) {
            Ok(()) => self.works(what),
            Err(reason) => self.failed(what, reason),
        }
    }

    /// Tells a reason unless it was the last one. What was known of `what` before stays.
    fn failed(&mut self, what: &str, reason: String) {
        if self.told.get(what) != Some(&reason) {
            let (job, source) = (&self.job, what);
            tracing::warn!(%job, %source, %reason, "targets cannot be found: those of before stay");
            if self.told.len() < TOLD_LIMIT || self.told.contains_key(what) {
                self.told.insert(what.to_owned(), reason);
            }
        }
    }

    fn works(&mut self, what: &str) {
        if self.told.remove(what).is_some() {
            tracing::info!(job = %self.job, source = %what, "targets are found again");
        }
    }

    /// Forgets what failed, except where `is_there`.
    fn forget(&mut self, is_there: impl Fn(&str) -> bool) {
        self.told.retain(|what, _| is_there(what));
    }
}

/// Starts a source. Targets that the configuration names are there at once.
pub(crate) fn start(config: SourceConfig, mut outlet: Outlet, tasks: &mut JoinSet<()>) {
    let handle = match config {
        SourceConfig::Static(groups) => {
            return outlet.found("static_configs", groups.into_iter().map(Arc::new).collect());
        }
        SourceConfig::File(config) => tasks.spawn(file::run(config, outlet)),
        SourceConfig::Http(config) => tasks.spawn(http::run(*config, outlet)),
        SourceConfig::Dns(_) => return,
    };
    drop(handle);
}
