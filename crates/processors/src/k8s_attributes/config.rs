//! The options, with the Collector's names and meanings.

use std::time::Duration;

use sluice_config::{Fields, Pattern};
use sluice_kubernetes::Access;

use super::association::{Association, Source};
use super::rules::{Field, From, METADATA, Metadata, Rules};
use crate::fingerprint::Fingerprint;

const GRACE: Duration = Duration::from_secs(120);
const SYNC_PERIOD: Duration = Duration::from_secs(300);
/// Pods that are left out unless the configuration names others.
const EXCLUDED: [&str; 2] = ["jaeger-agent", "jaeger-collector"];
/// Sources of an association.
const SOURCES_LIMIT: usize = 4;

pub(super) struct Options {
    pub(super) access: Access,
    pub(super) passthrough: bool,
    pub(super) rules: Rules,
    /// Pods of this namespace only.
    pub(super) namespace: Option<String>,
    /// Pods of this node only.
    pub(super) node: Option<String>,
    /// Selectors as the API has them.
    pub(super) label_selector: String,
    pub(super) field_selector: String,
    pub(super) associations: Vec<Association>,
    pub(super) excluded: Vec<Pattern>,
    /// Time for all objects to be listed at the start. `None`: nothing waits for it.
    pub(super) wait_for_metadata: Option<Duration>,
    pub(super) grace: Duration,
    /// All options as they count for the fingerprint.
    text: String,
}

impl Options {
    pub(super) fn read(fields: &mut Fields<'_>) -> Options {
        let access = Access::read(fields);
        let doc = "Only set `k8s.pod.ip`, from the sender's address. The API server is not asked.";
        let passthrough = fields.boolean("passthrough", false, doc);
        let rules = fields.section_or_default("extract", "What is added.", read_rules);
        let doc = "Which pods are known. All others are as if they were not there.";
        let (node, namespace, label_selector, field_selector) =
            fields.section_or_default("filter", doc, read_filter);
        let associations = read_associations(fields);
        let excluded = fields.section_or_default("exclude", "Pods that are left out.", |fields| {
            let doc = "Regular expressions that match names of pods. Unset: `jaeger-agent` and \
                       `jaeger-collector`.";
            fields.sections("pods", doc, |fields| {
                let doc = "Matches anywhere in the name.";
                fields.parsed("name", "a regular expression", None, doc, Pattern::new)
            })
        });
        let mut excluded: Vec<Pattern> = excluded.into_iter().flatten().collect();
        if excluded.is_empty() {
            excluded = EXCLUDED.iter().filter_map(|name| Pattern::new(name).ok()).collect();
        }
        let doc = "Begin to receive when all objects are known. If they are not in time, the start \
                   or the reload fails.";
        let waits = fields.boolean("wait_for_metadata", false, doc);
        let doc = "Time for that.";
        let timeout = fields.duration("wait_for_metadata_timeout", Duration::from_secs(10), doc);
        let doc = "Time for which a pod that is gone is still known.";
        let grace = fields.duration("pod_delete_grace_period", GRACE, doc);
        let doc = "The Collector looks at all objects again after this time. Here only changes \
                   cost anything: it has no effect.";
        let period = fields.duration("watch_sync_period", SYNC_PERIOD, doc);
        if fields.is_given("watch_sync_period") && !period.is_zero() {
            fields.warn_at("watch_sync_period", "has no effect: objects are looked at on changes");
        }
        let why = "each kind of object is listed once, and then watched";
        fields.no_effect("kube_api_qps", why);
        fields.no_effect("kube_api_burst", why);
        let mut options = Options {
            access,
            passthrough,
            rules,
            namespace,
            node,
            label_selector,
            field_selector,
            associations,
            excluded,
            wait_for_metadata: waits.then_some(timeout),
            grace,
            text: String::new(),
        };
        options.text = options.shown();
        options
    }

    /// Everything that decides what is added; not how long is waited for it.
    fn shown(&self) -> String {
        let excluded: Vec<&str> = self.excluded.iter().map(Pattern::text).collect();
        format!(
            "{:?} {} {:?} {:?} {:?} {:?} {:?} {:?} {excluded:?} {:?}",
            self.access,
            self.passthrough,
            self.rules,
            self.namespace,
            self.node,
            self.label_selector,
            self.field_selector,
            self.associations,
            self.grace,
        )
    }

    pub(super) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.add(&self.text);
    }

    pub(super) fn reads_address(&self) -> bool {
        self.associations.is_empty()
            || self.associations.iter().any(|it| it.0.contains(&Source::Connection))
    }
}

fn read_rules(fields: &mut Fields<'_>) -> Rules {
    let defaults: Vec<&str> = METADATA.iter().filter(|it| it.2).map(|(name, ..)| *name).collect();
    let doc = "Attributes that are added. Others of the pod's kind of object are listed below.";
    let names = fields.string_list("metadata", &defaults, doc);
    let mut metadata = Vec::new();
    for name in names {
        match METADATA.iter().find(|(known, ..)| **known == *name) {
            Some((_, field, _)) => metadata.push(*field),
            None => {
                let message = format!("has `{name}`, which is no attribute that can be added");
                let names: Vec<&str> = METADATA.iter().map(|(name, ..)| *name).collect();
                let hint = format!("there are {}", names.join(", "));
                fields.error_at_with_hint("metadata", &message, &hint);
            }
        }
    }
    let doc = "Labels of objects that become attributes.";
    let labels = fields.sections("labels", doc, |fields| read_field(fields, "labels"));
    let doc = "Annotations of objects that become attributes.";
    let annotations =
        fields.sections("annotations", doc, |fields| read_field(fields, "annotations"));
    let doc = "Annotations `resource.opentelemetry.io/NAME` of pods become the attributes `NAME`.";
    let otel_annotations = fields.boolean("otel_annotations", false, doc);
    let mut annotations: Vec<Field> = annotations.into_iter().flatten().collect();
    if otel_annotations {
        annotations.extend(Field::otel_annotations());
    }
    Rules {
        metadata: Metadata::of(&metadata),
        labels: labels.into_iter().flatten().collect(),
        annotations,
    }
}

fn read_field(fields: &mut Fields<'_>, what: &str) -> Option<Field> {
    let singular = what.trim_end_matches('s');
    let doc = format!(
        "Name of the attribute; with `key_regex` it may have groups, as `$1`. Unset: \
         `k8s.<from>.{what}.<key>`, for workloads `k8s.<from>.{singular}.<key>`."
    );
    let name = fields.string("tag_name", "", &doc);
    let key = fields.string("key", "", &format!("Key of the {singular}."));
    let doc = "Regular expression that matches whole keys, instead of `key`.";
    let regex = fields.string("key_regex", "", doc);
    let choices = From::ALL.map(|from| (from.name(), from));
    let from = fields.choice("from", From::Pod, &choices, "The object that has it.");
    if !key.is_empty() && !regex.is_empty() {
        fields.error_at("key_regex", "and `key` cannot be given both");
        return None;
    }
    if regex.is_empty() {
        return Some(Field::of_key(from, name, key));
    }
    Field::of_regex(from, name, &regex)
        .map_err(|reason| fields.error_at("key_regex", &format!("cannot be used: {reason}")))
        .ok()
}

type Filter = (Option<String>, Option<String>, String, String);

fn read_filter(fields: &mut Fields<'_>) -> Filter {
    let mut node = fields.non_empty_string("node", "Pods of this node.");
    let doc = "Variable of the environment that has the name of the node: see `fieldRef` of pods.";
    if let Some(variable) = fields.non_empty_string("node_from_env_var", doc) {
        match std::env::var(&variable) {
            Ok(name) => node = Some(name).filter(|name| !name.is_empty()),
            Err(_) if fields.is_describing() => {}
            Err(_) => {
                let message = format!("names the variable `{variable}`, which is not set");
                let hint = "set it from `spec.nodeName` by `fieldRef` in the pod";
                fields.error_at_with_hint("node_from_env_var", &message, hint);
            }
        }
    }
    let namespace = fields.non_empty_string("namespace", "Pods of this namespace.");
    let label_ops = [
        ("equals", Op::Equals),
        ("not-equals", Op::NotEquals),
        ("exists", Op::Exists),
        ("does-not-exist", Op::DoesNotExist),
    ];
    let doc = "Pods whose labels fit all of these.";
    let labels = fields.sections("labels", doc, |fields| read_term(fields, &label_ops));
    let doc = "Pods whose fields fit all of these. The API server knows `metadata.name`, \
               `metadata.namespace`, `spec.nodeName`, `spec.serviceAccountName`, `status.phase`, \
               `status.podIP` and a few others.";
    let field_terms = fields.sections("fields", doc, |fields| read_term(fields, &label_ops[..2]));
    let of_node = node.iter().map(|node| format!("spec.nodeName={}", escaped(node)));
    let field_terms: Vec<String> = field_terms.into_iter().flatten().chain(of_node).collect();
    let labels: Vec<String> = labels.into_iter().flatten().collect();
    (node, namespace, labels.join(","), field_terms.join(","))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Equals,
    NotEquals,
    Exists,
    DoesNotExist,
}

fn read_term(fields: &mut Fields<'_>, ops: &[(&str, Op)]) -> Option<String> {
    let key = fields.required_string("key", "The key.");
    let value = fields.string("value", "", "The value.");
    let op = fields.choice("op", Op::Equals, ops, "The condition.");
    if key.is_empty() {
        return None;
    }
    let is_of_fields = ops.len() == 2;
    let value = if is_of_fields { escaped(&value) } else { value };
    Some(match op {
        Op::Equals => format!("{key}={value}"),
        Op::NotEquals => format!("{key}!={value}"),
        Op::Exists => key,
        Op::DoesNotExist => format!("!{key}"),
    })
}

/// A value in a selector of fields.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

fn read_associations(fields: &mut Fields<'_>) -> Vec<Association> {
    let doc = "Rules by which a pod is found. The first one all of whose sources are there counts. \
               Unset: `k8s.pod.ip`, `ip`, the sender's address, `host.name` if that is one.";
    let associations = fields.sections("pod_association", doc, |fields| {
        let doc = "Facts that the pod must all have; at most 4.";
        let sources = fields.sections("sources", doc, read_source);
        if sources.len() > SOURCES_LIMIT {
            let message =
                format!("has {} items: at most {SOURCES_LIMIT} can be used", sources.len());
            fields.error_at("sources", &message);
        }
        Association(sources.into_iter().flatten().collect())
    });
    for (at, association) in associations.iter().enumerate() {
        if associations[..at].iter().any(|other| other.is_same(association)) {
            let message = format!("has the same sources twice: {association}");
            fields.error_at("pod_association", &message);
        }
    }
    associations.into_iter().filter(|association| !association.0.is_empty()).collect()
}

fn read_source(fields: &mut Fields<'_>) -> Option<Source> {
    let choices = [("connection", true), ("resource_attribute", false)];
    let doc = "`connection` is the sender's address: the processor has to come before `batch`.";
    let is_connection = fields.optional_choice("from", &choices, doc);
    let doc = "Name of the attribute, for `resource_attribute`: `k8s.pod.uid`, `k8s.pod.ip`, \
               `k8s.pod.name`, `k8s.namespace.name`, `host.name`, `container.id`, or any that \
               `extract` adds to pods.";
    let name = fields.string("name", "", doc);
    match is_connection {
        None => {
            if !fields.is_present("from") {
                fields.error_missing("from");
            }
            None
        }
        Some(true) => Some(Source::Connection),
        Some(false) => {
            if name.is_empty() {
                fields.error_missing("name");
            }
            Some(Source::Attribute(name.into()))
        }
    }
}
