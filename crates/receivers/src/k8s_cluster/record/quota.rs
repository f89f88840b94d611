//! Quotas of namespaces, and OpenShift's of clusters.

use sluice_kubernetes::objects::observed::{ClusterQuota, NamedAmounts, ResourceQuota};

use super::super::recorder::{Recorder, Value};
use super::super::tables::{Attribute, Metric};
use super::workload::begin;

pub(super) fn of_namespace(it: &ResourceQuota, out: &mut Recorder<'_>) {
    let (uid, name) = (Attribute::ResourceQuotaUid, Attribute::ResourceQuotaName);
    begin(&it.metadata, "k8s.resourcequota", uid, name, out);
    record(&it.status.hard, Metric::ResourceQuotaHardLimit, None, out);
    record(&it.status.used, Metric::ResourceQuotaUsed, None, out);
    out.finish();
}

pub(super) fn of_cluster(it: &ClusterQuota, out: &mut Recorder<'_>) {
    let meta = &it.metadata;
    let name = [(Attribute::ClusterQuotaName, &*meta.name)];
    out.entity("openshift.clusterquota", (Attribute::ClusterQuotaUid, &meta.uid), &name);
    record(&it.status.total.hard, Metric::ClusterQuotaLimit, None, out);
    record(&it.status.total.used, Metric::ClusterQuotaUsed, None, out);
    for part in &it.status.namespaces {
        let namespace = Some(&*part.namespace);
        record(&part.status.hard, Metric::AppliedClusterQuotaLimit, namespace, out);
        record(&part.status.used, Metric::AppliedClusterQuotaUsed, namespace, out);
    }
    out.finish();
}

fn record(amounts: &NamedAmounts, metric: Metric, namespace: Option<&str>, out: &mut Recorder<'_>) {
    for (name, amount) in &amounts.0 {
        // As in the Collector: thousandths of `requests.cpu` and `limits.cpu`, not of `cpu`.
        let is_thousandths = name.ends_with(".cpu");
        let value = if is_thousandths { amount.thousandths() } else { amount.units() };
        let attributes = [("k8s.namespace.name", namespace.unwrap_or("")), ("resource", name)];
        let attributes = if namespace.is_some() { &attributes[..] } else { &attributes[1..] };
        out.point(metric, Value::Int(value), attributes);
    }
}
