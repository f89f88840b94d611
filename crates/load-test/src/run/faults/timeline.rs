//! From faults that begin and end as they like to what each backend is told, and when.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::{FaultKind, FaultSchedule, ScheduledFault};
use crate::backend::{Backend, Delay, Faults, Refuse, Window};
use sluice_net::grpc::Code;

/// Longer than any drain.
const OUTLASTING: Duration = Duration::from_secs(24 * 3600);

impl FaultSchedule {
    /// One after the other: between two moments at which a fault begins or ends, all that there are
    /// then together.
    pub(super) fn timeline(&self, pipeline: usize, load: Duration) -> Vec<Window> {
        let faults: Vec<_> = self.faults.iter().filter(|fault| fault.concerns(pipeline)).collect();
        let mut borders: Vec<_> =
            faults.iter().flat_map(|fault| [fault.from, fault.end(load)]).collect();
        borders.sort();
        borders.dedup();
        let together = borders.windows(2).map(|border| {
            let (from, until) = (border[0], border[1]);
            let is_active =
                |fault: &&&ScheduledFault| fault.from <= from && fault.end(load) >= until;
            let active = faults.iter().filter(is_active);
            let faults = active.fold(Faults::none(), |faults, fault| fault.add_to(faults));
            Window { from, until, faults }
        });
        together.filter(|window| window.faults != Faults::none()).collect()
    }

    /// Begins now: what is wrong from the start is wrong when this returns.
    pub(in crate::run) fn start(
        &self,
        backends: &[Backend],
        load: Duration,
        outlasts: bool,
    ) -> RunningFaults {
        let lasts = if outlasts { load + OUTLASTING } else { load };
        let schedule =
            |(index, one): (usize, &Backend)| one.faults().schedule(self.timeline(index, lasts));
        RunningFaults { tasks: backends.iter().enumerate().map(schedule).collect(), outlasts }
    }
}

/// A schedule on its way. It stops where it is when this is dropped.
pub(in crate::run) struct RunningFaults {
    outlasts: bool,
    tasks: Vec<JoinHandle<()>>,
}

impl RunningFaults {
    /// All backends get well and stay so, unless faults outlast the load. The backends that can get
    /// everything now.
    pub(in crate::run) async fn end(mut self, backends: &[Backend]) -> Vec<&Backend> {
        for task in self.tasks.drain(..) {
            task.abort();
            // Ended or cancelled: in both cases it sets nothing any more.
            let _ = task.await;
        }
        if !self.outlasts {
            backends.iter().for_each(|backend| backend.faults().clear());
        }
        backends.iter().filter(|backend| !backend.faults().current().dead).collect()
    }
}

impl Drop for RunningFaults {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl ScheduledFault {
    fn add_to(&self, mut faults: Faults) -> Faults {
        let share = self.share;
        let refuse = |code, retry_delay| Some(Refuse { share, code, retry_delay });
        match self.kind {
            FaultKind::Refuse => faults.refuse = refuse(Code::Unavailable, None),
            FaultKind::Throttle { retry_after } => {
                faults.refuse = refuse(Code::ResourceExhausted, Some(retry_after));
            }
            FaultKind::Delay { by } => faults.delay = Some(Delay { share, by }),
            FaultKind::Stall => faults.stall_share = share,
            FaultKind::Reset => faults.reset_share = share,
            FaultKind::Outage => faults.dead = true,
        }
        faults
    }
}
