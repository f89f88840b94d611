//! The log agent: files of ten pods are written, and rotated about once a second. One backend is
//! healthy, one refuses most requests, one goes away for the middle third of the load.

use super::{
    BACKEND, CPU, DOUBLED, DROPPED, Demonstration, EXPORTED, LATENCY, LOST, MEMORY, PIPELINE, Row,
    WAITING, of_agent,
};
use crate::generate::LogFiles;
use crate::report::{Target, count, number};
use std::time::Duration;

/// Reached in about a second at the usual rate.
const ROTATE_BYTES: u64 = 256 << 10;

pub static LOG_AGENT: Demonstration = Demonstration {
    target: Target::LogAgent,
    usual_rate: 5_000,
    introduction: |rate, seconds| {
        format!(
            "A log agent with three pipelines: one backend healthy, one answering 70 % of requests \
             with 503, one away for a third of the time.\nTen pods write {rate} lines a second \
             for {seconds} seconds into files, which are rotated every second."
        )
    },
    config: ("demo/log-agent.yaml", include_str!("log-agent.yaml")),
    pipelines: of_agent(["logs/healthy", "logs/refusing", "logs/away"]),
    adapt: |plan| {
        plan.log_files = LogFiles {
            rotate_bytes: ROTATE_BYTES,
            rotate_every: Duration::from_secs(1),
            ..LogFiles::default()
        };
    },
    columns: &[
        PIPELINE,
        BACKEND,
        ("Lines written", |Row(_, kpis, _)| count(kpis.offered)),
        EXPORTED,
        LOST,
        DOUBLED,
        DROPPED,
        WAITING,
        ("Exported lines/s", |Row(.., pipeline)| number(pipeline.exported_per_s, 0)),
        LATENCY,
        MEMORY,
        CPU,
    ],
};
