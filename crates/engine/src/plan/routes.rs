//! From pipelines to ways: which processors lie between a receiver and each exporter, through `forward` connectors too.

use std::collections::BTreeMap;

use sluice_otlp::Signal;

use crate::delivery::DeliveryId;

/// A pipeline as the configuration has it, ids as written there.
#[derive(Clone, Debug)]
pub struct PipelineSpec {
    pub id: String,
    pub signal: Signal,
    pub receivers: Vec<String>,
    pub processors: Vec<String>,
    pub exporters: Vec<String>,
}

/// One way from a receiver to a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    pub signal: Signal,
    pub receiver: String,
    /// Processors of all pipelines on the way, in order.
    pub processors: Vec<String>,
    pub delivery: DeliveryId,
}

/// All ways, in the order of the pipelines. The configuration's checks have ruled out cycles; a bound on the length
/// stands in for them here.
pub(super) fn ways(pipelines: &[PipelineSpec], is_connector: impl Fn(&str) -> bool) -> Vec<Way> {
    let mut ways = Vec::new();
    for pipeline in pipelines {
        for receiver in pipeline.receivers.iter().filter(|id| !is_connector(id)) {
            follow(pipelines, pipeline, receiver, Vec::new(), &is_connector, pipelines.len(), &mut ways);
        }
    }
    ways
}

fn follow(
    pipelines: &[PipelineSpec],
    pipeline: &PipelineSpec,
    receiver: &str,
    mut processors: Vec<String>,
    is_connector: &impl Fn(&str) -> bool,
    depth_left: usize,
    ways: &mut Vec<Way>,
) {
    processors.extend(pipeline.processors.iter().cloned());
    for exporter in &pipeline.exporters {
        if !is_connector(exporter) {
            let delivery = DeliveryId { pipeline: pipeline.id.clone(), exporter: exporter.clone() };
            let receiver = receiver.to_owned();
            ways.push(Way { signal: pipeline.signal, receiver, processors: processors.clone(), delivery });
        } else if depth_left > 0 {
            let fed =
                pipelines.iter().filter(|next| next.signal == pipeline.signal && next.receivers.contains(exporter));
            for next in fed {
                follow(pipelines, next, receiver, processors.clone(), is_connector, depth_left - 1, ways);
            }
        }
    }
}

/// The ways by receiver and signal.
pub(crate) fn by_receiver(ways: &[Way]) -> BTreeMap<(&str, Signal), Vec<&Way>> {
    let mut grouped: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for way in ways {
        grouped.entry((way.receiver.as_str(), way.signal)).or_default().push(way);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(id: &str, receivers: &[&str], processors: &[&str], exporters: &[&str]) -> PipelineSpec {
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
        let ways = ways(&pipelines, |id| id == "forward");
        let shown: Vec<_> =
            ways.iter().map(|way| format!("{} {:?} {}", way.receiver, way.processors, way.delivery)).collect();
        assert_eq!(
            shown,
            [
                r#"otlp ["a", "b"] traces/out → otlp"#,
                r#"otlp ["a"] traces/in → debug"#,
                r#"otlp/2 ["b"] traces/out → otlp"#,
            ]
        );
        assert_eq!(by_receiver(&ways).len(), 2);
    }
}
