//! Tells once that a watch fails, and once that it works again.

/// Remembers of one watch that a failure was told.
pub struct Telling {
    what: String,
    reason: Option<String>,
    is_full: bool,
}

impl Telling {
    /// `what`: the objects, as messages name them.
    pub fn new(what: String) -> Telling {
        Telling { what, reason: None, is_full: false }
    }

    /// Nothing is known of changes for now. Tells it unless the reason was the last one.
    pub fn failed(&mut self, reason: String) {
        if self.reason.as_ref() != Some(&reason) {
            let objects = &self.what;
            tracing::warn!(%objects, %reason, "Kubernetes cannot be watched: what was known stays");
            self.reason = Some(reason);
        }
    }

    pub fn works(&mut self) {
        if self.reason.take().is_some() {
            tracing::info!(objects = %self.what, "Kubernetes is watched again");
        }
    }

    /// Some objects are not held, because all of them would exceed the limit.
    pub fn refused(&mut self, refused: usize, limit_bytes: usize) {
        if refused > 0 && !self.is_full {
            let (objects, mib) = (&self.what, limit_bytes >> 20);
            tracing::warn!(%objects, "would take more than {mib} MiB: some are not known");
        }
        self.is_full = refused > 0;
    }
}
