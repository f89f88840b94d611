//! A target and its job as `sluice_scrape` wants them, and relabelling of series.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sluice_discovery::relabel::{self, Rule};
use sluice_discovery::{Labels, NameScheme, ScrapeConfig, Target, Text};
use sluice_scrape::{Labels as SeriesLabels, Limits};

/// The scope of metrics whose labels name none.
const SCOPE: &str = "sluice/receiver/prometheus";

/// The longest page, inflated, if no lower limit is configured.
pub(super) const PAGE_LIMIT_BYTES: usize = 64 << 20;

/// Labels of Kubernetes' service discovery, and the attributes that they are.
const KUBERNETES: [(&str, &str); 7] = [
    ("__meta_kubernetes_pod_name", "k8s.pod.name"),
    ("__meta_kubernetes_pod_uid", "k8s.pod.uid"),
    ("__meta_kubernetes_pod_container_name", "k8s.container.name"),
    ("__meta_kubernetes_namespace", "k8s.namespace.name"),
    // A target has one of these.
    ("__meta_kubernetes_pod_node_name", "k8s.node.name"),
    ("__meta_kubernetes_node_name", "k8s.node.name"),
    ("__meta_kubernetes_endpoint_node_name", "k8s.node.name"),
];

const CONTROLLERS: [(&str, &str); 5] = [
    ("ReplicaSet", "k8s.replicaset.name"),
    ("DaemonSet", "k8s.daemonset.name"),
    ("StatefulSet", "k8s.statefulset.name"),
    ("Job", "k8s.job.name"),
    ("CronJob", "k8s.cronjob.name"),
];

/// The longest page of a job, inflated.
pub(super) fn page_limit_bytes(job: &ScrapeConfig) -> usize {
    match usize::try_from(job.limits.body_bytes) {
        Ok(0) | Err(_) => PAGE_LIMIT_BYTES,
        Ok(bytes) => bytes.min(PAGE_LIMIT_BYTES),
    }
}

pub(super) fn scraped(
    target: &Target,
    job: &ScrapeConfig,
    external_labels: &Labels,
    trim_suffixes: bool,
) -> sluice_scrape::Target {
    let pair = |label: &sluice_discovery::Label| (label.name.to_string(), label.value.to_string());
    let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    sluice_scrape::Target {
        labels: target.labels().map(pair).collect(),
        scheme: target.label("__scheme__").to_string(),
        resource: resource(target),
        scope: (SCOPE.to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        external_labels: external_labels.iter().map(pair).collect(),
        trim_suffixes,
        honor_labels: job.honor_labels,
        honor_timestamps: job.honor_timestamps,
        track_timestamps_staleness: job.track_timestamps_staleness,
        native_histograms: target.histograms.scrape_native,
        always_classic_histograms: target.histograms.always_scrape_classic,
        custom_histograms: target.histograms.convert_classic,
        native_schema: job.native_buckets.schema,
        limits: Limits {
            body_bytes: page_limit_bytes(job),
            samples: count(job.limits.samples),
            labels: count(job.limits.labels),
            label_name_bytes: count(job.limits.label_name_bytes),
            label_value_bytes: count(job.limits.label_value_bytes),
            native_buckets: count(job.native_buckets.limit),
            memory_bytes: 0,
        },
    }
}

/// Differs when a target's series have other labels or other meanings than before.
pub(super) fn fingerprint(target: &sluice_scrape::Target, job: &ScrapeConfig) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{target:?} {:?} {:?}", job.metric_relabel, job.names).hash(&mut hasher);
    hasher.finish()
}

fn resource(target: &Target) -> Vec<(String, String)> {
    let mut attributes: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: &Text| {
        if !value.is_empty() && attributes.iter().all(|(known, _)| known != name) {
            attributes.push((name.to_owned(), value.to_string()));
        }
    };
    for (label, attribute) in KUBERNETES {
        add(attribute, target.meta(label));
    }
    let kind = target.meta("__meta_kubernetes_pod_controller_kind");
    if let Some((_, attribute)) = CONTROLLERS.iter().find(|(known, _)| **known == **kind) {
        add(attribute, target.meta("__meta_kubernetes_pod_controller_name"));
    }
    attributes
}

/// Applies a job's rules to the labels of a series; false drops it.
pub(super) fn relabel(job: &ScrapeConfig, labels: &mut SeriesLabels<'_>) -> bool {
    (job.metric_relabel.is_empty() || apply(&job.metric_relabel, labels))
        && (job.names == NameScheme::Utf8 || has_legacy_names(labels))
}

fn apply(rules: &[Rule], labels: &mut SeriesLabels<'_>) -> bool {
    let given = labels.iter().filter(|(_, value)| !value.is_empty()).count();
    let mut changed: Labels = labels.iter().collect();
    let is_twice = changed.len() < given;
    if !relabel::apply(rules, &mut changed) {
        return false;
    }
    // A label that the page has twice stays: the checks that follow refuse its series, as they do
    // one without a name.
    if !is_twice {
        labels.replace(changed.iter().map(|it| (it.name.to_string(), it.value.to_string())));
    }
    true
}

fn has_legacy_names(labels: &SeriesLabels<'_>) -> bool {
    let is_metric = |name: &str| NameScheme::Legacy.is_label_name(&name.replace(':', "_"));
    is_metric(labels.get("__name__"))
        && labels.iter().all(|(name, _)| NameScheme::Legacy.is_label_name(name))
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;
    use sluice_discovery::{Group, ScrapeConfigs, targets};

    use super::*;

    fn job(options: &str) -> ScrapeConfig {
        let text = format!("scrape_configs:\n- job_name: j\n{options}");
        let (mut configs, diagnostics) = read_text("x", &text, ScrapeConfigs::read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        configs.jobs.remove(0)
    }

    fn relabelled(job: &ScrapeConfig, pairs: &[(&'static str, &'static str)]) -> Option<String> {
        let mut labels = SeriesLabels::default();
        for (name, value) in pairs {
            labels.set(*name, *value);
        }
        let mut shown: Vec<_> = relabel(job, &mut labels)
            .then(|| labels.iter().map(|(name, value)| format!("{name}={value}")).collect())?;
        shown.sort_unstable();
        Some(shown.join(" "))
    }

    #[test]
    fn series_are_relabelled() {
        let job = job("  metric_relabel_configs:\n  \
             - {source_labels: [__name__], regex: go_.*, action: drop}\n  \
             - {source_labels: [a], target_label: b, replacement: 'x$1'}\n  \
             - {regex: a, action: labeldrop}\n");
        assert_eq!(relabelled(&job, &[("__name__", "go_x"), ("a", "1")]), None);
        let found = relabelled(&job, &[("__name__", "m"), ("a", "1"), ("c", "2")]);
        assert_eq!(found.as_deref(), Some("__name__=m b=x1 c=2"));
    }

    /// Guarantee: a rule that changes each of very many labels takes a moment, not minutes.
    #[test]
    fn very_many_labels_are_relabelled_at_once() {
        let job = job("  metric_relabel_configs:\n  \
             - {regex: 'l(.*)', replacement: 'm$1', action: labelmap}\n  \
             - {regex: 'l.*', action: labeldrop}\n");
        let names: Vec<String> = (0..50_000).map(|number| format!("l{number}")).collect();
        let mut labels = SeriesLabels::default();
        labels.replace(names.iter().map(|name| (name.as_str(), "v")));
        let began = std::time::Instant::now();
        assert!(relabel(&job, &mut labels));
        assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
        assert_eq!(labels.iter().filter(|(name, _)| name.starts_with('m')).count(), 50_000);
        assert_eq!(labels.iter().count(), 50_000);
    }

    #[test]
    fn names_of_the_other_scheme_are_dropped() {
        let legacy = job("  metric_name_validation_scheme: legacy\n");
        let found = |pairs| relabelled(&legacy, pairs).is_some();
        assert!(found(&[("__name__", "a:b_1"), ("c", "é")]));
        assert!(!found(&[("__name__", "a.b")]));
        assert!(!found(&[("__name__", "a"), ("b.c", "1")]));
        assert!(relabelled(&job(""), &[("__name__", "a.b"), ("é", "1")]).is_some());
    }

    #[test]
    fn targets_have_the_histograms_of_their_job() {
        let config = job("  convert_classic_histograms_to_nhcb: true\n  \
             native_histogram_bucket_limit: 7\n  native_histogram_min_bucket_factor: 2\n");
        let group = Group::new("g".into(), ["a:1".into()], Labels::default());
        let found = targets(&config, [&group], &[]);
        let target = scraped(&found.targets[0], &config, &Labels::default(), false);
        assert!(target.custom_histograms && !target.native_histograms);
        assert_eq!((target.limits.native_buckets, target.native_schema), (7, Some(0)));
    }

    /// Guarantee: labels of discovery are attributes of the resource, as in the Collector.
    #[test]
    fn pods_are_resources() {
        let labels = [
            ("__meta_kubernetes_namespace", "shop"),
            ("__meta_kubernetes_pod_name", "cart-1"),
            ("__meta_kubernetes_pod_node_name", "n1"),
            ("__meta_kubernetes_pod_controller_kind", "DaemonSet"),
            ("__meta_kubernetes_pod_controller_name", "cart"),
        ];
        let group = Group::new("g".into(), ["a:1".into()], labels.into_iter().collect());
        let config = job("  body_size_limit: 1KB\n");
        let found = targets(&config, [&group], &[]);
        let target = scraped(&found.targets[0], &config, &Labels::default(), false);
        let shown: Vec<String> =
            target.resource.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = "k8s.pod.name=cart-1 k8s.namespace.name=shop k8s.node.name=n1 \
                        k8s.daemonset.name=cart";
        assert_eq!(shown.join(" "), expected);
        assert_eq!((target.scheme.as_str(), target.limits.body_bytes), ("http", 1024));
        let other = job("  body_size_limit: 1KB\n  honor_labels: true\n");
        let changed = scraped(&found.targets[0], &other, &Labels::default(), false);
        assert_eq!(fingerprint(&target, &config), fingerprint(&target, &config));
        assert_ne!(fingerprint(&target, &config), fingerprint(&changed, &other));
    }
}
