//! Limits that pipelines set for their own backlogs.

use sluice_config::document::{Document, PipelineBuffer, Placed};
use sluice_config::{Diagnostic, Diagnostics};

use super::MIB;
use crate::delivery::DeliveryId;

/// One of the two options with which a pipeline limits its own backlog.
pub(super) struct OwnLimit {
    /// As it is called in a pipeline, and for the whole process.
    option: &'static str,
    of_pipeline: fn(&PipelineBuffer) -> &Option<Placed<u64>>,
    /// What to do where the whole is less.
    hint: &'static str,
}

pub(super) const MEMORY: OwnLimit = OwnLimit {
    option: "buffer.memory.limit_mib",
    of_pipeline: |buffer| &buffer.memory_limit_mib,
    hint: "raise `buffer.memory.limit_mib` of the whole, of which about a third is for backlogs",
};
pub(super) const DISK: OwnLimit = OwnLimit {
    option: "buffer.disk.limit_mib",
    of_pipeline: |buffer| &buffer.disk_limit_mib,
    hint: "raise `buffer.disk.limit_mib` of the whole",
};

impl OwnLimit {
    pub(super) fn bytes(&self, document: &Document, id: &DeliveryId) -> Option<u64> {
        let pipeline = document.pipelines.iter().find(|pipeline| pipeline.id == id.pipeline)?;
        (self.of_pipeline)(&pipeline.buffer).as_ref().map(|placed| placed.value * MIB)
    }

    /// Warns of limits that are higher than what all backlogs may take together. They need not add
    /// up to it.
    pub(super) fn warn_of_more_than(
        &self,
        pool_bytes: u64,
        document: &Document,
        diagnostics: &mut Diagnostics,
    ) {
        for pipeline in &document.pipelines {
            let own = (self.of_pipeline)(&pipeline.buffer).as_ref();
            let Some(own) = own.filter(|own| own.value * MIB > pool_bytes) else { continue };
            let message = format!(
                "`{}` of {} is {} MiB, but all backlogs together may take {} MiB: \
                 it has no effect",
                self.option,
                pipeline.id,
                own.value,
                pool_bytes / MIB
            );
            diagnostics.push(Diagnostic::warning(own.span, message).with_hint(self.hint));
        }
    }
}
