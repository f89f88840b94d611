//! Horizontal pod autoscalers.

use sluice_kubernetes::objects::observed::Autoscaler;

use super::super::recorder::Recorder;
use super::super::tables::{Attribute, Metric};

pub(super) fn record(it: &Autoscaler, out: &mut Recorder<'_>) {
    let (meta, target) = (&it.metadata, &it.spec.scale_target_ref);
    let descriptions = [
        (Attribute::HpaName, &*meta.name),
        (Attribute::HpaTargetApiVersion, &*target.api_version),
        (Attribute::HpaTargetKind, &*target.kind),
        (Attribute::HpaTargetName, &*target.name),
    ];
    out.entity("k8s.hpa", (Attribute::HpaUid, &meta.uid), &descriptions);
    out.attribute(Attribute::NamespaceName, &meta.namespace);
    out.int(Metric::HpaMaxReplicas, it.spec.max_replicas);
    if let Some(replicas) = it.spec.min_replicas {
        out.int(Metric::HpaMinReplicas, replicas);
    }
    out.int(Metric::HpaCurrentReplicas, it.status.current_replicas);
    out.int(Metric::HpaDesiredReplicas, it.status.desired_replicas);
    out.finish();
}
