//! The metric agent: ten Prometheus targets are scraped once a second, and show new series in place
//! of the old ones every ten seconds. One backend is healthy, one refuses most requests, one goes
//! away for the middle third of the load.

use std::time::Duration;

use super::{
    BACKEND, CPU, DOUBLED, DROPPED, Demonstration, EXPORTED, LATENCY, LOST, MEMORY, PIPELINE, Row,
    WAITING, of_agent,
};
use crate::generate::Farm;
use crate::report::{Target, count, number};

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
    pipelines: of_agent(["metrics/healthy", "metrics/refusing", "metrics/away"]),
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
