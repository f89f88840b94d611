//! The metric agent: ten Prometheus targets are scraped once a second, and show new series in place
//! of the old ones every ten seconds. One backend is healthy, one refuses most requests, one goes
//! away for the middle third of the load.

use std::time::Duration;

use super::{
    BACKEND, CPU, DOUBLED, DROPPED, DemoPipeline, Demonstration, EXPORTED, LATENCY, LOST, MEMORY,
    PIPELINE, Row, WAITING,
};
use crate::generate::Farm;
use crate::report::{Target, count, number};
use crate::run::{FaultKind, ScheduledFault};

const REFUSED_SHARE: f64 = 0.7;

pub static METRIC_AGENT: Demonstration = Demonstration {
    target: Target::MetricAgent,
    usual_rate: 20_000,
    introduction: |rate, seconds| {
        format!(
            "A metric agent with three pipelines: one backend healthy, one answering 70 % of \
             requests with 503, one away for a third of the time.\nTen targets have 2000 series \
             each. They are scraped for {seconds} seconds, {rate} samples a second, and replace \
             all their series every ten seconds."
        )
    },
    config: ("demo/metric-agent.yaml", include_str!("metric-agent.yaml")),
    pipelines: [
        DemoPipeline { name: "metrics/healthy", backend: "healthy", fault: None },
        DemoPipeline {
            name: "metrics/refusing",
            backend: "70 % answered 503",
            fault: Some(|_| ScheduledFault::throughout(FaultKind::Refuse, REFUSED_SHARE)),
        },
        DemoPipeline {
            name: "metrics/away",
            backend: "away for a third of the time",
            fault: Some(|load| ScheduledFault {
                from: load / 3,
                to: Some(load * 2 / 3),
                ..ScheduledFault::throughout(FaultKind::Outage, 1.0)
            }),
        },
    ],
    adapt: |plan| {
        plan.farm = Farm {
            targets: 10,
            metrics: 200,
            series: 10,
            counters: 100,
            churn_every: Some(Duration::from_secs(10)),
            ..Farm::default()
        };
    },
    columns: &[
        PIPELINE,
        BACKEND,
        ("Samples scraped", |Row(_, kpis, _)| count(kpis.accepted)),
        EXPORTED,
        LOST,
        DOUBLED,
        DROPPED,
        WAITING,
        ("Exported samples/s", |Row(.., pipeline)| number(pipeline.exported_per_s, 0)),
        LATENCY,
        MEMORY,
        CPU,
    ],
};
