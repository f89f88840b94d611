use super::*;

fn refused(yaml: &str) -> String {
    options(yaml).expect_err(yaml)
}

fn warnings(yaml: &str) -> String {
    let (_, diagnostics) = read_text("processors.resource_detection", yaml, Options::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    diagnostics.render(false)
}

/// Guarantee: what is wrong is told with its place and what would be right.
#[test]
fn wrong_options_are_refused_with_the_remedy() {
    for (yaml, part) in [
        ("detectors: [env, vultr]", "`vultr`, which is not in this build"),
        ("detectors: [vultr]", "the detectors in this build are `env`, `system`"),
        ("detectors: [en]", "`en`, which is no detector"),
        ("detectors: []", "is empty"),
        ("detectors: ''", "is empty"),
        ("timeout: 0s", "retry.max_elapsed_time"),
        ("retry: {max_elapsed_time: 1s}", "is less than `max_interval`"),
        ("retry: {max_elapsed_time: 1s, max_interval: 1s, initial_interval: 2s}", "`initial_int"),
        ("retry: {randomization_factor: 2}", "randomization_factor"),
        ("retry: {multiplier: 0.5}", "multiplier"),
        ("refresh_interval: -1s", "refresh_interval"),
        ("attributes: [host.name]", "each detector has its own `resource_attributes`"),
        ("system: {hostname_sources: [dns, invalid]}", "`invalid`, which is no source"),
        ("system: {resource_attributes: {host.x: {enabled: true}}}", "host.x"),
        ("system: {resource_attributes: {host.x: {}}}", "its attributes are host.arch"),
        ("system: {resource_attributes: {host.id: {on: true}}}", "has no option `on`"),
        ("ec2: {tags: [a]}", "set `tags_from_imds: true`"),
        ("ec2: {tags: ['('], tags_from_imds: true}", "no regular expression"),
        ("gcp: {labels: [a]}", "gcp.labels"),
        ("eks: {resource_attributes: {k8s.cluster.name: {enabled: true}}}", "DescribeInstances"),
        ("k8s_api: {auth_type: tls}", "auth_type"),
    ] {
        let error = refused(yaml);
        assert!(error.contains(part), "{yaml}: {error}");
    }
    for yaml in [
        "{}",
        "{timeout: 0s, retry: {enabled: false}}",
        "{timeout: 0s, retry: {max_elapsed_time: 1m}}",
        "{retry: {enabled: false, max_elapsed_time: 1ms}}",
        "detectors: [' system ', env]",
        "detectors: 'env, system'",
        "{detectors: [ec2], ec2: {tags: [a], tags_from_imds: true}}",
    ] {
        assert!(options(yaml).is_ok(), "{}", refused(yaml));
    }
}

/// Guarantee: an option without an effect says so.
#[test]
fn options_without_an_effect_say_so() {
    for (yaml, part) in [
        ("proxy_url: http://p", "`processors.resource_detection.proxy_url` has no effect"),
        ("vultr: {}", "this detector is not in this build"),
        ("system: {hostname_sources: [os]}", "`detectors` does not name `system`"),
        ("detectors: [k8snode]", "whose name is `k8s_api` now"),
        ("{detectors: [ec2], ec2: {fail_on_missing_metadata: true}}", "is deprecated"),
        ("{detectors: [ec2], ec2: {max_attempts: 1}}", "max_attempts` has no effect"),
        ("{detectors: [k8s_api], k8s_api: {kube_api_qps: 1}}", "kube_api_qps` has no effect"),
    ] {
        let shown = warnings(yaml);
        assert!(shown.contains(part), "{yaml}: {shown}");
    }
    assert_eq!(warnings("{detectors: [env, system], system: {hostname_sources: [os]}}"), "");
}

/// Guarantee: what decides on attributes is part of the fingerprint.
#[test]
fn what_decides_on_attributes_is_part_of_the_fingerprint() {
    let of = |yaml: &str, text| {
        let around = Surroundings::of(Path::new("/"), &[("OTEL_RESOURCE_ATTRIBUTES", text)], "");
        processor(yaml, &around).fingerprint()
    };
    assert_eq!(of("{}", "a=b"), of("override: true", "a=b"));
    for (yaml, text) in [
        ("{}", "a=c"),
        ("override: false", "a=b"),
        ("detectors: [system]", "a=b"),
        ("detectors: [env, system]", "a=b"),
        ("refresh_interval: 1s", "a=b"),
    ] {
        assert_ne!(of("{}", "a=b"), of(yaml, text), "{yaml} {text}");
    }
    let system = |options: &str| of(&format!("{{detectors: [system], system: {options}}}"), "");
    assert_ne!(system("{}"), system("{hostname_sources: [os]}"));
    assert_ne!(system("{}"), system("{resource_attributes: {host.id: {enabled: true}}}"));
    let on = "{resource_attributes: {host.name: {enabled: true}}}";
    assert_eq!(system("{}"), system(on));
}
