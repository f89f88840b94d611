//! Where the findings of a source go, and why it has none, which is told once.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_net::client::Secrets;

use crate::group::Group;
use crate::index::Reporter;
use crate::labels::Text;

/// Reasons that are remembered as told.
const TOLD_LIMIT: usize = 1000;

/// Where a source's findings go.
pub(crate) struct Outlet {
    job: Text,
    reporter: Reporter,
    /// The reason of each thing that fails, as it was told.
    pub(super) told: HashMap<String, String>,
}

impl Outlet {
    pub(crate) fn new(job: Text, reporter: Reporter) -> Outlet {
        Outlet { job, reporter, told: HashMap::new() }
    }

    /// The groups are these now.
    pub(super) fn found(&mut self, what: &str, groups: Vec<Arc<Group>>) {
        match self.reporter.replace(groups) {
            Ok(()) => self.works(what),
            Err(reason) => self.failed(what, reason),
        }
    }

    /// Tells a reason unless it was the last one. What was known of `what` before stays.
    pub(super) fn failed(&mut self, what: &str, reason: String) {
        // A peer's names may be in it.
        let reason = Secrets::default().peer_text(&reason);
        if self.told.get(what) != Some(&reason) {
            let (job, source) = (&self.job, what);
            tracing::warn!(%job, %source, %reason, "targets cannot be found: those of before stay");
            if self.told.len() < TOLD_LIMIT || self.told.contains_key(what) {
                self.told.insert(what.to_owned(), reason);
            }
        }
    }

    pub(super) fn works(&mut self, what: &str) {
        if self.told.remove(what).is_some() {
            tracing::info!(job = %self.job, source = %what, "targets are found again");
        }
    }

    /// Forgets what failed, except where `is_there`.
    pub(super) fn forget(&mut self, is_there: impl Fn(&str) -> bool) {
        self.told.retain(|what, _| is_there(what));
    }
}
