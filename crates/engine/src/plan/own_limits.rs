//! Limits that pipelines set for their own backlogs, and what they leave for the others.

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

    /// What the delivery's pipeline says, in MiB.
    fn placed<'a>(self, document: &'a Document, id: &DeliveryId) -> Option<&'a Placed<u64>> {
        let pipeline = document.pipelines.iter().find(|pipeline| pipeline.id == id.pipeline)?;
        self.of_pipeline(&pipeline.buffer)
    }

    /// What the delivery's pipeline says, in bytes.
    pub(super) fn bytes(self, document: &Document, id: &DeliveryId) -> Option<u64> {
        self.placed(document, id).map(|placed| placed.value * MIB)
    }

    /// What is left of `all_bytes`, which there are for backlogs, for each of `deliveries` whose pipeline says nothing. Best-effort
    /// deliveries are not among them.
    pub(super) fn leaves_each_bytes(
        self,
        document: &Document,
        deliveries: &[&DeliveryId],
        all_bytes: u64,
        diagnostics: &mut Diagnostics,
    ) -> u64 {
        let own: Vec<_> = deliveries.iter().filter_map(|id| self.placed(document, id)).collect();
        let others = (deliveries.len() - own.len()) as u64;
        let spoken_for: u64 = own.iter().map(|placed| placed.value * MIB).sum();
        let share_bytes = all_bytes.saturating_sub(spoken_for) / others.max(1);
        let problem = match own.first() {
            _ if spoken_for > all_bytes => "",
            Some(_) if others > 0 && share_bytes < MIB => ", which leaves nothing for the others",
            _ => return share_bytes,
        };
        let option = self.option();
        let message = format!(
            "the pipelines' own `{option}` come to {} MiB, of {} MiB that there are for backlogs{problem}",
            spoken_for / MIB,
            all_bytes / MIB
        );
        let part = match self {
            OwnLimit::Memory => ", of which a little more than a quarter is for backlogs",
            OwnLimit::Disk => "",
        };
        let hint = format!("raise `{option}` of the whole{part}, or lower theirs");
        diagnostics.push(Diagnostic::error(own.first().map(|placed| placed.span), message).with_hint(hint));
        share_bytes
    }
}
