//! The metrics of a running engine, under the Collector's names where it has them. Each part
//! declares a table; the text of `/metrics` and docs/metrics.md are made of the same tables.

mod deliveries;
mod emitters;
mod ledger;
pub(crate) mod log;
mod own_telemetry;
mod process;
mod processors;
mod series;

use std::fmt::Write as _;
use std::time::{Instant, SystemTime};

use sluice_receivers::RECEIVERS;
use sluice_telemetry::exposition::{Exposition, Families, Naming};
use sluice_telemetry::table::TableDoc;

use crate::delivery::Listing;
use crate::status::EngineStatus;

/// The newest dead letters of a delivery that are listed one by one.
const LISTED_LETTERS: usize = 20;

/// All metrics that there can be, as the engine and the kinds of components declare them.
pub fn tables() -> Vec<TableDoc> {
    let mut tables = vec![
        process::PROCESS.describe(),
        process::CONFIGURATION.describe(),
        process::RECEIVING.describe(),
        process::POOL.describe(),
    ];
    tables.extend(RECEIVERS.metrics().map(|describe| describe()));
    tables.extend([processors::PROCESSORS.describe(), series::SERIES.describe()]);
    tables.push(emitters::EMITTERS.describe());
    tables.extend([deliveries::DELIVERIES.describe(), log::LOGS.describe()]);
    tables.extend([ledger::AGGREGATED.describe(), ledger::ACCOUNTS.describe()]);
    tables.push(ledger::BALANCE.describe());
    tables.push(own_telemetry::PUSHES.describe());
    tables
}

pub(crate) fn render(status: &EngineStatus) -> String {
    let shown = status.shown.load();
    let unnamed = Naming::default();
    let naming = shown.metrics.as_ref().map_or(&unnamed, |metrics| &metrics.naming);
    collect(status, naming).render()
}

/// All metrics, by their names in OTLP. After the end of the engine, as they were then.
pub(crate) fn families(status: &EngineStatus) -> Families {
    const NAMING: Naming = Naming::of_otlp();
    let last = status.last_metrics.get().cloned();
    last.unwrap_or_else(|| collect(status, &NAMING).families())
}

fn collect<'a>(status: &EngineStatus, naming: &'a Naming) -> Exposition<'a> {
    let shown = status.shown.load();
    let pool = status.backlog.state();
    let pool_bytes_per_s = status.backlog.bytes_per_s(&pool, Instant::now());
    let mut exposition = Exposition::new(naming);
    exposition.write(&process::PROCESS, &[], &status.started);
    exposition.write(&process::CONFIGURATION, &[], &status.reloads);
    exposition.write(&process::RECEIVING, &[], &status.receiving);
    exposition.write(&process::POOL, &[], &pool);
    for (id, counters) in &shown.receivers {
        counters.write(id, &mut exposition);
    }
    for ((id, signal), step) in &shown.steps {
        let labels = [id.as_str(), signal.as_str()];
        exposition.write(&processors::PROCESSORS, &labels, &**step.counters.load());
        if let Some(series) = step.processor.series() {
            exposition.write(&series::SERIES, &labels, &series.usage());
        }
        if let Some(emitter) = step.processor.emitter() {
            exposition.write(&emitters::EMITTERS, &labels, &emitter.counts());
            exposition.write(&ledger::AGGREGATED, &labels, &*emitter.aggregated());
        }
    }
    for (planned, delivery) in &shown.deliveries {
        deliveries::write(&mut exposition, planned, (&pool, pool_bytes_per_s), delivery);
    }
    ledger::write(&mut exposition, status);
    log::write(&mut exposition, &status.storage);
    for push in status.pushes.load().iter() {
        exposition.write(&own_telemetry::PUSHES, &[&push.name], &**push);
    }
    exposition
}

/// The newest dead letters of all deliveries, one line each.
pub(crate) fn dead_letters_text(status: &EngineStatus) -> String {
    let mut text = String::new();
    for (_, delivery) in &status.shown.load().deliveries {
        let totals = delivery.dead_letters.totals();
        let listing = delivery.dead_letters.listing(LISTED_LETTERS);
        let Listing { letters, items, newest, problems } = listing;
        if letters == 0 && totals.evicted_items == 0 && problems.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "{}: {items} items in {letters} letters ({} of {} bytes)",
            delivery.id,
            totals.bytes,
            delivery.dead_letters.limit_bytes()
        );
        if totals.evicted_items > 0 {
            let _ = writeln!(
                text,
                "  {} items are not kept: they gave way to newer ones, or were larger than all \
                 dead letters may be",
                totals.evicted_items
            );
        }
        for problem in problems {
            let _ = writeln!(text, "  {problem}");
        }
        for letter in newest {
            let age = SystemTime::now().duration_since(letter.at).unwrap_or_default().as_secs();
            let _ = writeln!(text, "  {age} s ago, {} items: {}", letter.items, letter.reason);
        }
    }
    text
}
