//! Processors that give out points by themselves: a task for each, and their end.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_otlp::Signal;
use tokio::task::JoinHandle;

use super::Engine;
use crate::ack::Awaited;
use crate::intake::{Emitting, Route};
use crate::plan::Plan;
use crate::steps;

pub(super) struct RunningEmitter {
    emitting: Arc<Emitting>,
    task: JoinHandle<()>,
}

impl Drop for RunningEmitter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Engine {
    /// Lets the processors of a plan write to its deliveries. Those of the plan before stop.
    pub(super) fn apply_emitters(&mut self, plan: &Plan) {
        self.emitters.clear();
        let mut known = BTreeSet::new();
        let mut emitters = Vec::new();
        for ((receiver, signal), paths) in crate::plan::by_receiver(&plan.paths) {
            let Some(intake) = self.intakes.get(receiver) else { continue };
            let chains: Vec<Vec<_>> = paths.iter().map(|path| plan.steps_of(path)).collect();
            let prefix = steps::common_prefix(&chains);
            for (index, step) in prefix.iter().enumerate() {
                // The receivers that share it feed the same deliveries: the plan says so.
                if step.processor.emitter().is_none() || !known.insert((step.id.clone(), signal)) {
                    continue;
                }
                let route = self.route(plan, receiver, signal, &paths);
                let (behind, awaited) = (prefix[index + 1..].to_vec(), Awaited::default());
                // No sender waits for what is written.
                let route = Route { prefix: behind, awaited: Arc::new(awaited), ..route };
                let emitting = Arc::new(intake.emitting(signal, step.clone(), route));
                emitting.begin();
                let task = tokio::spawn(emitting.clone().run());
                emitters.push(RunningEmitter { emitting, task });
            }
        }
        self.emitters = emitters;
    }

    /// Before another plan is applied: processors that it does not have write all that they keep,
    /// to the deliveries that they have now.
    pub(super) fn end_emitters_not_in(&self, plan: &Plan) {
        let ids = |path: &crate::plan::Path| {
            let signal = path.signal;
            plan.steps_of(path).into_iter().map(move |step| (step.id.clone(), signal))
        };
        let stays: BTreeSet<(String, Signal)> = plan.paths.iter().flat_map(ids).collect();
        for running in &self.emitters {
            let key = (running.emitting.step().id.clone(), running.emitting.signal());
            if !stays.contains(&key) {
                running.emitting.end();
            }
        }
    }

    /// All processors write what they keep. What one writes may go through a later one.
    pub(super) fn end_emitters(&mut self) {
        for running in std::mem::take(&mut self.emitters) {
            running.task.abort();
            running.emitting.end();
        }
    }
}
