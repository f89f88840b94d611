//! The answer to `/pods`: what metrics and resources need of it beside the summary.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_kubernetes::Quantity;

use super::resource::{Attribute, Attributes};
use super::stats::nullable;

/// Limits and requests; zero if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Resources {
    pub(super) cpu_limit: f64,
    pub(super) cpu_request: f64,
    pub(super) memory_limit: f64,
    pub(super) memory_request: f64,
}

/// Pods by their UIDs.
pub(super) struct Pods(HashMap<Box<str>, Known>);

#[derive(Default)]
pub(super) struct Known {
    pub(super) resources: Resources,
    containers: HashMap<Box<str>, Resources>,
    /// As `/pods` has them, with the runtime in front.
    ids: HashMap<Box<str>, Box<str>>,
    volumes: HashMap<Box<str>, Source>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct List {
    #[serde(deserialize_with = "nullable")]
    items: Vec<Pod>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    #[serde(deserialize_with = "nullable")]
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
    #[serde(deserialize_with = "nullable")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    #[serde(deserialize_with = "nullable")]
    uid: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "nullable")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    volumes: Vec<Source>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    #[serde(deserialize_with = "nullable")]
    name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    resources: Requirements,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requirements {
    #[serde(deserialize_with = "nullable")]
    limits: Amounts,
    #[serde(deserialize_with = "nullable")]
    requests: Amounts,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::kubeletstats) struct Amounts {
    #[serde(deserialize_with = "nullable")]
    pub(in crate::kubeletstats) cpu: Quantity,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::kubeletstats) memory: Quantity,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(deserialize_with = "nullable")]
    container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    #[serde(deserialize_with = "nullable")]
    name: Box<str>,
    #[serde(rename = "containerID", deserialize_with = "nullable")]
    id: Box<str>,
}

/// Where a volume comes from: a pod's, with its name, or that of a persistent volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::kubeletstats) struct Source {
    #[serde(deserialize_with = "nullable")]
    name: Box<str>,
    config_map: Option<IgnoredAny>,
    #[serde(rename = "downwardAPI")]
    downward_api: Option<IgnoredAny>,
    empty_dir: Option<IgnoredAny>,
    secret: Option<IgnoredAny>,
    persistent_volume_claim: Option<ClaimRef>,
    host_path: Option<IgnoredAny>,
    local: Option<IgnoredAny>,
    aws_elastic_block_store: Option<Box<Disk>>,
    gce_persistent_disk: Option<Box<Disk>>,
    glusterfs: Option<Box<Gluster>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimRef {
    #[serde(deserialize_with = "nullable")]
    claim_name: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Disk {
    #[serde(rename = "volumeID", deserialize_with = "nullable")]
    volume_id: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pd_name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    fs_type: Box<str>,
    #[serde(deserialize_with = "nullable")]
    partition: i32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Gluster {
    #[serde(deserialize_with = "nullable")]
    endpoints: Box<str>,
    #[serde(deserialize_with = "nullable")]
    path: Box<str>,
}

impl Pods {
    pub(super) fn read(body: &[u8]) -> serde_json::Result<Pods> {
        let list: List = serde_json::from_slice(body)?;
        let mut pods = HashMap::with_capacity(list.items.len());
        for Pod { metadata, spec, status } in list.items {
            pods.entry(metadata.uid).or_insert_with(|| Known::of(spec, status));
        }
        Ok(Pods(pods))
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Known> {
        self.0.get(uid)
    }
}

impl Known {
    fn of(spec: Spec, status: Status) -> Known {
        let mut known = Known::default();
        let all: Vec<(Box<str>, Resources)> =
            spec.containers.into_iter().map(|it| (it.name, it.resources.amounts())).collect();
        // A pod has a limit only if all of its containers have one.
        let sum = |of: fn(&Resources) -> f64| {
            let amounts = all.iter().map(|(_, resources)| of(resources));
            if amounts.clone().any(|amount| amount == 0.0) { 0.0 } else { amounts.sum() }
        };
        known.resources = Resources {
            cpu_limit: sum(|it| it.cpu_limit),
            cpu_request: sum(|it| it.cpu_request),
            memory_limit: sum(|it| it.memory_limit),
            memory_request: sum(|it| it.memory_request),
        };
        known.containers = all.into_iter().collect();
        for ContainerStatus { name, id } in
            status.container_statuses.into_iter().chain(status.init_container_statuses)
        {
            known.ids.entry(name).or_insert(id);
        }
        for volume in spec.volumes {
            known.volumes.entry(volume.name.clone()).or_insert(volume);
        }
        known
    }

    pub(super) fn container(&self, name: &str) -> Resources {
        self.containers.get(name).copied().unwrap_or_default()
    }

    /// The id of a container, without the runtime before it.
    pub(super) fn container_id(&self, name: &str) -> Result<&str, &'static str> {
        let id = self.ids.get(name).ok_or("`/pods` does not have it")?;
        if id.trim().is_empty() {
            return Err("it has no id yet");
        }
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        Ok(match id.split_once("://") {
            Some((runtime, id)) if !runtime.is_empty() && runtime.bytes().all(is_word) => id,
            _ => id,
        })
    }

    pub(super) fn volume(&self, name: &str) -> Option<&Source> {
        self.volumes.get(name)
    }
}

impl Requirements {
    fn amounts(self) -> Resources {
        Resources {
            cpu_limit: self.limits.cpu.value(),
            cpu_request: self.requests.cpu.value(),
            memory_limit: self.limits.memory.units() as f64,
            memory_request: self.requests.memory.units() as f64,
        }
    }
}

impl Source {
    /// The claim, if it is one.
    pub(super) fn claim(&self) -> Option<&str> {
        self.persistent_volume_claim.as_ref().map(|claim| &*claim.claim_name)
    }

    /// Sets the attributes of a pod's volume.
    pub(super) fn describe<'a>(&'a self, attributes: &mut Attributes<'a>) {
        let kind = match self {
            Source { config_map: Some(_), .. } => "configMap",
            Source { downward_api: Some(_), .. } => "downwardAPI",
            Source { empty_dir: Some(_), .. } => "emptyDir",
            Source { secret: Some(_), .. } => "secret",
            Source { persistent_volume_claim: Some(claim), .. } => {
                attributes.set(Attribute::PersistentVolumeClaimName, &*claim.claim_name);
                "persistentVolumeClaim"
            }
            Source { host_path: Some(_), .. } => "hostPath",
            _ => return self.describe_disk(attributes),
        };
        attributes.set(Attribute::VolumeType, kind);
    }

    /// Sets the attributes of a persistent volume, in the place of those of its claim.
    pub(super) fn describe_persistent<'a>(&'a self, attributes: &mut Attributes<'a>) {
        match self.local {
            Some(_) => attributes.set(Attribute::VolumeType, "local"),
            None => self.describe_disk(attributes),
        }
    }

    fn describe_disk<'a>(&'a self, attributes: &mut Attributes<'a>) {
        let (kind, disk) = match self {
            Source { aws_elastic_block_store: Some(disk), .. } => {
                attributes.set(Attribute::AwsVolumeId, &*disk.volume_id);
                ("awsElasticBlockStore", disk)
            }
            Source { gce_persistent_disk: Some(disk), .. } => {
                attributes.set(Attribute::GcePdName, &*disk.pd_name);
                ("gcePersistentDisk", disk)
            }
            Source { glusterfs: Some(gluster), .. } => {
                attributes.set(Attribute::VolumeType, "glusterfs");
                attributes.set(Attribute::GlusterEndpoints, &*gluster.endpoints);
                attributes.set(Attribute::GlusterPath, &*gluster.path);
                return;
            }
            _ => return,
        };
        attributes.set(Attribute::VolumeType, kind);
        attributes.set(Attribute::FsType, &*disk.fs_type);
        attributes.set(Attribute::Partition, disk.partition.to_string());
    }
}
