//! From pipelines to paths: which processors lie between a receiver and each exporter, through
//! `forward` connectors too.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_otlp::Signal;

use super::ReceiverPlan;
use crate::delivery::DeliveryId;
use crate::steps::Step;

/// A pipeline as the configuration has it, ids as written there.
#[derive(Clone, Debug)]
pub struct PipelineSpec {
    pub id: String,
    pub signal: Signal,
    pub receivers: Vec<String>,
    pub processors: Vec<String>,
    pub exporters: Vec<String>,
}

/// One path from a receiver to a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    pub signal: Signal,
    pub receiver: String,
    /// Processors of all pipelines on the path, in order.
    pub processors: Vec<String>,
    pub delivery: DeliveryId,
}

impl Path {
    /// Its processors that give out points by themselves, each with its place. Sources take the
    /// points in a bucket for resolved, so that what becomes of them is not read again.
    pub(super) fn emitting<'p>(
        &'p self,
        steps: &'p BTreeMap<(String, Signal), Arc<Step>>,
    ) -> impl Iterator<Item = (usize, &'p String)> {
        let emits = |(_, id): &(usize, &String)| {
            let step = steps.get(&((*id).clone(), self.signal));
            step.is_some_and(|step| step.processor.emitter().is_some())
        };
        self.processors.iter().enumerate().filter(emits)
    }

    pub(super) fn emits(&self, steps: &BTreeMap<(String, Signal), Arc<Step>>) -> bool {
        self.emitting(steps).next().is_some()
    }
}

pub(super) fn paths_to<'p>(
    paths: &'p [Path],
    delivery: &DeliveryId,
) -> impl Iterator<Item = &'p Path> {
    paths.iter().filter(move |path| path.delivery == *delivery)
}

pub(super) fn receivers_of<'p>(
    receivers: &'p [ReceiverPlan],
    paths: &'p [Path],
    delivery: &DeliveryId,
) -> impl Iterator<Item = &'p ReceiverPlan> {
    let feeds = move |receiver: &&ReceiverPlan| {
        paths_to(paths, delivery).any(|path| path.receiver == receiver.id)
    };
    receivers.iter().filter(feeds)
}

/// All paths, in the order of the pipelines. The configuration's checks have ruled out cycles.
pub(super) fn paths(pipelines: &[PipelineSpec], is_connector: impl Fn(&str) -> bool) -> Vec<Path> {
    let mut paths = Vec::new();
    for pipeline in pipelines {
        for receiver in pipeline.receivers.iter().filter(|id| !is_connector(id)) {
            follow(pipelines, pipeline, receiver, &[], &is_connector, &mut paths);
        }
    }
    paths
}

fn follow(
    pipelines: &[PipelineSpec],
    pipeline: &PipelineSpec,
    receiver: &str,
    before: &[String],
    is_connector: &impl Fn(&str) -> bool,
    paths: &mut Vec<Path>,
) {
    let processors = [before, &pipeline.processors].concat();
    let signal = pipeline.signal;
    for exporter in &pipeline.exporters {
        if is_connector(exporter) {
            let is_fed =
                |next: &&PipelineSpec| next.signal == signal && next.receivers.contains(exporter);
            for next in pipelines.iter().filter(is_fed) {
                follow(pipelines, next, receiver, &processors, is_connector, paths);
            }
        } else {
            let (receiver, processors) = (receiver.to_owned(), processors.clone());
            let delivery = DeliveryId { pipeline: pipeline.id.clone(), exporter: exporter.clone() };
            paths.push(Path { signal, receiver, processors, delivery });
        }
    }
}

pub(crate) fn by_receiver(paths: &[Path]) -> BTreeMap<(&str, Signal), Vec<&Path>> {
    let mut grouped: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for path in paths {
        grouped.entry((path.receiver.as_str(), path.signal)).or_default().push(path);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(
        id: &str,
        receivers: &[&str],
        processors: &[&str],
        exporters: &[&str],
    ) -> PipelineSpec {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        PipelineSpec {
            id: id.to_owned(),
            signal: Signal::Traces,
            receivers: owned(receivers),
            processors: owned(processors),
            exporters: owned(exporters),
        }
    }

    #[test]
    fn a_forward_connector_joins_the_processors_of_both_pipelines() {
        let pipelines = [
            pipeline("traces/in", &["otlp"], &["a"], &["forward", "debug"]),
            pipeline("traces/out", &["forward", "otlp/2"], &["b"], &["otlp"]),
        ];
        let paths = paths(&pipelines, |id| id == "forward");
        let shown: Vec<_> = paths
            .iter()
            .map(|path| format!("{} {:?} {}", path.receiver, path.processors, path.delivery))
            .collect();
        assert_eq!(
            shown,
            [
                r#"otlp ["a", "b"] traces/out → otlp"#,
                r#"otlp ["a"] traces/in → debug"#,
                r#"otlp/2 ["b"] traces/out → otlp"#,
            ]
        );
        assert_eq!(by_receiver(&paths).len(), 2);
    }
}
