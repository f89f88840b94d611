//! The metrics of a running engine, under the Collector's names where it has them. Each part
//! declares a table; the text of `/metrics` and docs/metrics.md are made of the same tables.

mod deliveries;
pub(crate) mod log;
mod process;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use sluice_receivers::ReceiverCounters;
use sluice_telemetry::exposition::{Exposition, Naming};
use sluice_telemetry::table::TableDoc;

use crate::backlog::Backlog;
use crate::delivery::Delivery;
use crate::plan::DeliveryPlan;
use crate::receiving::ReceivingBudget;
use crate::storage::Storage;

/// What the engine and all kinds of components declare.
pub(crate) fn tables() -> Vec<TableDoc> {
    let mut tables = vec![process::PROCESS.describe(), process::RECEIVING.describe(), process::POOL.describe()];
    tables.extend(sluice_receivers::metric_tables());
    tables.extend([deliveries::DELIVERIES.describe(), log::LOGS.describe()]);
    tables
}

/// Everything, as text.
pub(crate) fn render(
    naming: &Naming,
    started: Instant,
    deliveries: &[(DeliveryPlan, Arc<Delivery>)],
    receivers: &[(String, Arc<dyn ReceiverCounters>)],
    receiving: &ReceivingBudget,
    backlog: &Backlog,
    storage: &Storage,
) -> String {
    let mut exposition = Exposition::new(naming);
    exposition.write(&process::PROCESS, &[], &started);
    exposition.write(&process::RECEIVING, &[], receiving);
    exposition.write(&process::POOL, &[], &backlog.state());
    for (id, counters) in receivers {
        counters.write(id, &mut exposition);
    }
    for (planned, delivery) in deliveries {
        deliveries::write(&mut exposition, planned, backlog, delivery);
    }
    log::write(&mut exposition, storage);
    exposition.render()
}

/// The newest dead letters of all deliveries, one line each.
pub(crate) fn dead_letters_text<'a>(deliveries: impl Iterator<Item = &'a Delivery>) -> String {
    let mut text = String::new();
    for delivery in deliveries {
        let totals = delivery.dead_letters.totals();
        if totals.letters == 0 && totals.evicted_items == 0 {
            continue;
        }
        let told = delivery.dead_letters.obituaries(20);
        text.push_str(&format!(
            "{}: {} items in {} letters ({} bytes), {} items gave way to newer ones\n",
            delivery.id, told.items, totals.letters, totals.bytes, totals.evicted_items
        ));
        for letter in told.newest {
            let age = SystemTime::now().duration_since(letter.at).unwrap_or_default().as_secs();
            text.push_str(&format!("  {age} s ago, {} items: {}\n", letter.items, letter.reason));
        }
    }
    text
}
