//! Counters of collections, the receiver's metrics, and the reasons for which data is lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluice_otlp::Signal;
use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};

use super::watches::{State, Watches};
use crate::receiver::ReceiverCounters;
use crate::refused::{FAILED, REJECTED, Reason, Refusals, Refused, Remedies, remedy};

const TRANSPORT: &str = "http";

/// The reasons of this receiver.
pub(crate) const REMEDIES: &Remedies = {
    use Reason::*;
    &[
        (Unrouted, "add the receiver to a pipeline of metrics"),
        (Overloaded, "if it lasts, mend the backend or raise the limit that is named"),
        (NeverFits, "raise the memory limit"),
        (Invalid, "this data is refused for good: look at the processors of the pipeline"),
        REJECTED,
        FAILED,
    ]
};

/// Counters grow only; objects are those of now.
#[derive(Default)]
pub(super) struct Counters {
    accepted_requests: AtomicU64,
    accepted_items: AtomicU64,
    refusals: Refusals,
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

    pub(super) fn accepted(&self, items: u32) {
        add(&self.accepted_requests, 1);
        add(&self.accepted_items, u64::from(items));
    }

    /// Counts what the engine does not take, and logs it now and then.
    pub(super) fn refuse(&self, receiver: &str, refused: &Refused) {
        if let Some(requests) = self.refusals.count(refused) {
            let (reason, why) = (refused.reason.as_str(), &refused.message);
            let remedy = remedy(REMEDIES, refused.reason);
            tracing::warn!(receiver, requests, reason, why, "metrics are lost: {remedy}");
        }
    }
}

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }
}

fn items(series: &mut Series<'_, '_>, counter: &AtomicU64) {
    series.add_items(Signal::Metrics.items_name(), &[TRANSPORT], counter.value());
}

fn refused(it: &Counters, series: &mut Series<'_, '_>) {
    for (reason, _) in REMEDIES {
        let count = it.refusals.requests(*reason).value();
        series.add(&[TRANSPORT, Signal::Metrics.as_str(), reason.as_str()], count);
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
            |it: &Counters, series| items(series, &it.accepted_items),
            "Items that were accepted.")
        .by_items(),
        row!(Counter "otelcol_receiver_refused" by ["transport"],
            |it: &Counters, series| items(series, &it.refusals.items),
            "Items of refused requests, if the items had been counted. Most requests are refused \
             before that: only sluice_receiver_refused_requests counts those.")
        .by_items(),
        row!(Counter "sluice_receiver_accepted_requests" by ["transport", "signal"],
            |it: &Counters, series| {
                let count = it.accepted_requests.value();
                series.add(&[TRANSPORT, Signal::Metrics.as_str()], count);
            },
            "Requests that were accepted: one or more a collection."),
        row!(Counter "sluice_receiver_refused_requests" by ["transport", "signal", "reason"],
            refused, "Requests that the engine did not take. They are lost."),
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
