//! The options, with the Collector's names and meanings.

use std::time::Duration;

use sluice_config::Fields;
use sluice_kubernetes::Access;

use super::record::NodeMetrics;
use super::recorder::Choice;
use super::tables::{ATTRIBUTES, METRICS};

const INTERVAL: Duration = Duration::from_secs(10);
/// Shorter ones would only repeat what is known.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_INTERVAL: Duration = Duration::from_secs(86_400);

#[derive(Clone)]
pub(super) struct Options {
    pub(super) access: Access,
    pub(super) interval: Duration,
    pub(super) nodes: NodeMetrics,
    /// OpenShift has quotas of its own.
    pub(super) is_openshift: bool,
    /// Empty: all, and the objects that are in none.
    pub(super) namespaces: Vec<String>,
    pub(super) choice: Choice,
}

impl Options {
    pub(super) fn read(fields: &mut Fields<'_>) -> Options {
        let access = Access::read(fields);
        let doc = "Time from one collection of metrics to the next.";
        let interval = fields.duration_in(
            "collection_interval",
            INTERVAL,
            SHORTEST_INTERVAL..=LONGEST_INTERVAL,
            doc,
        );
        let doc = "Types of conditions of nodes, each of which becomes a metric: \
                   `k8s.node.condition_ready`. Its value is 1 if it is true, 0 if not, -1 if it is \
                   unknown.";
        let conditions = fields.string_list("node_conditions_to_report", &["Ready"], doc);
        let doc = "Resources of nodes, the allocatable amount of each of which becomes a metric: \
                   `cpu`, `memory`, `ephemeral-storage`, `pods` or any other.";
        let allocatable = fields.string_list("allocatable_types_to_report", &[], doc);
        let distributions = [("kubernetes", false), ("openshift", true)];
        let doc = "With `openshift`, metrics of its `clusterresourcequotas` come, too.";
        let is_openshift = fields.choice("distribution", false, &distributions, doc);
        let namespaces = read_namespaces(fields);
        if !namespaces.is_empty() {
            let of_cluster =
                ["node_conditions_to_report", "allocatable_types_to_report", "distribution"];
            for key in of_cluster {
                if fields.is_given(key) {
                    let message = "has no effect: with `namespaces`, only objects in these count";
                    fields.warn_at(key, message);
                }
            }
        }
        let choice = Choice::read(fields, METRICS, ATTRIBUTES);
        let instead = "entities of objects; take their metadata from `k8s_attributes`";
        fields.not_yet("metadata_exporters", instead);
        fields.no_effect("metadata_collection_interval", "there are no events of entities");
        let instead = "leader election; let one process have this receiver: a Deployment with one \
                       replica";
        fields.not_yet("k8s_leader_elector", instead);
        let why = "each kind of object is listed once, and then watched";
        fields.no_effect("kube_api_qps", why);
        fields.no_effect("kube_api_burst", why);
        let nodes = NodeMetrics::new(conditions, allocatable);
        Options { access, interval, nodes, is_openshift, namespaces, choice }
    }
}

fn read_namespaces(fields: &mut Fields<'_>) -> Vec<String> {
    let doc = "Only objects in these namespaces: a Role in each is enough. Nodes, namespaces, \
               volumes and quotas of a cluster are left out. Unset: all objects.";
    let mut namespaces = fields.string_list("namespaces", &[], doc);
    let doc = "One such namespace; use `namespaces`.";
    if let Some(namespace) = fields.non_empty_string("namespace", doc) {
        if namespaces.is_empty() {
            fields.warn_at("namespace", "is deprecated: use `namespaces`");
            namespaces = vec![namespace];
        } else {
            fields.warn_at("namespace", "has no effect: `namespaces` is given");
        }
    }
    if namespaces.iter().any(String::is_empty) {
        fields.error_at("namespaces", "has a name that is empty");
    }
    namespaces.sort();
    namespaces.dedup();
    namespaces
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::*;

    fn read(text: &str) -> (Options, Vec<String>) {
        let (options, diagnostics) = read_text("receivers.k8s_cluster", text, Options::read);
        let said = diagnostics.items().iter().map(|item| diagnostics.line(item)).collect();
        (options, said)
    }

    #[test]
    fn defaults_are_the_collectors() {
        let (options, said) = read("");
        assert_eq!(said, Vec::<String>::new());
        assert_eq!(options.interval, Duration::from_secs(10));
        assert!(!options.nodes.is_empty() && !options.is_openshift);
        assert!(matches!(options.access, Access::ServiceAccount));
        let sent = METRICS.iter().filter(|row| row.is_sent);
        for row in sent.clone() {
            assert!(options.choice.has(row.name), "{}", row.name);
        }
        assert_eq!((METRICS.len(), sent.count()), (54, 42));
        let sent = ATTRIBUTES.iter().filter(|row| row.is_sent).count();
        assert_eq!((ATTRIBUTES.len(), sent), (51, 38));
    }

    #[test]
    fn metrics_are_chosen_by_name() {
        let (options, said) = read(
            "metrics: {k8s.pod.phase: {enabled: false}, k8s.node.condition: {enabled: true}}\n\
             node_conditions_to_report: []\nnamespaces: [b, a, b]\n",
        );
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("node_conditions_to_report` has no effect"), "{said:?}");
        assert!(!options.choice.has("k8s.pod.") && options.choice.has("k8s.node."));
        assert!(options.nodes.is_empty());
        assert_eq!(options.namespaces, ["a", "b"]);
    }

    /// Guarantee: what is not built, or is no name of anything, is an error or a warning.
    #[test]
    fn options_that_are_not_built_are_named() {
        for (text, expected) in [
            ("k8s_leader_elector: x", "`receivers.k8s_cluster.k8s_leader_elector` is not in this"),
            ("metadata_exporters: [x]", "metadata_exporters` is not in this build"),
            ("metadata_collection_interval: 5m", "has no effect: there are no events of entities"),
            ("distribution: eks", "distribution` must be"),
            ("collection_interval: 0s", "collection_interval` must be"),
            ("namespace: x", "is deprecated: use `namespaces`"),
            ("{namespace: x, namespaces: [y]}", "has no effect: `namespaces` is given"),
            ("namespaces: ['']", "has a name that is empty"),
            ("metrics: {k8s.pod.phas: {enabled: true}}", "is no metric of this receiver"),
            ("metrics: {k8s.pod.phase: {on: true}}", "has no option `on`"),
            ("resource_attributes: {x: {enabled: true}}", "is no resource attribute of this"),
            ("resource_attributes: {os.type: {metrics_include: [{}]}}", "needs either `strict`"),
            (
                "metrics: {k8s.service.endpoint.count: {aggregation_strategy: sum}}",
                "aggregation_strategy` is not in this build",
            ),
        ] {
            let (_, said) = read(text);
            assert!(said.len() == 1 && said[0].contains(expected), "{text}: {said:?}");
        }
        assert_eq!(read("metadata_exporters: []").1, Vec::<String>::new());
    }
}
