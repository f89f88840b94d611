//! Limits that pipelines set for their own backlogs.

use sluice_config::document::{Document, PipelineBuffer, Placed};
use sluice_config::{Diagnostic, Diagnostics};

use crate::delivery::DeliveryId;

const MIB: u64 = 1 << 20;

/// One of the two options with which a pipeline limits its own backlog.
#[derive(Clone, Copy, Debug)]
pub(super) enum OwnLimit {
    /// `service.pipelines.<id>.buffer.memory.limit_mib`
    Memory,
    /// `service.pipelines.<id>.buffer.disk.limit_mib`
    Disk,
}

impl OwnLimit {
    /// As it is called under `buffer`, of a pipeline and of the whole process.
    fn option(self) -> &'static str {
        match self {
            OwnLimit::Memory => "buffer.memory.limit_mib",
            OwnLimit::Disk => "buffer.disk.limit_mib",
        }
    }

    fn of_pipeline(self, buffer: &PipelineBuffer) -> Option<&Placed<u64>> {
        match self {
            OwnLimit::Memory => buffer.memory_limit_mib.as_ref(),
            OwnLimit::Disk => buffer.disk_limit_mib.as_ref(),
        }
    }

    /// What the delivery's pipeline says, in bytes.
    pub(super) fn bytes(self, document: &Document, id: &DeliveryId) -> Option<u64> {
        let pipeline = document.pipelines.iter().find(|pipeline| pipeline.id == id.pipeline)?;
        self.of_pipeline(&pipeline.buffer).map(|placed| placed.value * MIB)
    }

    /// Warns of limits that are higher than what all backlogs may take together. They need not add up to it.
    pub(super) fn warn_of_more_than(self, pool_bytes: u64, document: &Document, diagnostics: &mut Diagnostics) {
        for pipeline in &document.pipelines {
            let Some(placed) = self.of_pipeline(&pipeline.buffer).filter(|placed| placed.value * MIB > pool_bytes)
            else {
                continue;
            };
            let option = self.option();
            let message = format!(
                "`{option}` of {} is {} MiB, but all backlogs together may take {} MiB: it has no effect",
                pipeline.id,
                placed.value,
                pool_bytes / MIB
            );
            let part = match self {
                OwnLimit::Memory => ", of which about a third is for backlogs",
                OwnLimit::Disk => "",
            };
            let hint = format!("raise `{option}` of the whole{part}");
            diagnostics.push(Diagnostic::warning(placed.span, message).with_hint(hint));
        }
    }
}
