//! `service.telemetry`.

use sluice_otlp::AnyValue;

use super::*;
use crate::secret::Secret;

#[test]
fn reads_telemetry() {
    let (document, said) = read_rest("");
    assert_eq!((document.telemetry, said), (Telemetry::default(), Vec::new()));
    let (document, said) = read_rest(
        "  telemetry:
    metrics:
      level: normal
      readers:
        - pull: {exporter: {prometheus:
            {host: 0.0.0.0, port: 8889, without_units: false, without_scope_info: true}}}
    logs: {level: DEBUG, encoding: json, output_paths: [stdout], sampling: {enabled: false}}
    resource: {service.name: gateway, host.name: }
",
    );
    assert_eq!(said, Vec::<String>::new());
    let Telemetry { readers, periodic, logs, resource } = document.telemetry;
    let reader = PrometheusReader { host: "0.0.0.0".to_owned(), port: 8889, has_suffixes: true };
    assert_eq!(readers, [reader]);
    let expected_logs = OwnLogs {
        level: "debug",
        is_json: true,
        output: "stdout".to_owned(),
        sampling: None,
        processors: Vec::new(),
    };
    assert_eq!((logs, periodic), (expected_logs, Vec::new()));
    let name = AnyValue::String("gateway".to_owned());
    let expected = [("service.name".to_owned(), Some(name)), ("host.name".to_owned(), None)];
    assert_eq!(resource.attributes, expected);
}

/// Guarantee: one `false` turns both suffixes on, whatever the other option is. The expected values
/// are those of the Collector's page.
#[test]
fn either_option_turns_both_suffixes_on() {
    let given = |option: &str, value: Option<bool>| {
        value.map_or(String::new(), |value| format!(", {option}: {value}"))
    };
    let values = [None, Some(true), Some(false)];
    for (total, units) in values.iter().flat_map(|total| values.map(|units| (*total, units))) {
        let options = given("without_type_suffix", total) + &given("without_units", units);
        let (document, said) = read_rest(&format!(
            "  telemetry: {{metrics: {{readers: [{{pull: {{exporter: {{prometheus: \
             {{port: 8889{options}}}}}}}}}]}}}}\n"
        ));
        assert_eq!(said, Vec::<String>::new());
        let expected = total == Some(false) || units == Some(false);
        assert_eq!(document.telemetry.readers[0].has_suffixes, expected, "{options}");
    }
}

/// Guarantee: null is no list of readers, as in the Collector.
#[test]
fn own_metrics_are_on_unless_turned_off() {
    for metrics in ["{readers: }", "{address: }"] {
        let (document, said) = read_rest(&format!("  telemetry: {{metrics: {metrics}}}"));
        assert_eq!((document.telemetry.readers.len(), said), (1, Vec::new()), "{metrics}");
    }
}

#[test]
fn turns_own_metrics_off() {
    for metrics in ["{level: none}", "{level: none, readers: []}"] {
        let (document, said) = read_rest(&format!("  telemetry: {{metrics: {metrics}}}"));
        assert_eq!((document.telemetry.readers, said), (Vec::new(), Vec::new()), "{metrics}");
    }
}

/// Reads one exporter of own metrics.
fn read_target(protocol_and_endpoint: &str) -> (Option<PushTarget>, Vec<String>) {
    let (document, said) = read_rest(&format!(
        "  telemetry: {{metrics: {{readers: [{{periodic: {{exporter: {{otlp: \
         {{{protocol_and_endpoint}}}}}}}}}]}}}}"
    ));
    let reader = document.telemetry.periodic.first();
    (reader.map(|reader| reader.target.clone()), said)
}

/// Guarantee: the whole schema is read, headers as a list and as a mapping.
#[test]
fn reads_destinations_of_own_telemetry() {
    let (document, said) = read_rest(
        "  telemetry:
    metrics:
      readers:
        - periodic:
            interval: 5000
            timeout: 2000
            exporter:
              otlp:
                protocol: http/protobuf
                endpoint: https://backend:443/in/metrics?x=y
                headers: [{name: api-key, value: hunter2}]
                headers_list: 'api-key=other,tenant=a%20b'
                compression: gzip
                timeout: 1000
                certificate: /ca
                client_certificate: /cert
                client_key: /key
                temporality_preference: delta
    logs:
      processors:
        - batch:
            schedule_delay: 10
            export_timeout: 20
            max_queue_size: 30
            max_export_batch_size: 40
            exporter: {otlp: {protocol: grpc, endpoint: 'h:1', insecure: true, headers: {a: b}}}
        - simple: {exporter: {otlp_http: {encoding: json}}}
",
    );
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(document.telemetry.readers, [], "readers that are given replace the default");
    let [reader] = &document.telemetry.periodic[..] else { panic!("one reader") };
    let milliseconds = Duration::from_millis;
    assert_eq!((reader.interval, reader.timeout), (milliseconds(5000), milliseconds(2000)));
    assert_eq!(reader.temporality, Temporality::Delta);
    let secret = |name: &str, value: &str| (name.to_owned(), Secret::new(value));
    let target = PushTarget {
        protocol: PushProtocol::Http,
        endpoint: "https://backend:443/in/metrics?x=y".to_owned(),
        headers: vec![secret("api-key", "hunter2"), secret("tenant", "a b")],
        is_packed: true,
        timeout: milliseconds(1000),
        ca_file: Some("/ca".to_owned()),
        cert_file: Some("/cert".to_owned()),
        key_file: Some("/key".to_owned()),
        path: String::new(),
        span: None,
    };
    assert_eq!(reader.target, target);
    assert_eq!(reader.target.path, "service.telemetry.metrics.readers[0].periodic.exporter.otlp");
    let [batch, simple] = &document.telemetry.logs.processors[..] else { panic!("two") };
    assert_eq!((batch.delay, batch.timeout), (milliseconds(10), milliseconds(20)));
    assert_eq!((batch.queue_max, batch.batch_max), (30, 30));
    assert_eq!(batch.target.headers, [secret("a", "b")]);
    assert_eq!((simple.delay, simple.queue_max), (Duration::ZERO, 2048));
    assert_eq!(simple.target.protocol, PushProtocol::HttpJson);
    assert_eq!(simple.target.endpoint, "http://localhost:4318/v1/logs");
    assert!(!format!("{document:?}").contains("hunter2"), "a header is shown");
}

/// Guarantee: endpoints mean what they mean for the Collector: whether there is TLS, and the paths
/// and ports that are left out.
#[test]
fn endpoints_are_completed() {
    for (given, expected) in [
        ("protocol: grpc, endpoint: 'h:4317'", "https://h:4317"),
        ("protocol: grpc, endpoint: 'h:4317', insecure: true", "http://h:4317"),
        ("protocol: grpc, endpoint: 'http://h:4317/'", "http://h:4317"),
        ("protocol: grpc, endpoint: 'https://h'", "https://h:443"),
        ("protocol: grpc/protobuf, endpoint: 'https://[::1]'", "https://[::1]:443"),
        ("protocol: http/protobuf, endpoint: 'h:4318'", "https://h:4318/v1/metrics"),
        ("protocol: http/protobuf, endpoint: 'http://h:4318'", "http://h:4318/v1/metrics"),
        ("protocol: http/protobuf, endpoint: 'http://h:4318/'", "http://h:4318/"),
        ("protocol: http/protobuf, endpoint: 'https://h/x'", "https://h/x"),
    ] {
        let (target, said) = read_target(given);
        assert_eq!(said, Vec::<String>::new(), "{given}");
        assert_eq!(target.expect("a destination").endpoint, expected, "{given}");
    }
}

/// Guarantee: what cannot be used is an error, what has no effect a warning, and no message has a
/// password.
#[test]
fn says_what_is_wrong_with_a_destination() {
    const OTLP: &str = "`service.telemetry.metrics.readers[0].periodic.exporter.otlp";
    for (given, expected) in [
        ("endpoint: 'h:1'", ".protocol` is required"),
        ("protocol: grpc", ".endpoint` is required"),
        (
            "protocol: http/json, endpoint: 'h:1'",
            ".protocol` must be one of `grpc`, `http/protobuf`, `grpc/protobuf`, not `http/json`",
        ),
        (
            "protocol: grpc, endpoint: 'ftp://h:1'",
            ".endpoint` begins with `ftp://`: only `http` and `https` are known",
        ),
        (
            "protocol: grpc, endpoint: 'http://me:hunter2@h:1'",
            ".endpoint` has a user or a password, which would not be sent: use `headers`",
        ),
        (
            "protocol: grpc, endpoint: 'https://h:1/x'",
            ".endpoint` has the path `/x`, which gRPC does not know: it has no effect",
        ),
        (
            "protocol: grpc, endpoint: 'https://h:1', insecure: true",
            ".endpoint` begins with `https://`: `insecure` has no effect",
        ),
        (
            "protocol: grpc, endpoint: 'http://h:1', certificate: /x",
            ".endpoint` is without TLS: the certificates have no effect",
        ),
        (
            "protocol: grpc, endpoint: 'h:1', client_key: /x",
            "` has only one of certificate and private key of the client",
        ),
        (
            "protocol: grpc, endpoint: 'h:1', headers_list: hunter2",
            ".headers_list` must be `name=value` pairs with commas between them, percent-encoded",
        ),
        (
            "protocol: grpc, endpoint: 'h:1', \
             default_histogram_aggregation: explicit_bucket_histogram",
            ".default_histogram_aggregation` has no effect: no metric of Sluice is a histogram",
        ),
    ] {
        let (_, said) = read_target(given);
        assert_eq!(said.len(), 1, "{given}: {said:?}");
        assert!(said[0].contains(&format!("{OTLP}{expected}")), "{given}: {}", said[0]);
        assert!(!said[0].contains("hunter2"), "{}", said[0]);
    }
}

/// Guarantee: what is no destination, or two at once, is said.
#[test]
fn says_what_is_wrong_around_destinations() {
    let otlp = "otlp: {protocol: grpc, endpoint: 'h:1'}";
    let reader = "service.telemetry.metrics.readers[0]";
    let processor = "service.telemetry.logs.processors[0]";
    for (given, expected) in [
        ("metrics: {readers: [{}]}".to_owned(), format!("error: `{reader}` must have `pull` or")),
        (
            format!("metrics: {{readers: [{{periodic: {{exporter: {{{otlp}}}}}, pull: }}]}}"),
            format!("error: `{reader}` has both `periodic` and `pull`"),
        ),
        (
            "metrics: {readers: [{periodic: }]}".to_owned(),
            format!("error: `{reader}.periodic.exporter` has no exporter (give `otlp` with"),
        ),
        (
            format!("metrics: {{readers: [{{periodic: {{exporter: {{{otlp}, otlp_grpc: }}}}}}]}}"),
            format!("error: `{reader}.periodic.exporter` has `otlp` and `otlp_grpc`: there can be"),
        ),
        (
            "metrics: {readers: [{periodic: {exporter: {console: }}}]}".to_owned(),
            format!("warning: `{reader}.periodic.exporter.console` has no effect: metrics are not"),
        ),
        (
            "logs: {processors: [{simple: {exporter: {console: }}}]}".to_owned(),
            format!("warning: `{processor}.simple.exporter.console` has no effect: log lines go"),
        ),
        ("logs: {processors: [{}]}".to_owned(), format!("error: `{processor}` must have `batch`")),
        (
            "traces: {processors: [{batch: {exporter: {console: }}}]}".to_owned(),
            "warning: `service.telemetry.traces` has no effect: Sluice does not trace".to_owned(),
        ),
        (
            "resource: {detectors: {attributes: {included: [a]}}}".to_owned(),
            "warning: `service.telemetry.resource` has `detectors`, which has no effect".to_owned(),
        ),
        (
            "resource: {attributes_list: 'a=b'}".to_owned(),
            "error: `service.telemetry.resource` has `attributes_list`".to_owned(),
        ),
        (
            "resource: {attributes: [{value: b}]}".to_owned(),
            "error: `service.telemetry.resource` has an attribute without `name`".to_owned(),
        ),
        (
            "resource: {attributes: [{name: a, value: {b: c}}]}".to_owned(),
            "error: `service.telemetry.resource` has `a`, which must be a value or".to_owned(),
        ),
    ] {
        let (_, said) = read_rest(&format!("  telemetry: {{{given}}}"));
        assert_eq!(said.len(), 1, "{given}: {said:?}");
        assert!(said[0].contains(&expected), "{given}: {}", said[0]);
    }
}

/// Guarantee: attributes of the list keep their types, and the schema is no attribute.
#[test]
fn reads_a_resource_as_newer_collectors_write_it() {
    let (document, said) = read_rest(
        "  telemetry: {resource: {schema_url: 'https://s', attributes: [{name: a, value: 1}, \
         {name: b, value: 1, type: string}, {name: c, value: true}, {name: d, value: [x, y]}, \
         {name: service.version, value: }]}}",
    );
    assert_eq!(said, Vec::<String>::new());
    let text = |text: &str| AnyValue::String(text.to_owned());
    let expected = [
        ("a", Some(AnyValue::Int(1))),
        ("b", Some(text("1"))),
        ("c", Some(AnyValue::Bool(true))),
        ("d", Some(AnyValue::Array(vec![text("x"), text("y")]))),
        ("service.version", None),
    ];
    let resource = document.telemetry.resource;
    let read = resource.attributes.iter().map(|(name, value)| (name.as_str(), value.clone()));
    assert_eq!(read.collect::<Vec<_>>(), expected);
    assert_eq!(resource.schema_url.as_deref(), Some("https://s"));
}

/// Scenario: remarks about lines with headers. Guarantee: no report shows a header's value.
#[test]
fn no_report_shows_a_header() {
    let otlp = |more: &str| {
        format!("otlp: {{headers: [{{name: k, value: hunter2}}], protocol: grpc, {more}}}")
    };
    for telemetry in [
        format!("traces: {{processors: [{{batch: {{exporter: {{{}}}}}}}]}}", otlp("endpoint: h")),
        format!("metrics: {{readers: [{{periodic: {{exporter: {{{}}}}}}}]}}", otlp("endpoint: ''")),
        format!("metrics: {{readers: [{{periodic: {{exporter: {{{}}}}}}}]}}", otlp("tls: ")),
        format!(
            "logs: {{processors: [{{simple: {{exporter: {{{}}}}}}}]}}",
            otlp("endpoint: x://y")
        ),
        format!("logs: {{processors: [{{exporter: {{{}}}}}]}}", otlp("endpoint: h")),
    ] {
        let text = format!(
            "receivers: {{otlp: }}\nexporters: {{debug: }}\nservice:\n  pipelines: {{logs: \
             {{receivers: [otlp], exporters: [debug]}}}}\n  telemetry: {{{telemetry}}}\n"
        );
        let environment = Fake::default().file("c.yaml", &text);
        let (_, diagnostics) = load(&["c.yaml".to_owned()], &environment, &Build);
        let shown = diagnostics.render(false);
        assert!(shown.contains("service.telemetry."), "{telemetry}: {shown}");
        assert!(!shown.contains("hunter2"), "{telemetry}: {shown}");
    }
}
