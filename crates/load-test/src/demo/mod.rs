//! The demonstration: one run with three pipelines. One backend is healthy, one refuses most
//! requests, one is dead. The table has the columns of the Kyma load test and some more.

use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;

use crate::report::{DASH, Kpis, PipelineKpis, Table, Target, count, megabytes, number};
use crate::run::{self, Cores, Definition, FaultKind, FaultSchedule, Plan, ScheduledFault};

/// Share of the requests that the sick backend answers with UNAVAILABLE, as in the Kyma load test.
const REFUSED_SHARE: f64 = 0.7;
/// Name and backend of each pipeline.
const PIPELINES: [(&str, &str); 3] = [
    ("traces/healthy", "healthy"),
    ("traces/refusing", "70 % answered 503"),
    ("traces/dead", "dead"),
];

/// Runs the subject with the demonstration's configuration, and shows the progress on standard
/// error. `drain_within` limits the drain after the load.
pub async fn run(
    mut subject: Definition,
    items_per_s: f64,
    duration: Duration,
    drain_within: Duration,
) -> anyhow::Result<Kpis> {
    subject.set_config("demo/gateway.yaml", include_str!("gateway.yaml"));
    let sick = |kind, share, pipeline| ScheduledFault {
        pipelines: vec![pipeline],
        ..ScheduledFault::throughout(kind, share)
    };
    let faults = vec![sick(FaultKind::Refuse, REFUSED_SHARE, 1), sick(FaultKind::Outage, 1.0, 2)];
    let faults = FaultSchedule::new(faults, duration, PIPELINES.len());
    let plan = Plan {
        multi: true,
        faults: faults.map_err(|(fault, error)| anyhow::anyhow!("{fault}: {error}"))?,
        faults_outlast_load: true,
        duration,
        pace: Some(crate::Pace::Open { items_per_s }),
        drain_within,
        ..Plan::new(Target::Traces, vec![subject])
    };
    let (_running, interrupted) = watch::channel(false);
    let mut records = run::run_all(&[plan], &Cores::default(), interrupted).await?;
    let turn = records.pop().and_then(|mut record| record.subjects.pop()?.turns.pop());
    Ok(turn.context("the demonstration has no figures")?.kpis)
}

/// Accepted spans that no backend has and no policy dropped. `None`: the gateway does not say.
pub fn lost(pipeline: &PipelineKpis) -> Option<u64> {
    match (pipeline.lost?, pipeline.held) {
        (0, _) => Some(0),
        (lost, Some(_)) => Some(lost.saturating_sub(pipeline.dropped.unwrap_or(0.0) as u64)),
        (_, None) => None,
    }
}

/// Name, state of the backend, figures of the whole turn, figures of the pipeline.
type Row<'a> = (&'a str, &'a str, &'a Kpis, &'a PipelineKpis);
type Column = (&'static str, fn(&Row<'_>) -> String);

const COLUMNS: [Column; 13] = [
    ("Pipeline", |(name, ..)| (*name).to_owned()),
    ("Backend", |(_, backend, ..)| (*backend).to_owned()),
    ("Receiver Accepted Spans/sec", |(.., kpis, _)| number(kpis.received_per_s, 0)),
    ("Exporter Exported Spans/sec", |(.., pipeline)| number(pipeline.exported_per_s, 0)),
    ("Exporter Queue Size", |(.., pipeline)| number(pipeline.queue, 0)),
    ("Pod Memory Usage(MB)", |(.., kpis, _)| number(megabytes(kpis.memory_max_bytes), 0)),
    ("Pod CPU Usage", |(.., kpis, _)| number(kpis.cpu_cores, 1)),
    ("Received", |(.., kpis, _)| count(kpis.accepted)),
    ("Exported", |(.., pipeline)| count(pipeline.exported)),
    ("Lost", |(.., pipeline)| count(lost(pipeline))),
    ("Dropped", |(.., pipeline)| number(pipeline.dropped, 0)),
    ("Waiting", |(.., pipeline)| number(pipeline.held, 0)),
    ("p50 / p99 ms", |(.., pipeline)| {
        let latency = pipeline.latency_p50_ms.zip(pipeline.latency_p99_ms);
        latency.map_or_else(|| DASH.to_owned(), |(p50, p99)| format!("{p50:.0} / {p99:.0}"))
    }),
];

/// One row a pipeline. A value that is not known is a dash.
pub fn table(kpis: &Kpis) -> Table {
    let rows = PIPELINES.iter().zip(&kpis.pipelines);
    let rows = rows.map(|(&(name, backend), pipeline)| (name, backend, kpis, pipeline));
    Table::of("", &COLUMNS, rows)
}

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
        let table = table(&Kpis {
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
