//! The rows of the speed table: what is sent, what the gateway does with it, and what it may cost.

use std::time::Duration;

use serde_json::json;
use sluice_otlp::{Encoding, Signal};
use tokio::time::sleep;

use super::contestant::Contestant;
use super::figures::Figures;
use super::options::Options;
use super::stage::Setting;
use crate::backend::Faults;
use crate::generate::{Load, Pace, Retry, Shape};

/// Before counting begins: connections are made, allocators and windows have grown.
const WARM_UP: Duration = Duration::from_millis(1000);
/// At rest a process is looked at after this time.
const REST: Duration = Duration::from_secs(3);
/// A sender that is turned away comes back a little later, as clients do, and does not spin.
const COME_BACK: Retry = Retry::Backoff {
    initial: Duration::from_millis(50),
    max: Duration::from_millis(500),
    give_up_after: Duration::from_secs(10),
};
/// Where several pipelines are fed, the default policy would let a slow backend lose data instead of slowing its
/// senders.
const DELIVERED: &str = "buffer:\n  ack: delivered\n  policy: backpressure\n";

/// What a row measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// CPU seconds a million items, as fast as it goes.
    Cost,
    /// Resident memory some seconds after the start, with nothing sent.
    MemoryAtRest,
    /// Highest resident memory while so many items a second are sent in open loop.
    MemoryAtRate { items_per_s: f64 },
}

/// What Sluice is held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// At most so many times what this contestant takes.
    Times(f64, &'static str),
    /// Each pipeline after the first: at most so many times what nginx takes to relay the same.
    FurtherPipeline(f64),
    /// In any turn.
    MaxMib(f64),
}

/// One kind of work, the same for every subject.
#[derive(Clone, Debug)]
pub struct Row {
    /// For `--row`.
    pub id: &'static str,
    pub title: &'static str,
    pub kind: Kind,
    pub signal: Signal,
    pub items_per_request: u32,
    /// Of the requests that are sent.
    pub encoding: Encoding,
    pub gzip_out: bool,
    pub resource_insert: bool,
    pub attributes_upsert: bool,
    /// Each with a backend of its own.
    pub pipelines: usize,
    /// Whether nginx, which relays bytes, can stand beside it.
    pub relay: bool,
    pub bar: Bar,
}

impl Row {
    fn new(id: &'static str, title: &'static str, signal: Signal) -> Self {
        Row {
            id,
            title,
            kind: Kind::Cost,
            signal,
            items_per_request: 100,
            encoding: Encoding::Identity,
            gzip_out: false,
            resource_insert: false,
            attributes_upsert: false,
            pipelines: 1,
            relay: true,
            bar: Bar::Times(1.5, "nginx"),
        }
    }

    /// Whether it is the work of `plain`, for one backend or for several: these rows are compared with one another.
    pub fn is_plain(&self) -> bool {
        matches!(self.id, "plain" | "two" | "three")
    }

    pub fn shape(&self) -> Shape {
        Shape { items_per_request: self.items_per_request, ..Shape::of(self.signal) }
    }

    /// For the label of its turns.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.id, self.signal)
    }

    /// Runs one turn.
    pub async fn measure(&self, contestant: &Contestant, options: &Options) -> anyhow::Result<Figures> {
        let mut setting = Setting::new(options)?.with_backends(vec![Faults::none(); self.pipelines], vec![]);
        let config = &mut setting.config;
        config.signal = self.signal;
        config.gzip_out = self.gzip_out;
        config.resource_insert = self.resource_insert;
        config.attributes_upsert = self.attributes_upsert;
        // The Collector always has `memory_limiter` and `batch`.
        config.batch = !matches!(contestant, Contestant::Sluice { batch: false, .. });
        config.memory_limit_mib = config.batch.then_some(2000);
        if matches!(contestant, Contestant::Sluice { .. }) {
            config.sections = DELIVERED.to_owned();
        }
        let stage = setting.counting_lightly().start(contestant).await?;
        let pace = match self.kind {
            Kind::MemoryAtRest => {
                sleep(REST).await;
                let usage = stage.processes()?.subject;
                return Ok(json!({ "rss_bytes": usage.map(|usage| usage.rss_bytes) }).into());
            }
            Kind::Cost => Pace::Closed,
            Kind::MemoryAtRate { items_per_s } => Pace::Open { items_per_s },
        };
        let load = Load {
            shape: self.shape(),
            encoding: self.encoding,
            pace,
            retry: COME_BACK,
            grace: Duration::from_secs(1),
            ..stage.load()
        };
        stage.figures(&stage.under_load(load, WARM_UP, options.window).await?)
    }

    /// The row of each signal with this change to it.
    fn each_signal(id: &'static str, title: &'static str, change: impl Fn(&mut Row)) -> impl Iterator<Item = Row> {
        Signal::ALL.into_iter().map(move |signal| {
            let mut row = Row::new(id, title, signal);
            change(&mut row);
            row
        })
    }
}

/// All rows, in the order of the table.
pub fn all_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(Row::each_signal("plain", "uncompressed in and out", |_| {}));
    for (id, title, pipelines) in [("two", "two pipelines", 2), ("three", "three pipelines", 3)] {
        let bar = Bar::FurtherPipeline(0.7);
        rows.push(Row { pipelines, relay: false, bar, ..Row::new(id, title, Signal::Traces) });
    }
    rows.extend(Row::each_signal("gzip", "gzip in and out, unchanged", |row| {
        (row.encoding, row.gzip_out) = (Encoding::Gzip, true);
        row.bar = Bar::Times(4.0, "nginx");
    }));
    rows.extend(Row::each_signal("resource-from-gzip", "gzip in, resource insert, gzip out", |row| {
        (row.encoding, row.gzip_out, row.resource_insert) = (Encoding::Gzip, true, true);
        row.bar = Bar::Times(0.2, "otelcol");
    }));
    rows.extend(Row::each_signal("resource-to-gzip", "uncompressed in, resource insert, gzip out", |row| {
        (row.gzip_out, row.resource_insert, row.relay) = (true, true, false);
        row.bar = Bar::Times(0.2, "otelcol");
    }));
    rows.extend(Row::each_signal("attributes", "resource insert and attributes upsert, uncompressed", |row| {
        (row.resource_insert, row.attributes_upsert) = (true, true);
        row.bar = Bar::Times(2.5, "nginx");
    }));
    for (id, title, items) in [("one", "1 item a request", 1), ("ten", "10 items a request", 10)] {
        let bar = Bar::Times(0.5, "otelcol");
        rows.push(Row { items_per_request: items, bar, ..Row::new(id, title, Signal::Traces) });
    }
    let rest = Row::new("rest", "memory at rest", Signal::Traces);
    rows.push(Row { kind: Kind::MemoryAtRest, bar: Bar::MaxMib(15.0), ..rest });
    let rate = Row::new("rate", "memory at 50,000 spans/s", Signal::Traces);
    rows.push(Row { kind: Kind::MemoryAtRate { items_per_s: 50_000.0 }, bar: Bar::MaxMib(64.0), ..rate });
    rows
}
