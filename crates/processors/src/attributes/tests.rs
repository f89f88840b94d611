//! The selection of items: the Collector's rules, one scenario each.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Summary,
    SummaryDataPoint,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use sluice_config::read_text;
use sluice_flow::Metadata;
use sluice_otlp::Signal;

use super::read;

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn resource(service: &str) -> Option<Resource> {
    Some(Resource { attributes: vec![text("service.name", service)], ..Resource::default() })
}

fn scope(name: &str, version: &str) -> Option<InstrumentationScope> {
    Some(InstrumentationScope {
        name: name.to_owned(),
        version: version.to_owned(),
        ..InstrumentationScope::default()
    })
}

/// Reads `selection` and runs the processor with an action that marks the selected items.
fn mark(selection: &str, signal: Signal, request: Vec<u8>) -> Bytes {
    let yaml = format!("actions: [{{key: mark, action: insert, value: 1}}]\n{selection}");
    let (config, diagnostics) = read_text("processors.attributes", &yaml, read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let built = config.build(signal).unwrap();
    let request = Bytes::from(request);
    let edited = built.processor.process(signal, &request, &Metadata::default(), usize::MAX);
    edited.unwrap().expect("is without limit").unwrap_or(request)
}

fn is_marked(attributes: &[KeyValue]) -> bool {
    attributes.iter().any(|attribute| attribute.key == "mark")
}

/// Names of the selected spans of a fixed request.
fn selected_spans(selection: &str) -> Vec<String> {
    let span = |name: &str, kind: i32, attributes: Vec<KeyValue>| Span {
        name: name.to_owned(),
        kind,
        attributes,
        ..Span::default()
    };
    let shop = ScopeSpans {
        scope: scope("http", "1.2"),
        spans: vec![
            span(
                "GET /cart",
                2,
                vec![text("env", "prod"), attribute("status", Value::IntValue(200))],
            ),
            span(
                "GET /pay",
                2,
                vec![text("env", "test"), attribute("ratio", Value::DoubleValue(0.5))],
            ),
        ],
        ..ScopeSpans::default()
    };
    let database = ScopeSpans {
        scope: scope("sql", ""),
        spans: vec![span("SELECT", 3, vec![attribute("cached", Value::BoolValue(true))])],
        ..ScopeSpans::default()
    };
    let nameless = ScopeSpans { spans: vec![span("orphan", 0, vec![])], ..ScopeSpans::default() };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![
            ResourceSpans {
                resource: resource("shop"),
                scope_spans: vec![shop, database],
                ..ResourceSpans::default()
            },
            ResourceSpans { scope_spans: vec![nameless], ..ResourceSpans::default() },
        ],
    };
    let marked = mark(selection, Signal::Traces, request.encode_to_vec());
    let marked = ExportTraceServiceRequest::decode(marked).unwrap();
    let spans = marked
        .resource_spans
        .into_iter()
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans);
    spans.filter(|span| is_marked(&span.attributes)).map(|span| span.name).collect()
}

/// Every property of spans, exactly and by pattern; lists of strings are any-of, properties all-of,
/// exclude goes after include.
#[test]
fn spans_are_selected_as_the_collector_selects_them() {
    let all = ["GET /cart", "GET /pay", "SELECT", "orphan"];
    let shop = ["GET /cart", "GET /pay", "SELECT"];
    let cases: [(&str, &[&str]); 17] = [
        ("", &all),
        ("include: {match_type: strict, services: [shop, other]}", &shop),
        ("include: {match_type: regexp, services: ['^<nil']}", &["orphan"]),
        ("include: {match_type: strict, span_names: [SELECT, orphan]}", &["SELECT", "orphan"]),
        ("include: {match_type: regexp, span_names: ['^GET .*t$']}", &["GET /cart"]),
        (
            "include: {match_type: strict, span_kinds: [SPAN_KIND_SERVER]}",
            &["GET /cart", "GET /pay"],
        ),
        ("include: {match_type: regexp, span_kinds: ['CLIENT|UNSPEC']}", &["SELECT", "orphan"]),
        ("include: {match_type: strict, attributes: [{key: env}]}", &["GET /cart", "GET /pay"]),
        (
            "include: {match_type: strict, attributes: [{key: env, value: prod}, {key: status, value: 200}]}",
            &["GET /cart"],
        ),
        ("include: {match_type: strict, attributes: [{key: status, value: \"200\"}]}", &[]),
        (
            "include: {match_type: regexp, attributes: [{key: ratio, value: '^0\\.5$'}]}",
            &["GET /pay"],
        ),
        (
            "include: {match_type: regexp, attributes: [{key: cached, value: '^true$'}]}",
            &["SELECT"],
        ),
        ("include: {match_type: strict, resources: [{key: service.name, value: shop}]}", &shop),
        (
            "include: {match_type: strict, libraries: [{name: http, version: '1.2'}]}",
            &["GET /cart", "GET /pay"],
        ),
        ("include: {match_type: strict, libraries: [{name: sql, version: ''}]}", &["SELECT"]),
        (
            "exclude: {match_type: strict, services: [shop], span_names: [SELECT]}",
            &["GET /cart", "GET /pay", "orphan"],
        ),
        (
            "include: {match_type: strict, services: [shop]}\nexclude: {match_type: strict, libraries: [{name: http}]}",
            &["SELECT"],
        ),
    ];
    for (selection, expected) in cases {
        assert_eq!(selected_spans(selection), expected, "{selection}");
    }
}

/// Bodies of the selected log records of a fixed request.
fn selected_records(selection: &str) -> Vec<i32> {
    let record = |severity_number: i32, severity_text: &str, body: Value| LogRecord {
        severity_number,
        severity_text: severity_text.to_owned(),
        body: Some(AnyValue { value: Some(body) }),
        ..LogRecord::default()
    };
    let list = ArrayValue { values: vec![AnyValue { value: Some(Value::IntValue(7)) }] };
    let records = vec![
        record(9, "INFO", Value::StringValue("started".to_owned())),
        record(17, "ERROR", Value::StringValue("failed".to_owned())),
        record(0, "", Value::ArrayValue(list)),
    ];
    let scope = ScopeLogs { log_records: records, ..ScopeLogs::default() };
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs { scope_logs: vec![scope], ..ResourceLogs::default() }],
    };
    let marked =
        ExportLogsServiceRequest::decode(mark(selection, Signal::Logs, request.encode_to_vec()))
            .unwrap();
    let records = marked
        .resource_logs
        .into_iter()
        .flat_map(|resource| resource.scope_logs)
        .flat_map(|scope| scope.log_records);
    records
        .filter(|record| is_marked(&record.attributes))
        .map(|record| record.severity_number)
        .collect()
}

/// The properties of log records. Bodies are compared as text, whatever their type.
#[test]
fn log_records_are_selected_as_the_collector_selects_them() {
    let cases: [(&str, &[i32]); 7] = [
        ("include: {match_type: strict, log_bodies: [started]}", &[9]),
        ("include: {match_type: strict, log_bodies: ['[7]']}", &[0]),
        ("include: {match_type: regexp, log_bodies: ['ed$']}", &[9, 17]),
        ("include: {match_type: strict, log_severity_texts: [ERROR]}", &[17]),
        ("include: {log_severity_number: {min: 13}}", &[17]),
        ("include: {log_severity_number: {min: 13, match_undefined: true}}", &[17, 0]),
        ("exclude: {log_severity_number: {min: 1}}", &[0]),
    ];
    for (selection, expected) in cases {
        assert_eq!(selected_records(selection), expected, "{selection}");
    }
}

/// Metrics are selected by name and resource; their points are changed, whatever the type,
/// exemplars are not.
#[test]
fn metrics_are_selected_by_name_and_resource() {
    let exemplar = Exemplar { filtered_attributes: vec![text("a", "b")], ..Exemplar::default() };
    let point = NumberDataPoint { exemplars: vec![exemplar], ..NumberDataPoint::default() };
    let gauge = Data::Gauge(Gauge { data_points: vec![point.clone(), point] });
    let summary = Data::Summary(Summary { data_points: vec![SummaryDataPoint::default()] });
    let metric = |name: &str, data: &Data| Metric {
        name: name.to_owned(),
        data: Some(data.clone()),
        ..Metric::default()
    };
    let scope = ScopeMetrics {
        metrics: vec![metric("cpu", &gauge), metric("latency", &summary)],
        ..ScopeMetrics::default()
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: resource("shop"),
            scope_metrics: vec![scope],
            ..ResourceMetrics::default()
        }],
    };
    let marked_points = |selection: &str| {
        let marked = mark(selection, Signal::Metrics, request.encode_to_vec());
        let marked = ExportMetricsServiceRequest::decode(marked).unwrap();
        let metrics = &marked.resource_metrics[0].scope_metrics[0].metrics;
        let (Some(Data::Gauge(gauge)), Some(Data::Summary(summary))) =
            (&metrics[0].data, &metrics[1].data)
        else {
            panic!("the metrics kept their types")
        };
        assert!(
            gauge
                .data_points
                .iter()
                .all(|point| point.exemplars[0].filtered_attributes == [text("a", "b")])
        );
        let gauges = gauge.data_points.iter().filter(|point| is_marked(&point.attributes)).count();
        (gauges, summary.data_points.iter().filter(|point| is_marked(&point.attributes)).count())
    };
    assert_eq!(marked_points(""), (2, 1));
    assert_eq!(marked_points("include: {match_type: strict, metric_names: [cpu]}"), (2, 0));
    assert_eq!(marked_points("exclude: {match_type: regexp, metric_names: ['^c']}"), (0, 1));
    assert_eq!(
        marked_points(
            "include: {match_type: strict, resources: [{key: service.name, value: other}]}"
        ),
        (0, 0)
    );
    assert_eq!(
        marked_points(
            "exclude: {match_type: strict, metric_names: [cpu], resources: [{key: nothing}]}"
        ),
        (2, 1)
    );
}

/// A property that a signal's items cannot have is an error where the Collector has one, else a
/// warning.
#[test]
fn selections_are_checked_against_the_signal() {
    let build = |selection: &str, signal| {
        let (config, diagnostics) =
            read_text("a", &format!("actions: [{{key: k, action: delete}}]\n{selection}"), read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        config.build(signal).map(|built| built.warnings.len())
    };
    let bodies = "include: {match_type: strict, log_bodies: [x]}";
    assert!(build(bodies, Signal::Traces).unwrap_err().contains("cannot have `log_bodies`"));
    assert_eq!(build(bodies, Signal::Logs), Ok(0));
    assert_eq!(build(bodies, Signal::Metrics), Ok(2));
    let names = "exclude: {match_type: strict, span_names: [x]}";
    assert!(build(names, Signal::Logs).unwrap_err().contains("cannot have `span_names`"));
    assert!(
        build("include: {match_type: strict}", Signal::Traces)
            .unwrap_err()
            .contains("at least one of")
    );
    assert_eq!(
        build(
            "include: {match_type: strict, metric_names: [x], attributes: [{key: k}]}",
            Signal::Metrics
        ),
        Ok(1)
    );
}

/// Guarantee: null counts as not given, as in the Collector.
#[test]
fn null_contradicts_nothing() {
    for action in [
        "{key: k, action: insert, value: 1, from_context: , pattern: , converted_type: }",
        "{key: k, action: delete, value: , from_context: }",
    ] {
        let (_, diagnostics) = read_text("a", &format!("actions: [{action}]"), read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    }
}

/// Options that contradict each other are named in an error, and so is an impossible action.
#[test]
fn wrong_options_are_refused() {
    let cases = [
        ("", "`a.actions` is required"),
        ("actions: [{key: k}]", "`a.actions[0].action` is required"),
        ("actions: [{key: k, action: put}]", "there is no such action"),
        ("actions: [{action: insert, value: 1}]", "`a.actions[0].key` is required"),
        ("actions: [{action: delete}]", "needs a `key` or a `pattern`"),
        ("actions: [{key: k, action: insert}]", "needs one of"),
        ("actions: [{key: k, action: insert, value: }]", "needs one of"),
        (
            "actions: [{key: k, action: insert, value: 1, from_attribute: b}]",
            "cannot be given both",
        ),
        (
            "actions: [{key: k, action: insert, value: 1, pattern: x}]",
            "not an option of the action `insert`",
        ),
        ("actions: [{key: k, action: delete, value: 1}]", "not an option of the action `delete`"),
        ("actions: [{key: k, action: extract}]", "`a.actions[0].pattern` is required"),
        ("actions: [{key: k, action: extract, pattern: abc}]", "no named group"),
        ("actions: [{key: k, action: extract, pattern: '(?P<a>.)(.)'}]", "without a name"),
        ("actions: [{key: k, action: hash, pattern: '('}]", "unclosed group"),
        ("actions: [{key: k, action: convert}]", "`a.actions[0].converted_type` is required"),
        ("actions: [{key: k, action: convert, converted_type: bool}]", "converted_type"),
        ("actions: [{key: k, action: delete}]\ninclude: {services: [x]}", "`match_type` says how"),
        (
            "actions: [{key: k, action: delete}]\ninclude: {match_type: regexp, span_names: ['(']}",
            "invalid pattern",
        ),
        (
            "actions: [{key: k, action: delete}]\ninclude: {match_type: strict, span_kinds: [SERVER]}",
            "no kind of span",
        ),
        (
            "actions: [{key: k, action: delete}]\ninclude: {match_type: regexp, attributes: [{key: a, value: 1}]}",
            "must be a string",
        ),
    ];
    for (yaml, expected) in cases {
        let (_, diagnostics) = read_text("a", yaml, read);
        let shown = diagnostics.render(false);
        assert!(diagnostics.has_errors() && shown.contains(expected), "{yaml}\n{shown}");
    }
}

/// Equal configurations have equal fingerprints; any difference in effect makes another.
#[test]
fn fingerprints_tell_configurations_apart() {
    let fingerprint = |yaml: &str| {
        let (config, diagnostics) = read_text("a", yaml, read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        config.build(Signal::Traces).unwrap().processor.fingerprint()
    };
    let configurations = [
        "actions: [{key: a, action: insert, value: 1}]",
        "actions: [{key: a, action: insert, value: '1'}]",
        "actions: [{key: a, action: upsert, value: 1}]",
        "actions: [{key: a, action: insert, from_attribute: '1'}]",
        "actions: [{key: a, action: insert, from_context: client.address}]",
        "actions: [{key: a, action: delete}]",
        "actions: [{key: a, action: hash}]",
        "actions: [{key: a, action: delete, pattern: b}]",
        "actions: [{key: a, action: delete}]\ninclude: {match_type: strict, services: [x]}",
        "actions: [{key: a, action: delete}]\nexclude: {match_type: strict, services: [x]}",
        "actions: [{key: a, action: delete}]\ninclude: {match_type: regexp, services: [x]}",
        "actions: [{key: a, action: delete}]\ninclude: {match_type: strict, span_names: [x]}",
    ];
    let empty = "actions: [{key: a, action: delete}]\ninclude:\nexclude:";
    assert_eq!(fingerprint(empty), fingerprint(configurations[5]), "empty is absent");
    let mut fingerprints: Vec<u64> = configurations.map(fingerprint).to_vec();
    assert_eq!(fingerprint(configurations[0]), fingerprints[0]);
    // Frames on disk remember it: it may not change from release to release.
    assert_eq!(fingerprints[0], 11_709_675_096_193_455_203);
    fingerprints.sort_unstable();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), configurations.len());
}
