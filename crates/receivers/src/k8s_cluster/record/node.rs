//! Nodes. Options name metrics of their conditions and of what can be allocated.

use sluice_kubernetes::objects::observed::ObservedNode;

use super::super::recorder::{Recorder, Value};
use super::super::tables::{Attribute, Metric};
use super::pod::cores;

/// The metrics that options name.
#[derive(Clone, Default)]
pub(in crate::k8s_cluster) struct NodeMetrics {
    conditions: Vec<Named>,
    allocatable: Vec<Named>,
}

#[derive(Clone)]
struct Named {
    /// As the API has it.
    kind: String,
    metric: String,
    unit: String,
    description: String,
}

impl NodeMetrics {
    /// Types of conditions, and names of resources.
    pub(in crate::k8s_cluster) fn new(
        conditions: Vec<String>,
        allocatable: Vec<String>,
    ) -> NodeMetrics {
        let condition = |kind: String| Named {
            metric: format!("k8s.node.condition_{}", snake(&kind)),
            unit: String::new(),
            description: format!(
                "{kind} condition status of the node (true=1, false=0, unknown=-1)"
            ),
            kind,
        };
        let allocatable_of = |kind: String| Named {
            metric: format!("k8s.node.allocatable_{}", snake(&kind)),
            unit: match kind.as_str() {
                "memory" | "ephemeral-storage" | "storage" => "By".to_owned(),
                "pods" => "{pod}".to_owned(),
                other => format!("{{{other}}}"),
            },
            description: format!("Amount of {kind} allocatable on the node"),
            kind,
        };
        NodeMetrics {
            conditions: conditions.into_iter().map(condition).collect(),
            allocatable: allocatable.into_iter().map(allocatable_of).collect(),
        }
    }

    pub(in crate::k8s_cluster) fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.allocatable.is_empty()
    }
}

pub(super) fn record(node: &ObservedNode, named: &NodeMetrics, out: &mut Recorder<'_>) {
    let status = &node.status;
    for metric in &named.conditions {
        let found = status.conditions.iter().find(|it| *it.kind == *metric.kind);
        let value = Value::Int(found.map_or(-1, |it| number_of(&it.status)));
        out.own_gauge(&metric.metric, &metric.unit, &metric.description, value);
    }
    for metric in &named.allocatable {
        let found = status.allocatable.0.iter().find(|(name, _)| **name == *metric.kind);
        let Some((name, amount)) = found else { continue };
        let value = match &**name {
            "cpu" => Value::Double(cores(*amount)),
            _ => Value::Int(amount.units()),
        };
        out.own_gauge(&metric.metric, &metric.unit, &metric.description, value);
    }
    let (id, facts) = (&node.metadata.uid, facts(node));
    for (at, value) in [(Attribute::NodeUid, &**id)].iter().chain(&facts) {
        let is_known =
            !matches!(at, Attribute::ContainerRuntime | Attribute::ContainerRuntimeVersion)
                || !value.is_empty();
        if is_known {
            out.attribute(*at, value);
        }
    }
    out.finish();
    out.entity("k8s.node", (Attribute::NodeUid, id), &facts);
    for condition in &status.conditions {
        let value = Value::Int(number_of(&condition.status));
        out.point(Metric::NodeCondition, value, &[("condition", &condition.kind)]);
    }
    out.finish();
}

fn facts(node: &ObservedNode) -> [(Attribute, &str); 6] {
    let info = &node.status.node_info;
    let (runtime, version) = info.container_runtime_version.split_once("://").unwrap_or(("", ""));
    [
        (Attribute::NodeName, &node.metadata.name),
        (Attribute::KubeletVersion, &info.kubelet_version),
        (Attribute::ContainerRuntime, runtime),
        (Attribute::ContainerRuntimeVersion, version),
        (Attribute::OsDescription, &info.os_image),
        (Attribute::OsType, &info.operating_system),
    ]
}

fn number_of(status: &str) -> i64 {
    match status {
        "True" => 1,
        "Unknown" => -1,
        _ => 0,
    }
}

/// `MemoryPressure` to `memory_pressure`, `PIDPressure` to `pid_pressure`, and numbers are words.
fn snake(text: &str) -> String {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Class {
        Upper,
        Lower,
        Digit,
        Other,
    }
    use Class::*;
    let class = |it: char| match it {
        'A'..='Z' => Upper,
        'a'..='z' => Lower,
        '0'..='9' => Digit,
        _ => Other,
    };
    let mut snake = String::new();
    let mut before = Other;
    let mut characters = text.trim().chars().peekable();
    while let Some(character) = characters.next() {
        let (this, next) = (class(character), characters.peek().map_or(Other, |it| class(*it)));
        if before == Upper && this == Upper && next == Lower {
            snake.push('_');
        }
        let is_separator = matches!(character, ' ' | '_' | '-' | '.');
        snake.push(if is_separator { '_' } else { character.to_ascii_lowercase() });
        let ends = match this {
            Lower => matches!(next, Upper | Digit),
            Digit => matches!(next, Upper | Lower),
            Upper => next == Digit,
            Other => false,
        };
        if ends {
            snake.push('_');
        }
        before = this;
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: metrics have the names that the Collector gives them.
    #[test]
    fn names_of_the_api_become_names_of_metrics() {
        for (text, expected) in [
            ("Ready", "ready"),
            ("MemoryPressure", "memory_pressure"),
            ("PIDPressure", "pid_pressure"),
            ("ephemeral-storage", "ephemeral_storage"),
            ("hugepages-2Mi", "hugepages_2_mi"),
            ("nvidia.com/gpu", "nvidia_com/gpu"),
            ("A", "a"),
            ("AB1c", "ab_1_c"),
            ("JSONData", "json_data"),
            (" x y ", "x_y"),
            ("", ""),
        ] {
            assert_eq!(snake(text), expected, "{text}");
        }
        let metrics = NodeMetrics::new(
            vec!["Ready".to_owned()],
            ["cpu", "memory", "pods", "x/y"].map(str::to_owned).to_vec(),
        );
        assert_eq!(metrics.conditions[0].metric, "k8s.node.condition_ready");
        let units: Vec<&str> = metrics.allocatable.iter().map(|it| it.unit.as_str()).collect();
        assert_eq!(units, ["{cpu}", "By", "{pod}", "{x/y}"]);
        assert_eq!(metrics.allocatable[1].metric, "k8s.node.allocatable_memory");
    }
}
