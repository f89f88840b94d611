//! The gateway: one backend is healthy, one refuses most requests, one is dead. The table has the
//! columns of the Kyma load test and some more.

use super::{
    BACKEND, CPU, DROPPED, DemoPipeline, Demonstration, EXPORTED, LATENCY, LOST, MEMORY, PIPELINE,
    REFUSED_SHARE, Row, WAITING,
};
use crate::report::{Target, count, number};
use crate::run::{FaultKind, ScheduledFault};

pub static GATEWAY: Demonstration = Demonstration {
    target: Target::Traces,
    usual_rate: 20_000,
    introduction: |rate, seconds| {
        format!(
            "A gateway with three pipelines: one backend healthy, one answering 70 % of requests \
             with 503, one dead.\nIt is sent {rate} spans a second, of 40 attributes each, for \
             {seconds} seconds."
        )
    },
    config: ("demo/gateway.yaml", include_str!("gateway.yaml")),
    pipelines: [
        DemoPipeline { name: "traces/healthy", backend: "healthy", fault: None },
        DemoPipeline {
            name: "traces/refusing",
            backend: "70 % answered 503",
            fault: Some(|_| ScheduledFault::throughout(FaultKind::Refuse, REFUSED_SHARE)),
        },
        DemoPipeline {
            name: "traces/dead",
            backend: "dead",
            fault: Some(|_| ScheduledFault::throughout(FaultKind::Outage, 1.0)),
        },
    ],
    adapt: |plan| plan.faults_outlast_load = true,
    columns: &[
        PIPELINE,
        BACKEND,
        ("Receiver Accepted Spans/sec", |Row(_, kpis, _)| number(kpis.received_per_s, 0)),
        ("Exporter Exported Spans/sec", |Row(.., pipeline)| number(pipeline.exported_per_s, 0)),
        ("Exporter Queue Size", |Row(.., pipeline)| number(pipeline.queue, 0)),
        MEMORY,
        CPU,
        ("Received", |Row(_, kpis, _)| count(kpis.accepted)),
        EXPORTED,
        LOST,
        DROPPED,
        WAITING,
        LATENCY,
    ],
};
