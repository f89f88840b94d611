//! Configurations of `resource` and `attributes` in which the Collector and Sluice have to agree.

use sluice_otlp::Signal;

/// One section `processors`. `NAME` stands for the case's name.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) signals: &'static [Signal],
    pub(crate) processors: &'static str,
    /// As a pipeline lists them.
    pub(crate) chain: &'static str,
    /// Whether the case changes the samples at all.
    pub(crate) changes: bool,
}

const ALL: &[Signal] = &Signal::ALL;
const TRACES: &[Signal] = &[Signal::Traces];
const METRICS: &[Signal] = &[Signal::Metrics];
const LOGS: &[Signal] = &[Signal::Logs];
const TRACES_AND_LOGS: &[Signal] = &[Signal::Traces, Signal::Logs];

/// A case whose only processor is `attributes/NAME`.
const fn attributes(
    name: &'static str,
    signals: &'static [Signal],
    processors: &'static str,
) -> Case {
    Case { name, signals, processors, chain: "attributes/NAME", changes: true }
}

pub(crate) const CASES: &[Case] = &[
    attributes(
        "put-every-type",
        ALL,
        "  attributes/NAME:
    actions:
      - { key: new.string, value: text, action: insert }
      - { key: new.int, value: 17, action: insert }
      - { key: new.double, value: 1.5, action: insert }
      - { key: new.whole.double, value: 2.0, action: insert }
      - { key: new.bool, value: true, action: insert }
      - { key: new.quoted, value: \"17\", action: insert }
      - { key: new.list, value: [1, two, 3.5], action: insert }
      - { key: new.map, value: { inner: { deep: 1 } }, action: insert }
      - { key: http.method, value: never, action: insert }
      - { key: ratio, value: changed, action: update }
      - { key: absent, value: never, action: update }
      - { key: ok, value: 5, action: upsert }
      - { key: list, value: 7, action: upsert }
      - { key: added, value: -3, action: upsert }
",
    ),
    attributes(
        "yaml-scalars",
        ALL,
        "  attributes/NAME:
    actions:
      - { key: octal, value: 0644, action: insert }
      - { key: hex, value: 0x1F, action: insert }
      - { key: yes, value: yes, action: insert }
      - { key: exponent, value: 1e3, action: insert }
      - { key: tilde, value: \"~\", action: insert }
      - { key: date, value: \"2024-01-02\", action: insert }
      - { key: under, value: 1_000, action: insert }
      - { key: http.method, value: \"\", action: update }
",
    ),
    attributes(
        "from-attribute",
        ALL,
        "  attributes/NAME:
    actions:
      - { key: copy.text, from_attribute: url, action: insert }
      - { key: copy.map, from_attribute: map, action: upsert }
      - { key: copy.bytes, from_attribute: bytes, action: upsert }
      - { key: copy.empty, from_attribute: empty, action: upsert }
      - { key: copy.odd, from_attribute: only.odd, action: upsert }
      - { key: copy.copy, from_attribute: copy.odd, action: insert }
      - { key: ok, from_attribute: ratio, action: update }
      - { key: ratio, from_attribute: ratio, action: update }
",
    ),
    attributes(
        "default-value",
        ALL,
        "  attributes/NAME:
    actions:
      - { key: odd.or.even, from_attribute: only.odd, default_value: even, action: insert }
      - { key: number, from_attribute: absent, default_value: 8, action: upsert }
      - { key: tenant, from_context: metadata.x-absent, default_value: unknown, action: upsert }
",
    ),
    attributes(
        "from-context",
        ALL,
        "  attributes/NAME:
    actions:
      - { key: tenant, from_context: metadata.x-tenant, action: insert }
      - { key: absent, from_context: metadata.x-absent, action: insert }
      - { key: peer, from_context: client.address, action: upsert }
",
    ),
    attributes(
        "delete",
        ALL,
        "  attributes/NAME:
    actions:
      - { key: url, action: delete }
      - { key: absent, action: delete }
      - { pattern: \"^secret\\\\.\", action: delete }
      - { key: map, pattern: \"^(list|by.es)$\", action: delete }
",
    ),
    attributes(
        "hash",
        ALL,
        "  attributes/NAME:
    actions:
      - { key: http.method, action: hash }
      - { key: http.status_code, action: hash }
      - { key: ratio, action: hash }
      - { key: ok, action: hash }
      - { key: umlaut, action: hash }
      - { key: numeric.text, action: hash }
      - { key: lowest, action: hash }
      - { key: bytes, action: hash }
      - { key: list, action: hash }
      - { key: map, action: hash }
      - { key: empty, action: hash }
",
    ),
    attributes(
        "hash-by-pattern",
        ALL,
        "  attributes/NAME:
    actions:
      - { pattern: \"secret.*\", action: hash }
      - { key: url, pattern: \"^u\", action: hash }
",
    ),
    attributes(
        "extract",
        ALL,
        "  attributes/NAME:
    actions:
      - key: url
        pattern: ^(?P<url_scheme>[a-z]+)://(?P<url_host>[^:/]+):(?P<url_port>\\d+)/(?P<url_path>[^?]*)\\??(?P<rest>.*)
        action: extract
      - key: user.email
        pattern: (?P<http_user>\\w+)@(?P<ok>.*)
        action: extract
      - key: http.status_code
        pattern: (?P<never>.*)
        action: extract
      - key: numeric.text
        pattern: ^(?P<digits>\\d+)?(?P<letters>[a-z]+)?$
        action: extract
",
    ),
    attributes(
        "convert",
        ALL,
        "  attributes/NAME:
    actions:
      - { key: numeric.text, converted_type: int, action: convert }
      - { key: ratio, converted_type: int, action: convert }
      - { key: large, converted_type: string, action: convert }
      - { key: small, converted_type: string, action: convert }
      - { key: ok, converted_type: int, action: convert }
      - { key: http.status_code, converted_type: string, action: convert }
      - { key: lowest, converted_type: double, action: convert }
      - { key: list, converted_type: string, action: convert }
      - { key: map, converted_type: string, action: convert }
      - { key: bytes, converted_type: string, action: convert }
      - { key: empty, converted_type: string, action: convert }
      - { key: umlaut, converted_type: double, action: convert }
",
    ),
    attributes(
        "convert-more",
        ALL,
        "  attributes/NAME:
    actions:
      - { key: numeric.text, converted_type: double, action: convert }
      - { key: ratio, converted_type: string, action: convert }
      - { key: ok, converted_type: string, action: convert }
      - { key: http.status_code, converted_type: double, action: convert }
      - { key: secret.count, converted_type: int, action: convert }
      - { key: list, converted_type: int, action: convert }
      - { key: empty, converted_type: int, action: convert }
      - { key: bytes, converted_type: double, action: convert }
",
    ),
    attributes(
        "span-names",
        TRACES,
        "  attributes/NAME:
    include: { match_type: strict, span_names: [GET /cart, worker] }
    exclude: { match_type: regexp, services: [api-.*] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "span-names-regexp",
        TRACES,
        "  attributes/NAME:
    include: { match_type: regexp, span_names: [\"^(GET|POST) \", que] }
    exclude: { match_type: strict, attributes: [{ key: http.method, value: GET }] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "span-kinds",
        TRACES,
        "  attributes/NAME:
    include: { match_type: strict, span_kinds: [SPAN_KIND_SERVER, SPAN_KIND_CONSUMER] }
    exclude: { match_type: strict, services: [checkout] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "span-kinds-regexp",
        TRACES,
        "  attributes/NAME:
    exclude: { match_type: regexp, span_kinds: [\"SPAN_KIND_(SERVER|INTERNAL)\"] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "log-bodies",
        LOGS,
        "  attributes/NAME:
    include: { match_type: strict,
        log_bodies: [\"login failed for user 7\", \"42\", \"true\", \"2.5\", \"\"] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "log-bodies-regexp",
        LOGS,
        "  attributes/NAME:
    include: { match_type: regexp, log_bodies: [\"7$\", \"message\", \"\\\\[\"] }
    exclude: { match_type: regexp, log_bodies: [\"succeeded\"] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "log-severity",
        LOGS,
        "  attributes/NAME:
    include: { log_severity_number: { min: 9, match_undefined: true }, match_type: strict }
    exclude: { match_type: regexp, log_severity_texts: [\"(?i)^warn\"] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "log-severity-defined",
        LOGS,
        "  attributes/NAME:
    include: { log_severity_number: { min: 5 }, match_type: strict }
    exclude: { match_type: strict, log_severity_texts: [INFO, ERROR] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "metric-names",
        METRICS,
        "  attributes/NAME:
    include: { match_type: strict, metric_names: [http.requests, rpc.latency, rpc.summary] }
    exclude: { match_type: strict, metric_names: [rpc.summary] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "metric-names-regexp",
        METRICS,
        "  attributes/NAME:
    include: { match_type: regexp, metric_names: [\"^http\", usage] }
    exclude: { match_type: regexp, metric_names: [\"latency$\"] }
    actions: [{ key: url, action: delete }, { key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "libraries",
        TRACES_AND_LOGS,
        "  attributes/NAME:
    include: { match_type: strict, libraries: [{ name: io.http, version: 1.2.0 }] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "libraries-regexp",
        TRACES_AND_LOGS,
        "  attributes/NAME:
    include: { match_type: regexp, libraries: [{ name: \"^io\\\\.\" }] }
    exclude: { match_type: regexp, libraries: [{ name: http, version: \"^1\" }] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "resources",
        TRACES_AND_LOGS,
        "  attributes/NAME:
    include: { match_type: strict,
        resources: [{ key: service.name, value: checkout }, { key: process.pid, value: 4711 }] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "resources-regexp",
        TRACES_AND_LOGS,
        "  attributes/NAME:
    exclude: { match_type: regexp, resources: [{ key: process.pid, value: \"^1\" }] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "attribute-values",
        TRACES_AND_LOGS,
        "  attributes/NAME:
    include: { match_type: strict,
        attributes: [{ key: http.status_code, value: 200 },
        { key: ok, value: true }, { key: url }] }
    exclude: { match_type: strict, attributes: [{ key: ratio, value: 2.0 }] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    attributes(
        "attribute-values-regexp",
        TRACES_AND_LOGS,
        "  attributes/NAME:
    include: { match_type: regexp,
        attributes: [{ key: http.status_code, value: \"^[23]\" }, { key: ok, value: \"t|f\" }] }
    exclude: { match_type: regexp, attributes: [{ key: ratio, value: \"\\\\.25$\" }] }
    actions: [{ key: selected, value: true, action: upsert }]
",
    ),
    Case {
        name: "attribute-of-another-type",
        signals: TRACES_AND_LOGS,
        processors: "  attributes/NAME:
    include: { match_type: strict, attributes: [{ key: http.status_code, value: \"200\" }] }
    actions: [{ key: selected, value: true, action: upsert }]
",
        chain: "attributes/NAME",
        changes: false,
    },
    Case {
        // By the documentation one of them has to match; in the Collector all have to.
        name: "two-libraries",
        signals: TRACES_AND_LOGS,
        processors: "  attributes/NAME:
    include: { match_type: strict, libraries: [{ name: io.http }, { name: io.db }] }
    actions: [{ key: selected, value: true, action: upsert }]
",
        chain: "attributes/NAME",
        changes: false,
    },
    Case {
        // The same.
        name: "two-resources",
        signals: TRACES_AND_LOGS,
        processors: "  attributes/NAME:
    include: { match_type: strict,
        resources: [{ key: service.name, value: checkout }, { key: process.pid, value: 1 }] }
    actions: [{ key: selected, value: true, action: upsert }]
",
        chain: "attributes/NAME",
        changes: false,
    },
    Case {
        name: "resource",
        signals: ALL,
        processors: "  resource/NAME:
    attributes:
      - { key: k8s.cluster.name, value: ours, action: insert }
      - { key: deployment.environment.name, value: test, action: upsert }
      - { key: process.pid, action: hash }
      - { key: absent, value: 1, action: update }
      - { key: deployment.weight, value: 2, action: update }
      - { key: is.canary, converted_type: string, action: convert }
      - { key: labels, action: delete }
      - { key: k8s.pod.name, pattern: \"^(?P<k8s_deployment_name>.+)-[^-]+-[^-]+$\", action: extract }
      - { key: service.instance.id, from_attribute: k8s.pod.name, action: insert }
",
        chain: "resource/NAME",
        changes: true,
    },
    Case {
        name: "resource-patterns",
        signals: ALL,
        processors: "  resource/NAME:
    attributes:
      - { pattern: \"^k8s\\\\.\", action: delete }
      - { pattern: \"^host\", action: hash }
      - { key: tenant, from_context: metadata.x-tenant, action: insert }
",
        chain: "resource/NAME",
        changes: true,
    },
    Case {
        name: "chain",
        signals: ALL,
        processors: "  resource/NAME:
    attributes: [{ key: service.name, value: renamed, action: upsert }]
  attributes/NAME-1:
    actions: [{ key: stage, value: first, action: insert }, { key: url, action: delete }]
  attributes/NAME-2:
    actions: [{ key: stage, value: second, action: update },
        { key: url, value: again, action: insert }]
",
        chain: "resource/NAME, attributes/NAME-1, attributes/NAME-2",
        changes: true,
    },
    Case { name: "nothing", signals: ALL, processors: "", chain: "", changes: false },
];
