//! Counters of collections, and the receiver's metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};

use super::watches::{State, Watches};
use crate::receiver::ReceiverCounters;
use crate::scraping::Taken;

/// Counters grow only; objects are those of now.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) taken: Taken,
    collections: AtomicU64,
    missed_collections: AtomicU64,
    /// Of the receiver that runs.
    watches: Mutex<Weak<Watches>>,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn begin(&self, watches: &Arc<Watches>) {
        *self.watches.lock() = Arc::downgrade(watches);
    }

    pub(super) fn collected(&self, missed: u64) {
        add(&self.collections, 1);
        add(&self.missed_collections, missed);
    }
}

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }
}

/// One series for each kind of objects.
fn states(it: &Counters, series: &mut Series<'_, '_>, value: fn(&State) -> usize) {
    let watches = it.watches.lock().upgrade();
    for (resource, state) in watches.iter().flat_map(|watches| watches.states()) {
        series.add(&[resource], value(&state) as f64);
    }
}

pub(super) const METRICS: Table<Counters> = Table {
    title: "Receiver k8s_cluster",
    labels: &["receiver"],
    metrics: &[
        row!(Counter "otelcol_receiver_accepted" by ["transport"],
            |it: &Counters, series| it.taken.accepted_items(series),
            "Items that were accepted.")
        .by_items(),
        row!(Counter "otelcol_receiver_refused" by ["transport"],
            |it: &Counters, series| it.taken.refused_items(series),
            "Items of refused requests, if the items had been counted. Most requests are refused \
             before that: only sluice_receiver_refused_requests counts those.")
        .by_items(),
        row!(Counter "sluice_receiver_accepted_requests" by ["transport", "signal"],
            |it: &Counters, series| it.taken.accepted_requests(series),
            "Requests that were accepted: one or more a collection."),
        row!(Counter "sluice_receiver_refused_requests" by ["transport", "signal", "reason"],
            |it: &Counters, series| it.taken.refused_requests(series),
            "Requests that the engine did not take. They are lost."),
        row!(Counter "sluice_k8s_cluster_collections",
            |it: &Counters| it.collections.value(),
            "Collections of metrics of all objects."),
        row!(Counter "sluice_k8s_cluster_missed_collections",
            |it: &Counters| it.missed_collections.value(),
            "Collections that were left out, as the one before took longer than the interval."),
        row!(Gauge "sluice_k8s_cluster_objects" by ["resource"],
            |it: &Counters, series| states(it, series, |state| state.objects),
            "Objects that are known."),
        row!(Gauge "sluice_k8s_cluster_memory" by ["resource"] in "bytes",
            |it: &Counters, series| states(it, series, |state| state.bytes),
            "Memory of these objects."),
        row!(Gauge "sluice_k8s_cluster_refused_objects" by ["resource"],
            |it: &Counters, series| states(it, series, |state| state.refused),
            "Objects that are not known, as those of their kind would take more than 256 MiB."),
        row!(Gauge "sluice_k8s_cluster_failing_watches" by ["resource"],
            |it: &Counters, series| states(it, series, |state| state.failing),
            "Watches that fail at present: objects are as they were known last. The log says why."),
    ],
};
