//! The role `ingress`: a target for each path of each host.

use sluice_kubernetes::objects::{Ingress, IngressRule};

use super::state::State;
use crate::group::Group;

pub(super) fn group(state: &State, ingress: &Ingress) -> Group {
    let (meta, spec) = (&ingress.metadata, &ingress.spec);
    let mut labels = state.names.set();
    labels.add_namespace(state, &meta.namespace);
    labels.add("ingress_class_name", spec.ingress_class_name.as_deref().unwrap_or_default());
    labels.add_meta("ingress", meta);
    let mut targets = Vec::new();
    for rule in &spec.rules {
        let mut hosts = spec.tls.iter().flat_map(|tls| &tls.hosts);
        let is_tls = hosts.any(|pattern| is_meant(pattern, &rule.host));
        for path in paths(rule) {
            let mut target = state.names.set();
            target.address(&rule.host);
            target.add("ingress_scheme", if is_tls { "https" } else { "http" });
            target.add("ingress_host", &rule.host);
            target.add("ingress_path", path);
            targets.push(target.labels());
        }
    }
    let key = format!("ingress/{}", meta.key()).into();
    Group { key, labels: labels.labels(), targets }
}

fn paths(rule: &IngressRule) -> Vec<&str> {
    match &rule.http {
        None => vec!["/"],
        Some(http) => {
            let paths = http.paths.iter();
            paths.map(|it| if it.path.is_empty() { "/" } else { &*it.path }).collect()
        }
    }
}

/// Whether a pattern is a host, or has `*` for its first label.
fn is_meant(pattern: &str, host: &str) -> bool {
    let of_host = host.split_once('.').map(|(_, rest)| rest);
    pattern == host || pattern.strip_prefix("*.").is_some_and(|rest| of_host == Some(rest))
}
