//! The role `node`: the kubelet of each node.

use sluice_kubernetes::objects::Node;

use super::names::{host_port, sanitized};
use super::state::State;
use crate::group::Group;

/// Kinds of addresses, the preferred one first.
const ADDRESSES: [&str; 6] =
    ["InternalIP", "InternalDNS", "ExternalIP", "ExternalDNS", "LegacyHostIP", "Hostname"];

pub(super) fn group(state: &State, node: &Node) -> Group {
    let (meta, status) = (&node.metadata, &node.status);
    let mut group = Group { key: format!("node/{}", meta.name).into(), ..Group::default() };
    let of_kind = |kind: &&str| status.addresses.iter().find(|it| *it.kind == **kind);
    // A node without an address cannot be scraped.
    let Some(address) = ADDRESSES.iter().find_map(of_kind) else { return group };
    let mut labels = state.names.set();
    labels.add("node_provider_id", &node.spec.provider_id);
    for condition in &status.conditions {
        let kind = sanitized(&condition.kind.to_lowercase());
        labels.add(&format!("node_condition_{kind}"), &condition.status.to_lowercase());
    }
    labels.add_meta("node", meta);
    group.labels = labels.labels();
    let mut target = state.names.set();
    target.address(&host_port(&address.address, status.kubelet_port()));
    target.add_plain("instance", &meta.name);
    // Of several addresses of a kind the first one counts.
    for address in status.addresses.iter().rev() {
        let kind = sanitized(&address.kind);
        target.add(&format!("node_address_{kind}"), &address.address);
    }
    group.targets.push(target.labels());
    group
}
