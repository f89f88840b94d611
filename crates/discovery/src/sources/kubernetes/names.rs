//! Labels of objects, with Prometheus' names.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use parking_lot::Mutex;
use sluice_kubernetes::objects::{Meta, Pairs};

use super::state::State;
use crate::group::ADDRESS;
use crate::labels::{Labels, Text};

const PREFIX: &str = "__meta_kubernetes_";
const PRESENT: &str = "true";
/// Names that no object has any more are dropped when there are so many.
const NAMES_LIMIT: usize = 100_000;

/// Names of labels, each in memory once.
#[derive(Default)]
pub(super) struct Names(Mutex<HashMap<Box<str>, Text>>);

/// Labels in the making. Of several with one name the last one counts.
pub(super) struct Set<'a> {
    names: &'a Names,
    labels: Vec<(Text, Text)>,
}

impl Names {
    pub(super) fn set(&self) -> Set<'_> {
        Set { names: self, labels: Vec::new() }
    }

    fn name(&self, name: &str) -> Text {
        let mut names = self.0.lock();
        if let Some(known) = names.get(name) {
            return known.clone();
        }
        if names.len() >= NAMES_LIMIT {
            names.clear();
        }
        let text = Text::from(name);
        names.insert(name.into(), text.clone());
        text
    }
}

impl Set<'_> {
    /// `__meta_kubernetes_NAME`. An empty value is none.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.add_plain(&format!("{PREFIX}{name}"), value);
    }

    pub(super) fn add_plain(&mut self, name: &str, value: &str) {
        self.labels.push((self.names.name(name), value.into()));
    }

    pub(super) fn address(&mut self, address: &str) {
        self.add_plain(ADDRESS, address);
    }

    /// The name, the labels and the annotations of an object.
    pub(super) fn add_meta(&mut self, kind: &str, meta: &Meta) {
        self.add(&format!("{kind}_name"), &meta.name);
        self.add_pairs(&format!("{kind}_label"), &meta.labels);
        self.add_pairs(&format!("{kind}_annotation"), &meta.annotations);
    }

    pub(super) fn add_pairs(&mut self, what: &str, pairs: &Pairs) {
        for (key, value) in pairs {
            let key = sanitized(key);
            self.add(&format!("{what}_{key}"), value);
            self.add(&format!("{what}present_{key}"), PRESENT);
        }
    }

    /// The name of a namespace, and its labels and annotations if they are attached.
    pub(super) fn add_namespace(&mut self, state: &State, namespace: &str) {
        self.add("namespace", namespace);
        if let Some(found) = state.namespaces.get(namespace) {
            self.add_pairs("namespace_label", &found.metadata.labels);
            self.add_pairs("namespace_annotation", &found.metadata.annotations);
        }
    }

    /// The metadata of a node, if nodes are attached and it is known.
    pub(super) fn add_node(&mut self, state: &State, node: &str) {
        if let Some(node) = state.nodes.get(node).filter(|_| state.attach_node) {
            self.add_meta("node", &node.metadata);
        }
    }

    pub(super) fn labels(self) -> Labels {
        self.labels.into_iter().collect()
    }
}

/// All that no label's name may have is `_`.
pub(super) fn sanitized(text: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '_';
    text.chars().map(|it| if is_plain(it) { it } else { '_' }).collect()
}

/// `host:port`, with brackets around what has colons.
pub(super) fn host_port(host: &str, port: i64) -> String {
    let is_v6 = host.parse::<Ipv6Addr>().is_ok() || host.contains(':');
    if is_v6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
