//! The state of a running engine, for the administrative servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_otlp::Signal;

use crate::backlog::Backlog;
use crate::delivery::{Delivery, DeliveryId};
use crate::metrics;
use crate::plan::{DeliveryPlan, MetricsPlan};
use crate::receiving::ReceivingBudget;
use crate::status::{DiskTroubleOf, Health, SickDelivery, Status};
use crate::storage::Storage;

/// The state that the administrative servers read. Replaced as a whole when a plan is applied.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) deliveries: Vec<(DeliveryPlan, Arc<Delivery>)>,
    pub(super) receivers: Vec<(String, Arc<dyn sluice_receivers::ReceiverCounters>)>,
    pub(super) metrics: Option<MetricsPlan>,
}

pub(super) struct EngineStatus {
    pub(super) started: Instant,
    pub(super) ready: AtomicBool,
    pub(super) shown: ArcSwap<Shown>,
    pub(super) receiving: Arc<ReceivingBudget>,
    pub(super) backlog: Arc<Backlog>,
    /// Deliveries that a reload removed and that still send their data.
    pub(super) leaving: Mutex<Vec<DeliveryId>>,
    pub(super) storage: Arc<Storage>,
}

impl Status for EngineStatus {
    fn metrics(&self) -> String {
        let shown = self.shown.load();
        let naming = shown.metrics.as_ref().map(|metrics| metrics.naming.clone()).unwrap_or_default();
        metrics::render(
            &naming,
            self.started,
            &shown.deliveries,
            &shown.receivers,
            &self.receiving,
            &self.backlog,
            &self.storage,
        )
    }

    fn health(&self) -> Health {
        let shown = self.shown.load();
        let sick = shown.deliveries.iter().filter_map(|(_, delivery)| {
            let trouble = delivery.stats.trouble.lock().clone()?;
            Some(SickDelivery {
                pipeline: delivery.id.pipeline.clone(),
                exporter: delivery.id.exporter.clone(),
                state: if trouble.held { "held" } else { "out of order" },
                reason: trouble.reason,
            })
        });
        let leaving = self.leaving.lock().clone().into_iter().map(|id| SickDelivery {
            pipeline: id.pipeline,
            exporter: id.exporter,
            state: "leaving",
            reason: "a reload removed it; it sends its remaining data".to_owned(),
        });
        Health {
            ready: self.ready.load(Ordering::Acquire),
            uptime_seconds: self.started.elapsed().as_secs(),
            sick: sick.chain(leaving).collect(),
            disk_trouble: self.disk_trouble(),
        }
    }

    fn log(&self) -> String {
        let shown = self.shown.load();
        metrics::log::text(&self.storage, shown.deliveries.iter().map(|(_, delivery)| delivery.as_ref()))
    }

    fn dead_letters(&self) -> String {
        let shown = self.shown.load();
        metrics::dead_letters_text(shown.deliveries.iter().map(|(_, delivery)| delivery.as_ref()))
    }
}

impl EngineStatus {
    /// Trouble with the disk, by signal.
    fn disk_trouble(&self) -> Vec<DiskTroubleOf> {
        let troubled = |signal: Signal| {
            let reason = self.storage.watches[signal as usize].trouble()?;
            Some(DiskTroubleOf { signal, reason })
        };
        Signal::ALL.into_iter().filter_map(troubled).collect()
    }
}
