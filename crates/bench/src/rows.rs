//! The rows of the speed table: the load, the gateway's work, and the bar of its cost.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use sluice_load::backend::Faults;
use sluice_load::generate::{Load, Pace};
use sluice_otlp::{Encoding, Signal};
use tokio::time::sleep;

use crate::figures::{Figures, Series};
use crate::scenario::Turn;
use crate::stage::{COME_BACK, Setting, WARM_UP};

/// Duration of a load that ends when counting does.
pub(crate) const ENDLESS: Duration = Duration::from_secs(3600);
/// Time after which memory at rest is read.
const REST: Duration = Duration::from_secs(3);
/// The default policy would let a slow backend lose data instead of slowing its senders.
const DELIVERED: &str = "buffer:\n  ack: delivered\n  policy: backpressure\n";

/// The quantity that a row measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Measure {
    /// CPU seconds a million items, in a closed loop.
    Cost,
    /// Resident memory some seconds after the start, with nothing sent.
    MemoryAtRest,
    /// Highest resident memory while this many items a second are sent in open loop.
    MemoryAtRate { items_per_s: f64 },
}

/// The bar that Sluice is held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    /// At most this multiple of the contestant's figure.
    Times(f64, &'static str),
    /// Each pipeline after the first: at most this multiple of nginx's cost of relaying the same.
    FurtherPipeline(f64),
    /// At most this many MiB in any turn.
    MaxMib(f64),
}

/// One kind of work, the same for every subject.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// For `--row`.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) measures: Measure,
    pub(crate) signal: Signal,
    pub(crate) items_per_request: u32,
    /// Encoding of the requests that are sent.
    pub(crate) encoding: Encoding,
    pub(crate) gzip_out: bool,
    pub(crate) processors: &'static [&'static str],
    /// Each with a backend of its own.
    pub(crate) pipelines: usize,
    /// Whether nginx, which relays bytes, can stand beside it.
    pub(crate) relay: bool,
    pub(crate) bar: Bar,
}

/// Id, title, whether it exists for every signal, and its differences from `plain`.
pub(crate) type Change = (&'static str, &'static str, bool, fn(&mut Row));

/// In the order of the table.
pub(crate) const ROWS: [Change; 11] = [
    ("plain", "uncompressed in and out", true, |_| {}),
    ("two", "two pipelines", false, |row| several(row, 2)),
    ("three", "three pipelines", false, |row| several(row, 3)),
    ("gzip", "gzip in and out, unchanged", true, |row| {
        (row.encoding, row.gzip_out) = (Encoding::Gzip, true);
        row.bar = Bar::Times(4.0, "nginx");
    }),
    ("resource-from-gzip", "gzip in, resource insert, gzip out", true, |row| {
        (row.encoding, row.gzip_out, row.processors) = (Encoding::Gzip, true, &["resource"]);
        row.bar = Bar::Times(0.2, "otelcol");
    }),
    ("resource-to-gzip", "uncompressed in, resource insert, gzip out", true, |row| {
        (row.gzip_out, row.processors, row.relay) = (true, &["resource"], false);
        row.bar = Bar::Times(0.2, "otelcol");
    }),
    ("attributes", "resource insert and attributes upsert, uncompressed", true, |row| {
        row.processors = &["resource", "attributes"];
        row.bar = Bar::Times(2.5, "nginx");
    }),
    ("one", "1 item a request", false, |row| small(row, 1)),
    ("ten", "10 items a request", false, |row| small(row, 10)),
    ("rest", "memory at rest", false, |row| {
        (row.measures, row.bar) = (Measure::MemoryAtRest, Bar::MaxMib(15.0));
    }),
    ("rate", "memory at 50,000 spans/s", false, |row| {
        row.measures = Measure::MemoryAtRate { items_per_s: 50_000.0 };
        row.bar = Bar::MaxMib(64.0);
    }),
];

fn several(row: &mut Row, pipelines: usize) {
    (row.pipelines, row.relay, row.bar) = (pipelines, false, Bar::FurtherPipeline(0.7));
}

fn small(row: &mut Row, items_per_request: u32) {
    (row.items_per_request, row.bar) = (items_per_request, Bar::Times(0.5, "otelcol"));
}

pub(crate) fn all_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (id, title, is_of_all, change) in ROWS {
        let signals = if is_of_all { &Signal::ALL[..] } else { &[Signal::Traces] };
        for &signal in signals {
            let mut row = Row {
                id,
                title,
                measures: Measure::Cost,
                signal,
                items_per_request: 100,
                encoding: Encoding::Identity,
                gzip_out: false,
                processors: &[],
                pipelines: 1,
                relay: true,
                bar: Bar::Times(1.5, "nginx"),
            };
            change(&mut row);
            rows.push(row);
        }
    }
    rows
}

impl Row {
    pub(crate) fn case(&self) -> String {
        format!("{} {}", self.id, self.signal)
    }

    /// The work of `plain`, for one backend or several: these are compared with one another.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.id, "plain" | "two" | "three")
    }

    pub(crate) async fn measure(&self, turn: Turn<'_>) -> Result<Figures> {
        let backends = vec![Faults::default(); self.pipelines];
        let mut setting = Setting::of(turn, 2000, DELIVERED)?.with_backends(backends, vec![]);
        let config = &mut setting.config;
        config.signal = self.signal;
        config.gzip_out = self.gzip_out;
        config.processors = self.processors.to_vec();
        // The Collector always has `memory_limiter` and `batch`.
        if turn.contestant.is_sluice() && !turn.options.batch {
            config.memory_limit_mib = None;
        } else {
            config.processors.push("batch");
        }
        let stage = setting.counting_lightly().start().await?;
        let pace = match self.measures {
            Measure::MemoryAtRest => {
                sleep(REST).await;
                let usage = stage.processes()?.subject;
                return Ok(json!({ "rss_bytes": usage.map(|usage| usage.rss_bytes) }));
            }
            Measure::Cost => Pace::Closed,
            Measure::MemoryAtRate { items_per_s } => Pace::Open { items_per_s },
        };
        let load = Load {
            encoding: self.encoding,
            pace,
            retry: COME_BACK,
            duration: Some(ENDLESS),
            grace: Duration::from_secs(1),
            ..stage.load().items_per_request(self.items_per_request)
        };
        let observed = stage.under_load(load, WARM_UP, turn.options.window()).await?;
        stage.figures(&observed, json!({}))
    }

    /// One turn, for its line in the progress.
    pub(crate) fn describe(&self, one: &Series) -> String {
        let memory = format!("{} MiB", one.mebibytes("rss_bytes", 1));
        if self.measures == Measure::MemoryAtRest {
            return memory;
        }
        let late = match one.median("turned_away") {
            0.0 => String::new(),
            attempts => format!(", {attempts} attempts turned away"),
        };
        format!(
            "{} CPU-s/M, {} items/s, {memory}, subject {} and bench {} of a core{late}",
            one.cell("cpu_s_per_million", 2),
            one.cell("items_per_s", 0),
            one.percent("subject_core"),
            one.percent("bench_core"),
        )
    }
}
