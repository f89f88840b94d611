//! Names of the Collector's components, core and contrib, with the names of older releases. They
//! tell a component that Sluice does not have from a misspelt name.

use crate::catalog::Class;

/// The names of each class after its key in brackets.
const NAMES: &str = include_str!("known_components.txt");

pub(crate) fn is_known(class: Class, name: &str) -> bool {
    let mut sections = NAMES.split('[').filter_map(|section| section.split_once(']'));
    sections.any(|(key, names)| {
        key == class.key() && names.split_ascii_whitespace().any(|known| known == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_components_by_class() {
        assert!(is_known(Class::Processor, "k8sattributes"));
        assert!(is_known(Class::Exporter, "prometheusremotewrite"));
        assert!(["kubelet_stats", "obi"].iter().all(|name| is_known(Class::Receiver, name)));
        assert!(["jaeger_query", "jaeger_storage"].iter().all(|it| is_known(Class::Extension, it)));
        assert!(!is_known(Class::Receiver, "k8sattributes"));
        assert!(!is_known(Class::Processor, "k8sattribute"));
    }
}
