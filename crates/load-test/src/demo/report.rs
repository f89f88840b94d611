//! The demonstration's table: the columns of the Kyma load test, and what those leave out.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};

use crate::latency::Latency;

/// What became of one pipeline.
#[derive(Clone, Debug)]
pub struct PipelineReport {
    pub exporter: String,
    /// Of its backend.
    pub condition: String,
    /// Different spans that its backend has.
    pub exported: u64,
    /// While the load ran.
    pub exported_per_s: f64,
    /// Spans that came more than once.
    pub doubled: u64,
    /// Accepted spans that its backend does not have.
    pub missing: u64,
    /// The gateway's `otelcol_exporter_queue_size` at the end of the load.
    pub queue_size: Option<f64>,
    /// Spans that the gateway still holds for this backend at the end, by its own count.
    pub backlog: Option<f64>,
    /// Spans that the gateway dropped, by its own count, because the pipeline's budget was spent.
    pub dropped: Option<f64>,
    /// From sending to arrival.
    pub latency: Latency,
}

impl PipelineReport {
    /// Accepted spans that neither the backend nor the gateway has, and that the gateway did not drop as its configuration
    /// says. `None` where spans are missing and the gateway does
    /// not say what it holds.
    pub fn lost(&self) -> Option<u64> {
        match self.backlog {
            _ if self.missing == 0 => Some(0),
            Some(backlog) => Some(self.missing.saturating_sub(backlog as u64 + self.dropped.unwrap_or(0.0) as u64)),
            None => None,
        }
    }
}

/// What the demonstration came to.
#[derive(Clone, Debug)]
pub struct DemoReport {
    pub pipelines: Vec<PipelineReport>,
    /// Spans.
    pub offered: u64,
    pub accepted: u64,
    pub load_took: Duration,
    /// Until both living backends had everything, or the limit.
    pub drained_after: Duration,
    pub memory_max_bytes: u64,
    pub cpu_cores: f64,
}

impl DemoReport {
    /// One row a pipeline. A value that is not known is a dash.
    pub fn to_markdown(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header([
            "Pipeline",
            "Backend",
            "Receiver Accepted Spans/sec",
            "Exporter Exported Spans/sec",
            "Exporter Queue Size",
            "Pod Memory Usage(MB)",
            "Pod CPU Usage",
            "Received",
            "Exported",
            "Lost",
            "Dropped",
            "Waiting",
            "p50 / p99 ms",
        ]);
        let accepted_per_s = self.accepted as f64 / self.load_took.as_secs_f64();
        for pipeline in &self.pipelines {
            let milliseconds = |latency: Duration| format!("{:.0}", latency.as_secs_f64() * 1e3);
            let latency = match pipeline.latency.count {
                0 => "–".to_owned(),
                _ => format!("{} / {}", milliseconds(pipeline.latency.p50), milliseconds(pipeline.latency.p99)),
            };
            table.add_row([
                format!("traces/{}", pipeline.exporter.trim_start_matches("otlp/")),
                pipeline.condition.clone(),
                format!("{accepted_per_s:.0}"),
                format!("{:.0}", pipeline.exported_per_s),
                known(pipeline.queue_size),
                format!("{:.0}", self.memory_max_bytes as f64 / (1 << 20) as f64),
                format!("{:.1}", self.cpu_cores),
                self.accepted.to_string(),
                pipeline.exported.to_string(),
                known(pipeline.lost().map(|lost| lost as f64)),
                known(pipeline.dropped),
                known(pipeline.backlog),
                latency,
            ]);
        }
        for index in 2..13 {
            if let Some(column) = table.column_mut(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
    }
}

fn known(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(missing: u64, backlog: Option<f64>) -> PipelineReport {
        PipelineReport {
            exporter: "otlp/dead".to_owned(),
            condition: "dead".to_owned(),
            exported: 0,
            exported_per_s: 0.0,
            doubled: 0,
            missing,
            queue_size: None,
            backlog,
            dropped: None,
            latency: Latency::default(),
        }
    }

    #[test]
    fn what_the_gateway_holds_is_not_lost_and_what_nobody_has_is() {
        assert_eq!(pipeline(0, None).lost(), Some(0));
        assert_eq!(pipeline(100, Some(100.0)).lost(), Some(0));
        assert_eq!(pipeline(100, Some(30.0)).lost(), Some(70));
        assert_eq!(pipeline(100, None).lost(), None, "not known is not zero");
    }

    #[test]
    fn every_pipeline_has_its_row_and_unknown_values_are_dashes() {
        let report = DemoReport {
            pipelines: vec![pipeline(100, Some(30.0)), pipeline(100, None)],
            offered: 300_000,
            accepted: 300_000,
            load_took: Duration::from_secs(30),
            drained_after: Duration::from_secs(1),
            memory_max_bytes: 48 << 20,
            cpu_cores: 0.25,
        };
        let table = report.to_markdown();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4, "{table}");
        assert!(lines[2].contains(" 10000 ") && lines[2].contains(" 70 ") && lines[2].contains(" 48 "), "{table}");
        assert!(lines[3].contains("–"), "{table}");
    }
}
