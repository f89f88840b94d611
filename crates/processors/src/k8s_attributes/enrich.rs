//! Adds to a resource the attributes of its pod and of the objects around that.

use std::sync::Arc;

use sluice_otlp::wire::write_len_field;
use sluice_otlp::{AnyValue, Attributes, NewValue, Value};

use super::association::{POD_IP, identify, text};
use super::cluster::Known;
use super::config::Options;
use super::pod::{Container, Pod};
use super::rules::{From, MetadataField, Text};

const RESTART_COUNT: &str = "k8s.container.restart_count";

/// Adds attributes to the resources of one request.
pub(super) struct Enricher<'a> {
    options: &'a Options,
    /// `None` with `passthrough`.
    known: Option<&'a Known>,
    peer: Option<String>,
    /// An encoded value.
    value: Vec<u8>,
}

impl<'a> Enricher<'a> {
    pub(super) fn new(
        options: &'a Options,
        known: Option<&'a Known>,
        peer: Option<String>,
    ) -> Enricher<'a> {
        Enricher { options, known, peer, value: Vec::new() }
    }

    pub(super) fn enrich(&mut self, attributes: &mut Attributes<'_>) {
        let identified = identify(&self.options.associations, attributes, self.peer.as_deref());
        let wanted = self.options.rules.metadata;
        if let Some(address) = identified.as_ref().and_then(|it| it.address.as_deref())
            && (self.options.passthrough || wanted.has(MetadataField::PodIp))
        {
            self.put(attributes, POD_IP, address);
        }
        let Some(known) = self.known else { return };
        let pod = identified.and_then(|it| known.pod(it.identifier));
        if let Some(pod) = &pod {
            self.put_all(attributes, &pod.attributes);
            self.put_container(attributes, pod);
            if let Some(uid) = known.cluster_uid() {
                self.put(attributes, MetadataField::ClusterUid.name(), &uid);
            }
        }
        self.put_of_namespace(attributes, known, pod.as_deref());
        self.put_of_node(attributes, known, pod.as_deref());
        self.put_of_workloads(attributes, known, pod.as_deref());
    }

    fn put_of_namespace(
        &mut self,
        attributes: &mut Attributes<'_>,
        known: &Known,
        pod: Option<&Pod>,
    ) {
        let of_pod = pod.map(|pod| pod.namespace.clone()).filter(|name| !name.is_empty());
        let name = of_pod.or_else(|| owned(attributes, MetadataField::Namespace));
        let Some(name) = name else { return };
        if let Some(namespace) = known.related(From::Namespace, &name) {
            self.put_all(attributes, &namespace.attributes);
        }
        let field = MetadataField::ServiceNamespace;
        if self.options.rules.metadata.has(field) {
            self.put(attributes, field.name(), &name);
        }
    }

    fn put_of_node(&mut self, attributes: &mut Attributes<'_>, known: &Known, pod: Option<&Pod>) {
        let of_pod = pod.map(|pod| pod.node.clone()).filter(|name| !name.is_empty());
        let name = of_pod.or_else(|| owned(attributes, MetadataField::Node));
        let Some(node) = name.and_then(|name| known.related(From::Node, &name)) else { return };
        self.put_all(attributes, &node.attributes);
        if self.options.rules.metadata.has(MetadataField::NodeUid) {
            self.put(attributes, MetadataField::NodeUid.name(), &node.uid);
        }
    }

    /// Attributes of the objects that the pod belongs to.
    fn put_of_workloads(
        &mut self,
        attributes: &mut Attributes<'_>,
        known: &Known,
        pod: Option<&Pod>,
    ) {
        for (kind, field, parent) in [
            (
                From::ReplicaSet,
                MetadataField::ReplicaSetUid,
                Some((From::Deployment, MetadataField::DeploymentUid)),
            ),
            (From::StatefulSet, MetadataField::StatefulSetUid, None),
            (From::DaemonSet, MetadataField::DaemonSetUid, None),
            (From::Job, MetadataField::JobUid, Some((From::CronJob, MetadataField::CronJobUid))),
        ] {
            let uid = pod.and_then(|pod| pod.owner(kind).cloned());
            let uid = uid.or_else(|| owned(attributes, field));
            let object = uid.and_then(|uid| known.related(kind, &uid));
            if let Some((parent, field)) = parent {
                let uid = object.as_ref().and_then(|it| Some(it.parent.as_ref()?.uid.clone()));
                if let Some(uid) = uid.as_deref().filter(|_| pod.is_some())
                    && self.options.rules.metadata.has(field)
                {
                    self.put(attributes, field.name(), uid);
                }
                let uid = uid.or_else(|| owned(attributes, field));
                if let Some(parent) = uid.and_then(|uid| known.related(parent, &uid)) {
                    self.put_all(attributes, &parent.attributes);
                }
            }
            if let Some(object) = object {
                self.put_all(attributes, &object.attributes);
            }
        }
    }

    fn put_container(&mut self, attributes: &mut Attributes<'_>, pod: &Pod) {
        use MetadataField::*;
        let Some(container) = container_of(attributes, pod) else { return };
        let wanted = self.options.rules.metadata;
        let Container { name, image_name, image_tag, version, status } = container;
        if status.is_some() && wanted.has(ContainerName) {
            self.put(attributes, ContainerName.name(), name);
        }
        for (field, value) in [(ContainerImageName, image_name), (ContainerImageTag, image_tag)] {
            if let Some(value) = value.as_deref().filter(|_| wanted.has(field)) {
                self.put(attributes, field.name(), value);
            }
        }
        if let Some(tag) = image_tag.as_deref().filter(|_| wanted.has(ContainerImageTags)) {
            put_list(attributes, ContainerImageTags.name(), tag);
        }
        if status.is_some() && wanted.has(ServiceInstanceId) {
            let pod_name = pod.name();
            let id = format!("{}.{pod_name}.{name}", pod.namespace);
            self.put(attributes, ServiceInstanceId.name(), &id);
        }
        if let Some(version) = version.as_deref() {
            self.put(attributes, ServiceVersion.name(), version);
        }
        let Some(status) = status else { return };
        // A container that was started again is another one.
        let is_meant = match attributes.get(RESTART_COUNT.as_bytes()) {
            None => true,
            Some(Value::Int(count)) => count == status.restarts,
            Some(Value::String(text)) => {
                str::from_utf8(text).is_ok_and(|it| it.parse() == Ok(status.restarts))
            }
            Some(_) => false,
        };
        if !is_meant {
            return;
        }
        let has_id = attributes.find(ContainerId.name().as_bytes()).is_some();
        if wanted.has(ContainerId) && !has_id && !status.id.is_empty() {
            self.put(attributes, ContainerId.name(), &status.id);
        }
        if let Some(digest) = &status.digest {
            put_list(attributes, ContainerImageRepoDigests.name(), digest);
        }
    }

    fn put_all(&mut self, attributes: &mut Attributes<'_>, pairs: &[(Text, Text)]) {
        pairs.iter().for_each(|(key, value)| self.put(attributes, key, value));
    }

    /// Sets an attribute that is absent or empty.
    fn put(&mut self, attributes: &mut Attributes<'_>, key: &str, text: &str) {
        let found = attributes.find(key.as_bytes());
        let is_empty = |at| {
            matches!(attributes.value(at), Value::Empty | Value::String([]) | Value::Bytes([]))
        };
        if found.is_some_and(|at| !is_empty(at)) {
            return;
        }
        self.value.clear();
        write_len_field(&mut self.value, 1, text.as_bytes());
        match found {
            Some(at) => attributes.set(at, NewValue::Encoded(&self.value)),
            None => attributes.add(key.as_bytes(), NewValue::Encoded(&self.value)),
        }
    }
}

/// Sets an attribute that is absent to a list of one text.
fn put_list(attributes: &mut Attributes<'_>, key: &str, text: &str) {
    if attributes.find(key.as_bytes()).is_none() {
        let list = AnyValue::Array(vec![AnyValue::String(text.to_owned())]);
        attributes.add(key.as_bytes(), NewValue::Encoded(&list.encoded()));
    }
}

fn owned(attributes: &Attributes<'_>, field: MetadataField) -> Option<Text> {
    text(attributes, field.name()).map(Arc::from)
}

/// The container that a resource names, or the only one of the pod.
fn container_of<'p>(attributes: &Attributes<'_>, pod: &'p Pod) -> Option<&'p Container> {
    let containers = &pod.containers;
    let id_of = |container: &'p Container| Some(&*container.status.as_ref()?.id);
    if let Some(name) = text(attributes, MetadataField::ContainerName.name()) {
        return containers.iter().find(|container| *container.name == *name);
    }
    if let Some(id) = text(attributes, MetadataField::ContainerId.name()) {
        return containers.iter().find(|container| id_of(container) == Some(id));
    }
    let mut running = containers.iter().filter(|container| container.status.is_some());
    match (running.next(), running.next(), &**containers) {
        (Some(only), None, _) | (_, _, [only]) => Some(only),
        _ => None,
    }
}
