//! Pods as they are kept: the attributes that they give, and how they are recognised.

use std::sync::Arc;

use sluice_kubernetes::objects::{self, Owner};
use sluice_kubernetes::{Image, Indexed, canonical};

use super::association::{Association, HOST_NAME, Identifier, POD_IP, POD_UID, Source, identifier};
use super::related::attributes_bytes;
use super::rules::{Attributes, From, MetadataField, Rules, Text, set};

const CONTAINER_ID: &str = "container.id";
/// Pods with this annotation are left out.
const IGNORE: &str = "opentelemetry.io/k8s-processor/ignore";
/// A job of a cron job has the minute for which it was planned in its name. A number that is
/// further from the time when its pod was created means something else.
const PLANNED_WITHIN_MINUTES: i64 = 24 * 60;

pub(super) struct Pod {
    uid: Text,
    name: Text,
    pub(super) namespace: Text,
    /// Empty while it has none.
    pub(super) node: Text,
    pub(super) attributes: Box<[(Text, Text)]>,
    pub(super) containers: Box<[Container]>,
    /// The objects that it belongs to, by kind, with their UIDs.
    pub(super) owners: Box<[(From, Text)]>,
    identifiers: Box<[Identifier]>,
    /// The later one of two pods has the greater number.
    started: i64,
    /// It is known, but telemetry is not associated with it.
    pub(super) is_ignored: bool,
}

/// A container as it is kept.
pub(super) struct Container {
    pub(super) name: Text,
    pub(super) image_name: Option<Text>,
    pub(super) image_tag: Option<Text>,
    pub(super) version: Option<Text>,
    /// As it runs. `None`: it has not begun.
    pub(super) status: Option<Status>,
}

pub(super) struct Status {
    pub(super) id: Text,
    pub(super) restarts: i64,
    pub(super) digest: Option<Text>,
}

/// The name and the UID of an owner's owner.
type Parent = (Text, Text);

/// The options and other objects that decide what is kept of a pod.
pub(super) struct Keeping<'a> {
    pub(super) rules: &'a Rules,
    pub(super) associations: &'a [Association],
    /// Whether a pod of this name is left out.
    pub(super) is_excluded: &'a dyn Fn(&str) -> bool,
    pub(super) intern: &'a dyn Fn(&str) -> Text,
    /// The name and the UID of the deployment of a replica set or the cron job of a job, by its
    /// UID. The outer `None`: the object is not known.
    pub(super) parent: &'a dyn Fn(From, &str) -> Option<Option<Parent>>,
    pub(super) cluster_uid: Option<Text>,
}

impl Pod {
    pub(super) fn new(pod: &objects::Pod, keeping: &Keeping<'_>) -> Pod {
        let (meta, intern) = (&pod.metadata, keeping.intern);
        let ignore = meta.annotations.get(IGNORE).map(|value| value.trim());
        let is_ignored = ignore.is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || (keeping.is_excluded)(&meta.name);
        let (mut attributes, mut containers) = (Attributes::new(), Vec::new());
        if !is_ignored {
            attributes = keeping.attributes(pod);
            containers = keeping.containers(pod);
        }
        let (uid, name) = (Text::from(&*meta.uid), Text::from(&*meta.name));
        let identifiers = keeping.identifiers(pod, &attributes, &containers);
        let attributes = attributes.into_iter().map(|(key, value)| {
            let value = match &*key {
                POD_UID => uid.clone(),
                _ if *value == *name => name.clone(),
                POD_IP => value,
                // Other pods have it too.
                _ => intern(&value),
            };
            (intern(&key), value)
        });
        let attributes = attributes.collect();
        let owners = meta.owner_references.iter().filter_map(|owner| {
            let kind = [From::ReplicaSet, From::StatefulSet, From::DaemonSet, From::Job];
            let kind = kind.into_iter().find(|kind| is_kind(owner, *kind))?;
            Some((kind, intern(&owner.uid)))
        });
        Pod {
            uid,
            name,
            namespace: intern(&meta.namespace),
            node: intern(&pod.spec.node_name),
            attributes,
            containers: containers.into(),
            owners: owners.collect(),
            identifiers: identifiers.into(),
            started: order_of(&pod.status.start_time),
            is_ignored,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The UID of an object of this kind that it belongs to.
    pub(super) fn owner(&self, kind: From) -> Option<&Text> {
        self.owners.iter().find(|(known, _)| *known == kind).map(|(_, uid)| uid)
    }
}

impl Indexed for Pod {
    type Name = Identifier;

    fn key(&self) -> Arc<str> {
        self.uid.clone()
    }

    fn names(&self, visit: &mut dyn FnMut(Identifier)) {
        self.identifiers.iter().for_each(|identifier| visit(*identifier));
    }

    fn rank(&self) -> i64 {
        self.started
    }

    fn weight(&self) -> usize {
        let containers = self.containers.len() * (size_of::<Container>() + 80);
        let lists = self.owners.len() * 24 + self.identifiers.len() * 64;
        size_of::<Pod>()
            + self.uid.len()
            + self.name.len()
            + attributes_bytes(&self.attributes)
            + containers
            + lists
    }
}

impl Keeping<'_> {
    fn attributes(&self, pod: &objects::Pod) -> Attributes {
        use MetadataField::*;
        let (meta, wanted) = (&pod.metadata, self.rules.metadata);
        let mut found = Attributes::new();
        let mut add = |field: MetadataField, value: &str| {
            if wanted.has(field) && !value.is_empty() {
                set(&mut found, field.name().into(), value.into());
            }
        };
        add(PodName, &meta.name);
        add(ServiceName, &meta.name);
        add(PodHostname, &pod.spec.hostname);
        add(PodIp, &pod.status.pod_ip);
        add(Namespace, &meta.namespace);
        add(ServiceNamespace, &meta.namespace);
        add(StartTime, &meta.creation_timestamp);
        add(PodUid, &meta.uid);
        for owner in &meta.owner_references {
            self.add_owner(owner, pod, &mut add);
        }
        add(Node, &pod.spec.node_name);
        add(ClusterUid, self.cluster_uid.as_deref().unwrap_or_default());
        self.rules.labels_of(From::Pod, meta, &mut found);
        let labels = [
            (ServiceName, "app.kubernetes.io/name"),
            // It says more than the name.
            (ServiceName, "app.kubernetes.io/instance"),
            (ServiceVersion, "app.kubernetes.io/version"),
        ];
        for (field, label) in labels {
            if let Some(value) = meta.labels.get(label).filter(|_| wanted.has(field)) {
                set(&mut found, field.name().into(), (&**value).into());
            }
        }
        // Annotations say what is meant, labels are a guess.
        self.rules.annotations_of(From::Pod, meta, &mut found);
        found
    }

    fn add_owner(
        &self,
        owner: &Owner,
        pod: &objects::Pod,
        add: &mut impl FnMut(MetadataField, &str),
    ) {
        use MetadataField::*;
        let (name, uid): (&str, &str) = (&owner.name, &owner.uid);
        let (name_field, uid_field) = match &*owner.kind {
            "ReplicaSet" => (ReplicaSetName, ReplicaSetUid),
            "DaemonSet" => (DaemonSetName, DaemonSetUid),
            "StatefulSet" => (StatefulSetName, StatefulSetUid),
            "Job" => (JobName, JobUid),
            _ => return,
        };
        add(uid_field, uid);
        add(name_field, name);
        add(ServiceName, name);
        let (kind, name_field, uid_field) = match &*owner.kind {
            "ReplicaSet" => (From::ReplicaSet, DeploymentName, DeploymentUid),
            "Job" => (From::Job, CronJobName, CronJobUid),
            _ => return,
        };
        let (parent, uid) = match (self.parent)(kind, uid) {
            Some(Some((name, uid))) => (Some(name), Some(uid)),
            Some(None) => (None, None),
            None if kind == From::ReplicaSet => (deployment_of(name, pod), None),
            None => (cron_job_of(name, pod), None),
        };
        if let Some(parent) = parent {
            add(name_field, &parent);
            // The owner's owner says more than the owner.
            add(ServiceName, &parent);
        }
        if let Some(uid) = uid {
            add(uid_field, &uid);
        }
    }

    fn containers(&self, pod: &objects::Pod) -> Vec<Container> {
        use MetadataField::*;
        let (wanted, intern) = (self.rules.metadata, self.intern);
        if !wanted.has_containers() {
            return Vec::new();
        }
        let mut containers: Vec<Container> = Vec::new();
        let specs = pod.spec.containers.iter().chain(&pod.spec.init_containers);
        for spec in specs.filter(|_| wanted.has_container_specs()) {
            let image = Image::parse(&spec.image);
            let tag = image.as_ref().map(|image| intern(image.tag.unwrap_or("latest")));
            let name = image.as_ref().map(|image| intern(image.repository));
            let version = image.as_ref().and_then(Image::version).map(|version| intern(&version));
            let wants_tag = wanted.has(ContainerImageTag) || wanted.has(ContainerImageTags);
            containers.push(Container {
                name: intern(&spec.name),
                image_name: name.filter(|_| wanted.has(ContainerImageName)),
                image_tag: tag.filter(|_| wants_tag),
                version: version.filter(|_| wanted.has(ServiceVersion)),
                status: None,
            });
        }
        let pod_status = &pod.status;
        let statuses = pod_status.container_statuses.iter();
        for status in statuses.chain(&pod_status.init_container_statuses) {
            let id = status.container_id.split_once("://").map_or(&*status.container_id, |it| it.1);
            let digest = canonical(&status.image_id).map(|digest| intern(&digest));
            let digest = digest.filter(|_| wanted.has(ContainerImageRepoDigests));
            let running = Some(Status { id: id.into(), restarts: status.restart_count, digest });
            match containers.iter_mut().find(|it| *it.name == *status.name) {
                Some(container) => container.status = running,
                None => containers.push(Container {
                    name: intern(&status.name),
                    image_name: None,
                    image_tag: None,
                    version: None,
                    status: running,
                }),
            }
        }
        containers
    }

    fn identifiers(
        &self,
        pod: &objects::Pod,
        attributes: &Attributes,
        containers: &[Container],
    ) -> Vec<Identifier> {
        let (meta, address) = (&pod.metadata, &*pod.status.pod_ip);
        // Pods in the network of their node have the address of the node.
        let own_address = if pod.spec.host_network { "" } else { address };
        let mut found = Vec::new();
        let value = |source: &Source| match source {
            Source::Connection => own_address,
            Source::Attribute(name) => match &**name {
                "k8s.namespace.name" => &*meta.namespace,
                "k8s.pod.name" => &meta.name,
                POD_UID => &meta.uid,
                HOST_NAME | POD_IP => address,
                name => {
                    let known = attributes.iter().find(|(key, _)| **key == *name);
                    known.map_or("", |(_, value)| value)
                }
            },
        };
        let is_id = |source: &Source| *source == Source::Attribute(CONTAINER_ID.into());
        for Association(sources) in self.associations {
            let ids = containers.iter().filter_map(|it| Some(&*it.status.as_ref()?.id));
            let ids = ids.filter(|_| sources.iter().any(is_id)).map(Some);
            let without = (!sources.iter().any(is_id)).then_some(None);
            for id in ids.chain(without) {
                let fact = |source| {
                    (source, id.filter(|_| is_id(source)).unwrap_or_else(|| value(source)))
                };
                let facts: Vec<(&Source, &str)> = sources.iter().map(fact).collect();
                if facts.iter().all(|(_, value)| !value.is_empty()) {
                    found.push(identifier(&facts));
                }
            }
        }
        let (by_uid, by_ip) = (Source::Attribute(POD_UID.into()), Source::Attribute(POD_IP.into()));
        for (source, value) in
            [(&by_uid, &*meta.uid), (&Source::Connection, own_address), (&by_ip, own_address)]
        {
            if !value.is_empty() {
                found.push(identifier(&[(source, value)]));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn is_kind(owner: &Owner, kind: From) -> bool {
    let name = match kind {
        From::ReplicaSet => "ReplicaSet",
        From::StatefulSet => "StatefulSet",
        From::DaemonSet => "DaemonSet",
        From::Job => "Job",
        _ => return false,
    };
    &*owner.kind == name
}

/// A deployment names its replica sets after itself and a hash that their pods have as a label.
fn deployment_of(replica_set: &str, pod: &objects::Pod) -> Option<Text> {
    let hash = pod.metadata.labels.get("pod-template-hash").filter(|hash| !hash.is_empty())?;
    let name = replica_set.strip_suffix(&**hash)?.strip_suffix('-')?;
    (!name.is_empty()).then(|| name.into())
}

/// A cron job names its jobs after itself and the minute for which they are planned.
fn cron_job_of(job: &str, pod: &objects::Pod) -> Option<Text> {
    let (name, minute) = job.rsplit_once('-')?;
    if minute.len() != 8 || !minute.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let created = minutes_of(&pod.metadata.creation_timestamp)?;
    let distance = (created - minute.parse::<i64>().ok()?).abs();
    (distance <= PLANNED_WITHIN_MINUTES).then(|| name.into())
}

/// The digits of a time, so that later times are greater. Zero if there is none.
fn order_of(time: &str) -> i64 {
    let digits: String = time.chars().filter(char::is_ascii_digit).take(14).collect();
    digits.parse().unwrap_or(0)
}

/// Minutes since 1970 of a time in UTC: `2026-01-31T12:59:00Z`.
fn minutes_of(time: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| time.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute) = (number(11..13)?, number(14..16)?);
    // Years begin in March, so that a leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    Some((days * 24 + hour) * 60 + minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(minutes_of("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(minutes_of("2000-02-29T01:02:59Z"), Some(951_786_120 / 60));
        assert_eq!(minutes_of("2026-11-28T07:30:00Z"), Some(1_795_851_000 / 60));
        assert_eq!(minutes_of("soon"), None);
        assert!(order_of("2026-11-28T07:30:00Z") > order_of("2026-11-28T07:29:59Z"));
        assert_eq!(order_of(""), 0);
    }
}
