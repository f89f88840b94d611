use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue as Proto, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::*;

pub(crate) fn pair(key: &str, value: &AnyValue) -> KeyValue {
    let value = Proto::decode(&*value.encoded()).expect("is a value");
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

pub(crate) fn text(text: &str) -> AnyValue {
    AnyValue::String(text.to_owned())
}

/// A request with one record for each body, with the resource's attributes and the record's.
pub(crate) fn request(
    resource: &[(&str, AnyValue)],
    attributes: &[(&str, AnyValue)],
    bodies: &[AnyValue],
) -> Bytes {
    let pairs = |pairs: &[(&str, AnyValue)]| -> Vec<KeyValue> {
        pairs.iter().map(|(key, value)| pair(key, value)).collect()
    };
    let record = |body: &AnyValue| LogRecord {
        time_unix_nano: 1_500_000_001,
        body: pair("", body).value,
        attributes: pairs(attributes),
        ..LogRecord::default()
    };
    let log_records = bodies.iter().map(record).collect();
    let scope_logs = vec![ScopeLogs { log_records, ..ScopeLogs::default() }];
    let resource = Some(Resource { attributes: pairs(resource), ..Resource::default() });
    let resource_logs = vec![ResourceLogs { resource, scope_logs, ..ResourceLogs::default() }];
    ExportLogsServiceRequest { resource_logs }.encode_to_vec().into()
}

fn json(request: Bytes, layout: &Layout) -> Vec<String> {
    let mut lines = Vec::new();
    each_record::<Malformed>(&[request], layout, |record| {
        let mut out = Vec::new();
        write_json(&mut out, &AnyValue::Map(record.fields));
        lines.push(String::from_utf8(out).expect("is text"));
        Ok(())
    })
    .expect("is a request");
    lines
}

fn kubernetes() -> Vec<(&'static str, AnyValue)> {
    vec![
        ("k8s.pod.name", text("web-0")),
        ("k8s.namespace.name", text("shop")),
        ("service.name", text("web")),
        ("k8s.pod.labels.app.kubernetes.io/name", text("web")),
        ("k8s.pod.annotations.a.b", text("x")),
    ]
}

#[test]
fn records_have_the_layout_of_the_kubernetes_filter() {
    let request = || request(&kubernetes(), &[("stream", text("stdout"))], &[text("hi \"you\"\n")]);
    let all = Layout { keep_annotations: true, ..Layout::default() };
    let expected = concat!(
        r#"{"log":"hi \"you\"\n","stream":"stdout","kubernetes":{"pod_name":"web-0","#,
        r#""namespace_name":"shop","labels":{"app.kubernetes.io/name":"web"},"#,
        r#""annotations":{"a.b":"x"}},"resource":{"service.name":"web"}}"#
    );
    assert_eq!(json(request(), &all), [expected]);
    let dedot = Layout { dedot: true, ..all.clone() };
    let dotless = expected.replace("app.kubernetes.io/name", "app_kubernetes_io/name");
    assert_eq!(json(request(), &dedot), [dotless.replace(r#""a.b""#, r#""a_b""#)]);
    let least = Layout { drop_labels: true, ..Layout::default() };
    let json = json(request(), &least).concat();
    assert!(!json.contains("labels") && !json.contains("annotations"), "{json}");
}

#[test]
fn a_map_becomes_the_record_and_its_keys_occur_once() {
    let body = AnyValue::Map(vec![
        ("message".to_owned(), text("m")),
        ("level".to_owned(), text("of the body")),
        ("nested".to_owned(), AnyValue::Map(vec![("x".to_owned(), AnyValue::Array(vec![]))])),
    ]);
    let attributes = [("level", text("of the attributes")), ("n", AnyValue::Double(f64::NAN))];
    let expected = r#"{"message":"m","level":"of the attributes","nested":{"x":[]},"n":null}"#;
    assert_eq!(json(request(&[], &attributes, &[body]), &Layout::default()), [expected]);
    let values = AnyValue::Array(vec![
        AnyValue::Empty,
        AnyValue::Bool(true),
        AnyValue::Int(i64::MIN),
        AnyValue::Double(1.0),
        AnyValue::Bytes(vec![0, 255]),
    ]);
    let expected = r#"{"log":[null,true,-9223372036854775808,1.0,"AP8="]}"#;
    assert_eq!(json(request(&[], &[], &[values]), &Layout::default()), [expected]);
}
