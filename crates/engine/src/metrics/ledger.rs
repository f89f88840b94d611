//! Metrics of the ledger: points by measurement, and whether deliveries are balanced.

use sluice_flow::{Counts, Tally};
use sluice_processors::Aggregated;
use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::row;
use sluice_telemetry::table::Table;

use crate::delivery::Account;
use crate::ledger::Ledger;
use crate::status::EngineStatus;

const WITH_SAMPLES: &str = "a pipeline carries samples of k6 or InfluxDB";

fn each(series: &mut Series<'_, '_>, tallies: &[&Tally]) {
    let mut counts = Counts::default();
    tallies.iter().for_each(|tally| counts.add(&tally.read()));
    counts.all().for_each(|(name, points)| series.add(&[name], points as f64));
}

pub(super) const AGGREGATED: Table<Aggregated> = Table {
    title: "Ledger of processors",
    labels: &["processor", "otel.signal"],
    metrics: &[
        row!(Counter "sluice_ledger_aggregated_in_points" by ["measurement"],
            |it: &Aggregated, series| each(series, &[&it.taken]),
            "Points that the processor took out of requests, by measurement.")
        .only(WITH_SAMPLES),
        row!(Counter "sluice_ledger_aggregated_out_points" by ["measurement"],
            |it: &Aggregated, series| each(series, &[&it.made]),
            "Points that it gave out for them, by their own measurement.")
        .only(WITH_SAMPLES),
    ],
};

pub(super) const ACCOUNTS: Table<Account> = Table {
    title: "Ledger of deliveries",
    labels: &["exporter", "pipeline"],
    metrics: &[
        row!(Counter "sluice_ledger_written_points" by ["measurement"],
            |it: &Account, series| each(series, &[&it.of_now.written, &it.of_found.written]),
            "Points in requests that the backend has taken, by measurement.")
        .only(WITH_SAMPLES),
        row!(Counter "sluice_ledger_left_out_points" by ["measurement"],
            |it: &Account, series| each(series, &[&it.of_now.left_out, &it.of_found.left_out]),
            "Points that cannot be written in the backend's form, by measurement.")
        .only(WITH_SAMPLES),
        row!(Counter "sluice_ledger_dead_points" by ["measurement"],
            |it: &Account, series| each(series, &[&it.of_now.dead, &it.of_found.dead]),
            "Points that became dead letters, by measurement.")
        .only(WITH_SAMPLES),
    ],
};

/// The points that a delivery misses.
pub(super) const BALANCE: Table<i64> = Table {
    title: "Balance of deliveries",
    labels: &["exporter", "pipeline"],
    metrics: &[row!(Gauge "sluice_ledger_missing_points",
        |it: &i64| *it as f64,
        "Points that came and of which nothing is known; negative: more than came. Only where the \
         ledger knows. For some moments it may be what is on its way.")
    .only(WITH_SAMPLES)],
};

pub(super) fn write(exposition: &mut Exposition<'_>, status: &EngineStatus) {
    let shown = status.shown.load();
    for fed in shown.fed.iter().filter(|fed| fed.has_names) {
        let id = &fed.delivery.id;
        exposition.write(&ACCOUNTS, &[&id.exporter, &id.pipeline], &fed.delivery.account);
    }
    for sheet in Ledger::read(&shown.receivers, &shown.fed).sheets {
        if let Ok(missing) = sheet.missing {
            exposition.write(&BALANCE, &[&sheet.id.exporter, &sheet.id.pipeline], &missing);
        }
    }
}
