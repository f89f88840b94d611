//! The state of a running engine as the administrative servers show it.

use sluice_otlp::Signal;

/// The interface between the administrative servers and the engine.
pub(crate) trait Status: Send + Sync + 'static {
    fn metrics(&self) -> String;
    fn health(&self) -> Health;
    fn dead_letters(&self) -> String;
    /// The logs and the backlog of each delivery.
    fn log(&self) -> String;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether data can be accepted.
    pub ready: bool,
    pub uptime_seconds: u64,
    /// Deliveries that do not deliver, with the reason.
    pub sick: Vec<SickDelivery>,
    /// Disks that do not work. Data that can be delivered at once is accepted nevertheless.
    pub disk_trouble: Vec<DiskTroubleOf>,
}

/// The disk under the log of a signal does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskTroubleOf {
    pub signal: Signal,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SickDelivery {
    pub pipeline: String,
    pub exporter: String,
    pub state: &'static str,
    pub reason: String,
}

impl Health {
    pub fn to_json(&self) -> String {
        let sick: Vec<_> = self
            .sick
            .iter()
            .map(|delivery| {
                serde_json::json!({
                    "pipeline": delivery.pipeline,
                    "exporter": delivery.exporter,
                    "state": delivery.state,
                    "reason": delivery.reason,
                })
            })
            .collect();
        // The Collector's wording of the status, for probes that look at the body.
        let status = if self.ready { "Server available" } else { "Server not available" };
        let mut body =
            serde_json::json!({ "status": status, "uptime_seconds": self.uptime_seconds, "sick_deliveries": sick });
        if !self.disk_trouble.is_empty() {
            let troubled = self.disk_trouble.iter();
            body["disk_trouble"] = troubled
                .map(|trouble| serde_json::json!({ "signal": trouble.signal.as_str(), "reason": trouble.reason }))
                .collect();
        }
        format!("{body}\n")
    }
}
