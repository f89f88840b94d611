//! The demonstrations: one run each, with three pipelines whose backends differ, and a table of
//! each pipeline's figures.

mod gateway;
mod log_agent;
mod metric_agent;

use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;

use crate::report::{DASH, Kpis, PipelineKpis, Table, Target, count, megabytes, number};
use crate::run::{self, Cores, Definition, FaultKind, FaultSchedule, Plan, ScheduledFault};

pub use gateway::GATEWAY;
pub use log_agent::LOG_AGENT;
pub use metric_agent::METRIC_AGENT;

/// Share of the requests that a sick backend answers with UNAVAILABLE, as in the Kyma load test.
const REFUSED_SHARE: f64 = 0.7;

/// A demonstration.
pub struct Demonstration {
    target: Target,
    /// Items offered a second, unless other is asked for.
    pub usual_rate: u64,
    /// Tells what is about to happen, for a rate in items a second and a load of this many seconds.
    pub introduction: fn(rate: u64, seconds: u64) -> String,
    /// Path below `subjects/` as which the configuration is known, and its text.
    config: (&'static str, &'static str),
    pipelines: [DemoPipeline; 3],
    /// Changes the plan's defaults.
    adapt: fn(&mut Plan),
    columns: &'static [Column],
}

/// One pipeline of a demonstration.
struct DemoPipeline {
    name: &'static str,
    /// The state of its backend, in words.
    backend: &'static str,
    /// The fault of its backend, for a load of this duration.
    fault: Option<fn(Duration) -> ScheduledFault>,
}

/// The pipelines of an agent: one backend is healthy, one refuses most requests, one goes away for
/// the middle third of the load.
const fn of_agent([healthy, refusing, away]: [&'static str; 3]) -> [DemoPipeline; 3] {
    [
        DemoPipeline { name: healthy, backend: "healthy", fault: None },
        DemoPipeline {
            name: refusing,
            backend: "70 % answered 503",
            fault: Some(|_| ScheduledFault::throughout(FaultKind::Refuse, REFUSED_SHARE)),
        },
        DemoPipeline {
            name: away,
            backend: "away for a third of the time",
            fault: Some(|load| ScheduledFault {
                from: load / 3,
                to: Some(load * 2 / 3),
                ..ScheduledFault::throughout(FaultKind::Outage, 1.0)
            }),
        },
    ]
}

/// A pipeline with the figures of the whole turn and its own.
struct Row<'a>(&'a DemoPipeline, &'a Kpis, &'a PipelineKpis);
type Column = (&'static str, fn(&Row<'_>) -> String);

impl Demonstration {
    /// Runs the subject with the demonstration's configuration, and shows the progress on standard
    /// error. `drain_within` limits the drain after the load.
    pub async fn run(
        &self,
        mut subject: Definition,
        items_per_s: f64,
        duration: Duration,
        drain_within: Duration,
    ) -> anyhow::Result<Kpis> {
        let (path, text) = self.config;
        subject.set_config(path, text);
        let faults = self.pipelines.iter().enumerate().filter_map(|(index, pipeline)| {
            Some(ScheduledFault { pipelines: vec![index], ..pipeline.fault?(duration) })
        });
        let faults = FaultSchedule::new(faults.collect(), duration, self.pipelines.len());
        let mut plan = Plan {
            multi: true,
            faults: faults.map_err(|(fault, error)| anyhow::anyhow!("{fault}: {error}"))?,
            duration,
            pace: Some(crate::Pace::Open { items_per_s }),
            drain_within,
            ..Plan::new(self.target, vec![subject])
        };
        (self.adapt)(&mut plan);
        let (_running, interrupted) = watch::channel(false);
        let mut records = run::run_all(&[plan], &Cores::default(), interrupted).await?;
        let turn = records.pop().and_then(|mut record| record.subjects.pop()?.turns.pop());
        Ok(turn.context("the demonstration has no figures")?.kpis)
    }

    /// One row a pipeline. A value that is not known is a dash.
    pub fn table(&self, kpis: &Kpis) -> Table {
        let rows = self.pipelines.iter().zip(&kpis.pipelines);
        Table::of("", self.columns, rows.map(|(pipeline, figures)| Row(pipeline, kpis, figures)))
    }
}

/// Accepted items that no backend has and no policy dropped. `None`: the subject does not say.
pub fn lost(pipeline: &PipelineKpis) -> Option<u64> {
    match (pipeline.lost?, pipeline.held) {
        (0, _) => Some(0),
        (lost, Some(_)) => Some(lost.saturating_sub(pipeline.dropped.unwrap_or(0.0) as u64)),
        (_, None) => None,
    }
}

// Columns that several demonstrations have.
const PIPELINE: Column = ("Pipeline", |Row(pipeline, ..)| pipeline.name.to_owned());
const BACKEND: Column = ("Backend", |Row(pipeline, ..)| pipeline.backend.to_owned());
const MEMORY: Column =
    ("Pod Memory Usage(MB)", |Row(_, kpis, _)| number(megabytes(kpis.memory_max_bytes), 0));
const CPU: Column = ("Pod CPU Usage", |Row(_, kpis, _)| number(kpis.cpu_cores, 1));
const EXPORTED: Column = ("Exported", |Row(.., pipeline)| count(pipeline.exported));
const LOST: Column = ("Lost", |Row(.., pipeline)| count(lost(pipeline)));
const DOUBLED: Column = ("Doubled", |Row(.., pipeline)| count(pipeline.doubled));
const DROPPED: Column = ("Dropped", |Row(.., pipeline)| number(pipeline.dropped, 0));
const WAITING: Column = ("Waiting", |Row(.., pipeline)| number(pipeline.held, 0));
const LATENCY: Column = ("p50 / p99 ms", |Row(.., pipeline)| {
    let latency = pipeline.latency_p50_ms.zip(pipeline.latency_p99_ms);
    latency.map_or_else(|| DASH.to_owned(), |(p50, p99)| format!("{p50:.0} / {p99:.0}"))
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::MEBIBYTE;

    /// `lost` counts accepted spans that neither the backend nor the gateway has.
    fn pipeline(lost: u64, held: Option<f64>) -> PipelineKpis {
        PipelineKpis { lost: Some(lost), held, ..PipelineKpis::default() }
    }

    #[test]
    fn what_the_gateway_drops_as_configured_is_not_lost_and_what_nothing_has_is() {
        assert_eq!(lost(&pipeline(0, None)), Some(0));
        assert_eq!(lost(&pipeline(0, Some(100.0))), Some(0));
        assert_eq!(lost(&pipeline(70, Some(30.0))), Some(70));
        assert_eq!(
            lost(&PipelineKpis { dropped: Some(60.0), ..pipeline(70, Some(30.0)) }),
            Some(10)
        );
        assert_eq!(lost(&pipeline(100, None)), None, "not known is not zero");
    }

    #[test]
    fn every_pipeline_has_its_row_and_unknown_values_are_dashes() {
        let table = GATEWAY.table(&Kpis {
            pipelines: vec![pipeline(70, Some(30.0)), pipeline(100, None)],
            accepted: Some(300_000),
            received_per_s: Some(10_000.0),
            memory_max_bytes: Some(48.0 * MEBIBYTE),
            cpu_cores: Some(0.25),
            ..Kpis::default()
        });
        let table = table.to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4, "{table}");
        assert!(
            lines[2].contains(" 10000 ") && lines[2].contains(" 70 ") && lines[2].contains(" 48 "),
            "{table}"
        );
        assert!(lines[3].contains("–"), "{table}");
    }
}
