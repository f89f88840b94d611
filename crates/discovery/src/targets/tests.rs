use proptest::prelude::*;
use sluice_config::read_text;

use super::*;
use crate::scrape_config::ScrapeConfigs;

/// The job of a text.
fn job(text: &str) -> ScrapeConfig {
    let text = format!("scrape_configs:\n- job_name: j\n{text}");
    let (mut configs, diagnostics) = read_text("x", &text, ScrapeConfigs::read);
    let said: Vec<_> = diagnostics.items().iter().map(|item| diagnostics.line(item)).collect();
    assert_eq!(said, Vec::<String>::new(), "{text}");
    configs.jobs.remove(0)
}

fn group(addresses: &[&str], labels: &[(&str, &str)]) -> Group {
    let addresses = addresses.iter().map(|address| Text::from(*address));
    Group::new("g".into(), addresses, labels.iter().copied().collect())
}

fn shown(target: &Target) -> String {
    let labels = target.labels().map(|label| format!("{}={}", label.name, label.value));
    let labels = labels.collect::<Vec<_>>().join(",");
    let (interval, timeout) = (units::show(target.interval), units::show(target.timeout));
    format!("{} {interval}/{timeout} {labels}", target.origin.uri)
}

/// The only target, or why there is none.
fn only(config: &ScrapeConfig, labels: &[(&str, &str)]) -> String {
    let own: Labels = labels.iter().copied().collect();
    let group = Group { targets: vec![own], ..group(&[], &[("from", "group")]) };
    let found = targets(config, [&group], &[]);
    match (found.targets.as_slice(), found.failures.as_slice(), found.dropped) {
        ([target], [], 0) => shown(target),
        ([], [failure], 0) => failure.clone(),
        ([], [], 1) => "dropped".to_owned(),
        _ => format!("{found:?}"),
    }
}

/// Guarantee: a target's own labels come before those of its group, and these before the job's;
/// labels of the protocol decide on the scrape, and metrics do not get them.
#[test]
fn labels_make_a_target() {
    let plain = job("  scheme: https\n  scrape_interval: 1s");
    let whole =
        job("  metrics_path: /m x?\n  params: {b: [1, 2], a: ['x y&é']}\n  relabel_configs:\n  \
         - {source_labels: [__meta_port], target_label: __address__, replacement: 'h:$1'}\n  \
         - {source_labels: [__meta_port], target_label: __param_b}\n  \
         - {regex: __meta_(p.*), action: labelmap}");
    for (config, labels, expected) in [
        (
            &plain,
            vec![("__address__", "1.2.3.4:1000"), ("custom", "value")],
            "https://1.2.3.4:1000/metrics 1s/1s custom=value,from=group,instance=1.2.3.4:1000,job=j",
        ),
        (
            &plain,
            vec![
                ("__address__", "a"),
                ("__scheme__", "http"),
                ("__metrics_path__", "/custom"),
                ("__scrape_interval__", "2m"),
                ("__scrape_timeout__", "2s"),
                ("job", "other"),
                ("from", "target"),
                ("instance", "i"),
                ("__tmp", "t"),
            ],
            "http://a/custom 2m/2s from=target,instance=i,job=other",
        ),
        (
            &whole,
            vec![("__meta_port", "80")],
            "http://h:80/m%20x%3F?a=x+y%26%C3%A9&b=80&b=2 1m/10s from=group,instance=h:80,job=j,port=80",
        ),
        (
            &plain,
            vec![("__address__", "[::1]:9"), ("__param_x", "y")],
            "https://[::1]:9/metrics?x=y 1s/1s from=group,instance=[::1]:9,job=j",
        ),
        (
            &plain,
            vec![("__address__", "a"), ("__metrics_path__", "/m@b:c")],
            "https://a/m%40b:c 1s/1s from=group,instance=a,job=j",
        ),
        (
            &plain,
            vec![("__address__", "a"), ("__metrics_path__", "m")],
            "https://a/m 1s/1s from=group,instance=a,job=j",
        ),
    ] {
        assert_eq!(only(config, &labels), expected);
    }
}

/// Guarantee: labels that make no target are refused with the reason.
#[test]
fn mistakes_in_labels_are_named() {
    let config = job("");
    for (labels, reason) in [
        (vec![("a", "b")], "it has no `__address__`"),
        (vec![("__address__", "http://a")], "`http://a` is not `host:port`"),
        (vec![("__address__", "a:80?b=c")], "`a:80?b=c` is not `host:port`"),
        (vec![("__address__", "a#b")], "`a#b` is not `host:port`"),
        (vec![("__address__", "a b:1")], "its URL cannot be used: it is not a URL"),
        (vec![("__address__", "u:p@a:1")], "which Sluice does not send"),
        (vec![("__address__", "a"), ("__scheme__", "ftp")], "must start with http://"),
        (
            vec![("__address__", "a"), ("__scrape_interval__", "2x")],
            "`__scrape_interval__` is no duration: `x`",
        ),
        (vec![("__address__", "a"), ("__scrape_interval__", "0s")], "`__scrape_interval__` is 0"),
        (vec![("__address__", "a"), ("__scrape_timeout__", "0")], "`__scrape_timeout__` is 0"),
        (
            vec![("__address__", "a"), ("__scrape_timeout__", "2m")],
            "timeout of 2m is longer than its interval of 1m",
        ),
        (
            vec![("__address__", "a"), ("__scrape_native_histograms__", "yes")],
            "neither true nor false",
        ),
    ] {
        let shown = only(&config, &labels);
        assert!(
            shown.starts_with("target 0 of the group g: ") && shown.contains(reason),
            "{shown}"
        );
    }
    let dropping = job("  relabel_configs: [{source_labels: [a], action: drop}]");
    assert_eq!(only(&dropping, &[("__address__", "a")]), "dropped");
}

/// Guarantee: labels of the protocol for histograms change them for one target.
#[test]
fn histograms_are_chosen_by_labels() {
    let config = job("  scrape_native_histograms: true");
    let classic = group(&["a"], &[("__always_scrape_classic_histograms__", "T")]);
    let found = targets(&config, [&classic], &[]);
    let native = Histograms { scrape_native: true, ..Histograms::default() };
    let expected = Histograms { always_scrape_classic: true, ..native };
    assert_eq!(found.targets[0].histograms, expected);
    let converted = group(&["a"], &[("__convert_classic_histograms_to_nhcb__", "T")]);
    let found = targets(&config, [&converted], &[]);
    assert_eq!(found.targets[0].histograms, Histograms { convert_classic: true, ..native });
    let config = job("  convert_classic_histograms_to_nhcb: true");
    let kept = group(&["a"], &[("__convert_classic_histograms_to_nhcb__", "0")]);
    let found = targets(&config, [&group(&["b"], &[]), &kept], &[]);
    let is_converted = |number: usize| found.targets[number].histograms.convert_classic;
    assert_eq!((is_converted(0), is_converted(1)), (true, false));
}

/// Guarantee: labels of discovery that name a resource are kept as they were before relabelling,
/// beside the target's labels; others are not.
#[test]
fn labels_that_name_a_resource_are_kept() {
    let config = job("  relabel_configs: [{regex: __meta_kubernetes_pod_uid, action: labeldrop}]");
    let labels = [
        ("__meta_kubernetes_namespace", "shop"),
        ("__meta_kubernetes_pod_uid", "1-2"),
        ("__meta_kubernetes_pod_label_app", "cart"),
    ];
    let found = targets(&config, [&group(&["a"], &labels)], &[]);
    let target = &found.targets[0];
    let meta = ["namespace", "pod_uid", "pod_label_app"]
        .map(|name| target.meta(&format!("__meta_kubernetes_{name}")).to_string());
    assert_eq!(meta, ["shop", "1-2", ""]);
    assert!(target.label("__meta_kubernetes_namespace").is_empty());
}

/// Scenario: two sources have the same target, and one of them another with the same URL.
/// Guarantee: equal targets are one; those that were there before are the same allocation.
#[test]
fn equal_targets_are_one() {
    let config = job("");
    let groups =
        [group(&["a:1", "b:1"], &[]), group(&["a:1"], &[]), group(&["a:1"], &[("x", "y")])];
    let first = targets(&config, &groups, &[]);
    let urls: Vec<String> = first.targets.iter().map(|it| it.origin.target.to_string()).collect();
    assert_eq!(urls, ["a:1", "b:1", "a:1"]);
    let second = targets(&config, &groups[1..], &first.targets);
    assert!(Arc::ptr_eq(&second.targets[0], &first.targets[0]));
    assert!(Arc::ptr_eq(&second.targets[1], &first.targets[2]));
}

#[test]
fn more_targets_than_the_limit_are_told() {
    let config = job("  target_limit: 2");
    let found = |addresses: &[&str]| targets(&config, [&group(addresses, &[])], &[]).exceeds_limit;
    assert!(!found(&["a", "b", "a"]) && found(&["a", "b", "c"]));
}

/// Scenario: a thousand targets. Guarantee: their scrapes are spread over the interval; each has
/// its own point in time, which neither a restart nor the moment of asking moves.
#[test]
fn scrapes_are_spread_over_the_interval() {
    let config = job("  scrape_interval: 10s");
    let addresses: Vec<String> = (0..1000).map(|n| format!("host-{n}:9100")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let [first, second] = [(); 2].map(|()| targets(&config, [&group(&addresses, &[])], &[]));
    let now = Duration::from_secs(1_700_000_003);
    let mut seconds = [0; 10];
    for (one, other) in first.targets.iter().zip(&second.targets) {
        let offset = one.offset(now, 7);
        assert_eq!(offset, other.offset(now, 7));
        seconds[offset.as_secs() as usize] += 1;
        let later = one.offset(now + Duration::from_secs(4), 7);
        let same = offset.as_nanos() % 10_000_000_000
            == (later.as_nanos() + 4_000_000_000) % 10_000_000_000;
        assert!(same, "{offset:?} {later:?}");
    }
    assert!(seconds.iter().all(|count| (60..140).contains(count)), "{seconds:?}");
}

proptest! {
    /// Guarantee: no labels make this panic, and a target has a host.
    #[test]
    fn no_labels_panic(
        pairs in prop::collection::btree_map(
            prop::sample::select(vec![
                "__address__", "__scheme__", "__metrics_path__", "__param_a", "__scrape_interval__",
                "a", "__meta_a", "instance",
            ]),
            r"[a-z:/?@0-9\[\]% é]{0,8}|http|a:1|1m",
            0..6,
        ),
    ) {
        let config = job("  params: {a: [b]}");
        let group = Group { targets: vec![pairs.into_iter().collect()], ..group(&[], &[]) };
        let found = targets(&config, [&group], &[]);
        prop_assert_eq!(found.targets.len() + found.failed, 1);
    }
}
