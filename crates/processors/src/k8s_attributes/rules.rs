//! Rules by which attributes are extracted of objects.

use std::fmt;
use std::sync::Arc;

use regex::Regex;
use sluice_config::Pattern;
use sluice_kubernetes::objects::Meta;

pub(super) type Text = Arc<str>;

/// Attributes in the order in which they are added. They have different keys.
pub(super) type Attributes = Vec<(Text, Text)>;

macro_rules! metadata {
    ($(($name:literal, $field:ident, $default:literal)),* $(,)?) => {
        /// An attribute that can be asked for by its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum MetadataField {
            $($field),*
        }

        /// All of them, with their names, and whether they are added by default.
        pub(super) const METADATA: [(&str, MetadataField, bool); 31] =
            [$(($name, MetadataField::$field, $default)),*];
    };
}

metadata![
    ("k8s.namespace.name", Namespace, true),
    ("k8s.pod.name", PodName, true),
    ("k8s.pod.uid", PodUid, true),
    ("k8s.pod.hostname", PodHostname, false),
    ("k8s.pod.ip", PodIp, false),
    ("k8s.pod.start_time", StartTime, true),
    ("k8s.replicaset.uid", ReplicaSetUid, false),
    ("k8s.replicaset.name", ReplicaSetName, false),
    ("k8s.deployment.uid", DeploymentUid, false),
    ("k8s.deployment.name", DeploymentName, true),
    ("k8s.daemonset.uid", DaemonSetUid, false),
    ("k8s.daemonset.name", DaemonSetName, false),
    ("k8s.statefulset.uid", StatefulSetUid, false),
    ("k8s.statefulset.name", StatefulSetName, false),
    ("k8s.cronjob.uid", CronJobUid, false),
    ("k8s.cronjob.name", CronJobName, false),
    ("k8s.job.uid", JobUid, false),
    ("k8s.job.name", JobName, false),
    ("k8s.node.name", Node, true),
    ("k8s.node.uid", NodeUid, false),
    ("k8s.cluster.uid", ClusterUid, false),
    ("k8s.container.name", ContainerName, false),
    ("container.id", ContainerId, false),
    ("container.image.name", ContainerImageName, true),
    ("container.image.tag", ContainerImageTag, true),
    ("container.image.tags", ContainerImageTags, false),
    ("container.image.repo_digests", ContainerImageRepoDigests, false),
    ("service.namespace", ServiceNamespace, false),
    ("service.name", ServiceName, false),
    ("service.version", ServiceVersion, false),
    ("service.instance.id", ServiceInstanceId, false),
];

impl MetadataField {
    /// The name of the attribute.
    pub(super) fn name(self) -> &'static str {
        METADATA[self as usize].0
    }
}

/// A set of [`MetadataField`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata(u32);

impl Metadata {
    pub(super) fn of(fields: &[MetadataField]) -> Metadata {
        Metadata(fields.iter().fold(0, |set, field| set | 1 << *field as u32))
    }

    pub(super) fn has(self, field: MetadataField) -> bool {
        self.0 & 1 << field as u32 != 0
    }

    /// Whether there is something of containers.
    pub(super) fn has_containers(self) -> bool {
        use MetadataField::*;
        let all = Metadata::of(&[
            ContainerName,
            ContainerId,
            ContainerImageName,
            ContainerImageTag,
            ContainerImageTags,
            ContainerImageRepoDigests,
            ServiceVersion,
            ServiceInstanceId,
        ]);
        self.0 & all.0 != 0
    }

    /// Whether the containers that a pod is to have are of interest, besides those that it has.
    pub(super) fn has_container_specs(self) -> bool {
        use MetadataField::*;
        let all = Metadata::of(&[
            ContainerImageName,
            ContainerImageTag,
            ContainerImageTags,
            ServiceVersion,
            ServiceInstanceId,
        ]);
        self.0 & all.0 != 0
    }
}

/// The attributes that are extracted.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) metadata: Metadata,
    pub(super) labels: Vec<Field>,
    pub(super) annotations: Vec<Field>,
}

impl Rules {
    /// Whether labels or annotations of these objects are extracted.
    pub(super) fn has(&self, from: From) -> bool {
        self.labels.iter().chain(&self.annotations).any(|field| field.from == from)
    }

    /// The attributes that labels of an object become.
    pub(super) fn labels_of(&self, from: From, meta: &Meta, found: &mut Attributes) {
        for field in self.labels.iter().filter(|field| field.from == from) {
            let pairs = meta.labels.iter().map(|(key, value)| (&**key, &**value));
            field.extract(pairs, from.default_name("label"), found);
        }
    }

    /// The attributes that annotations of an object become.
    pub(super) fn annotations_of(&self, from: From, meta: &Meta, found: &mut Attributes) {
        for field in self.annotations.iter().filter(|field| field.from == from) {
            let pairs = meta.annotations.iter().map(|(key, value)| (&**key, &**value));
            field.extract(pairs, from.default_name("annotation"), found);
        }
    }
}

/// Sets an attribute; one that is there already gets the value.
pub(super) fn set(found: &mut Attributes, key: Text, value: Text) {
    match found.iter_mut().find(|(known, _)| *known == key) {
        Some((_, known)) => *known = value,
        None => found.push((key, value)),
    }
}

/// The kind of object that has a label or an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum From {
    Pod,
    Namespace,
    Node,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
}

impl From {
    pub(super) const ALL: [From; 9] = [
        From::Pod,
        From::Namespace,
        From::Node,
        From::Deployment,
        From::ReplicaSet,
        From::StatefulSet,
        From::DaemonSet,
        From::Job,
        From::CronJob,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            From::Pod => "pod",
            From::Namespace => "namespace",
            From::Node => "node",
            From::Deployment => "deployment",
            From::ReplicaSet => "replicaset",
            From::StatefulSet => "statefulset",
            From::DaemonSet => "daemonset",
            From::Job => "job",
            From::CronJob => "cronjob",
        }
    }

    /// The part of an attribute's name before the key. `what`: label or annotation. Names that the
    /// Collector had before there were conventions have the plural.
    fn default_name(self, what: &str) -> String {
        let plural = match self {
            From::Pod | From::Namespace | From::Node => "s",
            _ => "",
        };
        format!("k8s.{}.{what}{plural}.", self.name())
    }
}

/// Labels or annotations that become attributes.
#[derive(Clone)]
pub(super) struct Field {
    pub(super) from: From,
    /// Empty: the default.
    name: String,
    which: Which,
}

#[derive(Clone)]
enum Which {
    Key(String),
    /// Matches a whole key.
    Regex(Regex),
}

impl fmt::Debug for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = match &self.which {
            Which::Key(key) => key,
            Which::Regex(regex) => regex.as_str(),
        };
        write!(formatter, "{:?} {:?} {which:?}", self.from, self.name)
    }
}

impl Field {
    pub(super) fn of_key(from: From, name: String, key: String) -> Field {
        Field { from, name, which: Which::Key(key) }
    }

    /// # Errors
    /// The reason for which it is no regular expression.
    pub(super) fn of_regex(from: From, name: String, regex: &str) -> Result<Field, String> {
        let pattern = Pattern::new(&format!("^(?:{regex})$"))?;
        Ok(Field { from, name, which: Which::Regex(pattern.into_regex()?) })
    }

    /// `resource.opentelemetry.io/NAME`.
    pub(super) fn otel_annotations() -> Option<Field> {
        Field::of_regex(From::Pod, "$1".to_owned(), r"resource\.opentelemetry\.io/(.+)").ok()
    }

    fn extract<'m>(
        &self,
        pairs: impl Iterator<Item = (&'m str, &'m str)>,
        default_name: String,
        found: &mut Attributes,
    ) {
        for (key, value) in pairs {
            let name = match &self.which {
                Which::Key(wanted) if wanted != key => continue,
                Which::Key(_) if self.name.is_empty() => default_name.clone() + key,
                Which::Key(_) => self.name.clone(),
                Which::Regex(regex) => {
                    let Some(captures) = regex.captures(key).filter(|_| !value.is_empty()) else {
                        continue;
                    };
                    if self.name.is_empty() || captures.len() == 1 {
                        default_name.clone() + key
                    } else {
                        let mut name = String::new();
                        captures.expand(&self.name, &mut name);
                        name
                    }
                }
            };
            if !name.is_empty() {
                set(found, name.into(), value.into());
            }
        }
    }
}
