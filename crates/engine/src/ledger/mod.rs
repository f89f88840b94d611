//! The ledger of samples: what came of each measurement, and what became of it, for each delivery
//! (docs/decisions/051-a-ledger-of-samples.md).
//!
//! Each figure is counted where something happens, by the component that does it: the receiver, a
//! processor that aggregates, the log, the exporter. Here they are only compared: `sheet` is the
//! account of a delivery, `pages` shows it.

mod pages;
mod sheet;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use sluice_flow::Counts;
use sluice_processors::Aggregated;
use sluice_receivers::ReceiverCounters;

pub(crate) use pages::{json, text};
pub(crate) use sheet::Sheet;

use crate::delivery::Delivery;
use crate::steps::Step;

/// Figures are read again until two readings agree, at most so often.
const READINGS: usize = 8;

/// The counters of all receivers by their ids.
type Receivers = [(String, Arc<dyn ReceiverCounters>)];

/// A receiver, and the steps between it and a delivery.
pub(crate) struct Inflow {
    pub receiver: String,
    pub counters: Arc<dyn ReceiverCounters>,
    pub steps: Vec<Arc<Step>>,
}

/// A delivery, and all that leads to it.
pub(crate) struct Fed {
    pub delivery: Arc<Delivery>,
    pub inflows: Vec<Inflow>,
    /// Its exporter knows the names of items.
    pub has_names: bool,
}

/// The receivers and processors that feed a delivery, as far as they count by name.
#[derive(Default)]
struct Sources<'a> {
    receivers: Vec<&'a Inflow>,
    aggregated: Vec<Arc<Aggregated>>,
}

impl Fed {
    /// It carries data that is counted by name.
    fn is_in_ledger(&self) -> bool {
        self.has_names || self.inflows.iter().any(|inflow| inflow.counters.received().is_some())
    }

    /// # Errors
    /// Something between its receivers and it is not counted.
    fn sources(&self) -> Result<Sources<'_>, String> {
        let mut sources = Sources::default();
        for inflow in &self.inflows {
            let Inflow { receiver, counters, steps } = inflow;
            if counters.received().is_none() {
                return Err(format!("the receiver `{receiver}` does not count by measurement"));
            }
            if sources.receivers.iter().any(|other| other.receiver == *receiver) {
                return Err(format!("the data of `{receiver}` comes by several ways"));
            }
            sources.receivers.push(inflow);
            for step in steps {
                match step.processor.emitter() {
                    Some(emitter) => {
                        let aggregated = emitter.aggregated();
                        if !sources.aggregated.iter().any(|it| Arc::ptr_eq(it, &aggregated)) {
                            sources.aggregated.push(aggregated);
                        }
                    }
                    None if step.processor.keeps_points() => {}
                    None => {
                        let id = &step.id;
                        return Err(format!(
                            "the processor `{id}` may change the number of points"
                        ));
                    }
                }
            }
        }
        Ok(sources)
    }

    /// Differs when something else feeds the delivery, or counts.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.has_names.hash(&mut hasher);
        for Inflow { receiver, counters, steps } in &self.inflows {
            (receiver, Arc::as_ptr(counters).cast::<()>()).hash(&mut hasher);
            for step in steps.iter().filter(|step| !step.processor.keeps_points()) {
                let emitter = step.processor.emitter();
                let counts = emitter.map(|emitter| Arc::as_ptr(&emitter.aggregated()));
                (&step.id, counts).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

/// All figures at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// By receiver.
    pub received: Vec<(String, Counts)>,
    pub sheets: Vec<Sheet>,
    /// They changed while they were read.
    pub is_moving: bool,
}

impl Ledger {
    pub(crate) fn read(receivers: &Receivers, fed: &[Fed]) -> Ledger {
        let mut ledger = Ledger::read_once(receivers, fed);
        for _ in 1..READINGS {
            let again = Ledger::read_once(receivers, fed);
            if again == ledger {
                return ledger;
            }
            ledger = again;
        }
        ledger.is_moving = true;
        ledger
    }

    fn read_once(receivers: &Receivers, fed: &[Fed]) -> Ledger {
        let received = receivers.iter().filter_map(|(id, counters)| {
            let received = counters.received()?;
            Some((id.clone(), received.read()))
        });
        let fed = fed.iter().filter(|fed| fed.is_in_ledger());
        Ledger {
            received: received.collect(),
            sheets: fed.map(Sheet::read).collect(),
            is_moving: false,
        }
    }
}
