//! Namespaces.

use sluice_kubernetes::objects::observed::Namespace;

use super::super::recorder::Recorder;
use super::super::tables::{Attribute, Metric};

pub(super) fn record(namespace: &Namespace, out: &mut Recorder<'_>) {
    let meta = &namespace.metadata;
    let name = [(Attribute::NamespaceName, &*meta.name)];
    out.entity("k8s.namespace", (Attribute::NamespaceUid, &meta.uid), &name);
    let phase = match &*namespace.status.phase {
        "Active" => 1,
        "" => -1,
        _ => 0,
    };
    out.int(Metric::NamespacePhase, phase);
    out.finish();
}
