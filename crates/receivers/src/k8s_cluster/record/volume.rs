//! Persistent volumes and the claims on them.

use sluice_kubernetes::objects::observed::{Claim, Volume};

use super::super::recorder::{Recorder, Value};
use super::super::tables::{Attribute, Metric};

const PHASES: [&str; 5] = ["Pending", "Available", "Bound", "Released", "Failed"];
const CLAIM_PHASES: [&str; 3] = ["Pending", "Bound", "Lost"];

pub(super) fn volume(it: &Volume, out: &mut Recorder<'_>) {
    let (meta, spec) = (&it.metadata, &it.spec);
    let descriptions = [
        (Attribute::VolumeName, &*meta.name),
        (Attribute::StorageClassName, &*spec.storage_class_name),
        (Attribute::VolumeReclaimPolicy, &*spec.persistent_volume_reclaim_policy),
    ];
    out.entity("k8s.persistentvolume", (Attribute::VolumeUid, &meta.uid), &descriptions);
    for phase in PHASES {
        let value = Value::Int(i64::from(*it.status.phase == *phase));
        let attributes = [("k8s.persistentvolume.status.phase", phase)];
        out.point(Metric::VolumeStatusPhase, value, &attributes);
    }
    if let Some(storage) = spec.capacity.storage {
        out.int(Metric::VolumeStorageCapacity, storage.units());
    }
    out.finish();
}

pub(super) fn claim(it: &Claim, out: &mut Recorder<'_>) {
    let meta = &it.metadata;
    let name = [(Attribute::ClaimName, &*meta.name)];
    out.entity("k8s.persistentvolumeclaim", (Attribute::ClaimUid, &meta.uid), &name);
    out.attribute(Attribute::NamespaceName, &meta.namespace);
    out.attribute(Attribute::StorageClassName, &it.spec.storage_class_name);
    for phase in CLAIM_PHASES {
        let value = Value::Int(i64::from(*it.status.phase == *phase));
        let attributes = [("k8s.persistentvolumeclaim.status.phase", phase)];
        out.point(Metric::ClaimStatusPhase, value, &attributes);
    }
    if let Some(storage) = it.spec.resources.requests.storage {
        out.int(Metric::ClaimStorageRequest, storage.units());
    }
    if let Some(storage) = it.status.capacity.storage {
        out.int(Metric::ClaimStorageCapacity, storage.units());
    }
    out.finish();
}
