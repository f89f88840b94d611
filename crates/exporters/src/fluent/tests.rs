use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue as Proto, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use sluice_config::read_text;
use sluice_otlp::{AnyValue, Signal};

use super::*;
use crate::tests::exporter;

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

const LIMIT_BYTES: usize = 1 << 20;

fn json(request: Bytes, layout: &Layout) -> Vec<String> {
    let mut lines = Vec::new();
    let written = each_record::<Json>(&[request], layout, LIMIT_BYTES, |record| {
        let mut out = Vec::new();
        record.write::<Json>(&mut out, None, None, LIMIT_BYTES)?;
        lines.push(String::from_utf8(out).expect("is text"));
        Ok(())
    });
    assert!(written.is_ok(), "is a request");
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
    let dotless = expected.replace("app.kubernetes.io/name", "app_kubernetes_io_name");
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

/// Guarantee: a key that dots made another one, or that stands in the request twice, occurs once:
/// stores of documents refuse a whole document for that.
#[test]
fn names_occur_once_without_their_dots_and_slashes() {
    let resource = [
        ("k8s.pod.labels.a.b", text("1")),
        ("k8s.pod.labels.a/b", text("2")),
        ("k8s.pod.label.c", text("3")),
        ("k8s.pod.labels.c", text("4")),
        ("zone", text("5")),
        ("zone", text("6")),
    ];
    let dedot = Layout { dedot: true, ..Layout::default() };
    let expected = concat!(
        r#"{"log":"m","kubernetes":{"labels":{"a_b":"2","c":"4"}},"#,
        r#""resource":{"zone":"6"}}"#
    );
    assert_eq!(json(request(&resource, &[], &[text("m")]), &dedot), [expected]);
}

#[test]
fn the_switches_are_options_of_both_exporters() {
    let all = "{dedot: true, drop_labels: true, keep_annotations: true}";
    let (layout, diagnostics) = read_text("exporters.test", all, Layout::read);
    let expected = Layout { dedot: true, drop_labels: true, keep_annotations: true };
    assert!(!diagnostics.has_errors() && layout == expected, "{layout:?}");
    let (layout, _) = read_text("exporters.test", "{}", Layout::read);
    assert_eq!(layout, Layout::default(), "dots and labels are kept, annotations are not");
    let logs = request(&kubernetes(), &[], &[text("m")]);
    for kind in ["fluentbit_http", "fluentforward"] {
        let has = |options: &str, word: &str| {
            let options = format!("{{endpoint: 'a:1', {options}}}");
            let options = match kind {
                "fluentforward" => options,
                _ => options.replace("endpoint: 'a:1', ", ""),
            };
            let (chunks, _) =
                exporter(kind, &options).pack(Signal::Logs, vec![logs.clone()]).expect("packs");
            chunks.concat().windows(word.len()).any(|window| window == word.as_bytes())
        };
        assert!(has("", "app.kubernetes.io/name") && !has("", "annotations"), "{kind}");
        assert!(has("dedot: true", "app_kubernetes_io_name"), "{kind}");
        assert!(!has("drop_labels: true", "labels"), "{kind}");
        assert!(has("keep_annotations: true", "annotations"), "{kind}");
    }
}

/// Scenario: values of two bytes, in records and in their resource, which each record repeats.
/// Guarantee: no more is made of them than memory is asked for, or the request is cut.
#[test]
fn the_memory_for_writing_bounds_what_is_written() {
    let empty = AnyValue::Map(vec![]);
    let tiny = AnyValue::Map(vec![(String::new(), AnyValue::Empty); 200]);
    let label = "k8s.pod.labels.".to_owned() + &"x".repeat(900);
    let wide = [(&*label, text(&"y".repeat(900)))];
    let many: Vec<_> = (0..300).map(|number| (number.to_string(), AnyValue::Empty)).collect();
    let many: Vec<_> = many.iter().map(|(key, value)| (&**key, value.clone())).collect();
    let requests = [
        request(&wide, &[], &vec![empty.clone(); 1_000]),
        request(&many, &[], &vec![empty.clone(); 1_000]),
        request(&[], &many, &vec![tiny; 10]),
        request(&[], &[], &vec![empty; 5_000]),
        request(&[], &[], &[text(&"\u{1}".repeat(500_000))]),
    ];
    for (kind, options) in [
        ("fluentbit_http", "format: json"),
        ("fluentbit_http", "format: msgpack"),
        ("fluentforward", "endpoint: 'a:1'"),
    ] {
        let exporter = exporter(kind, &format!("{{{options}, max_request_bytes: 1MiB}}"));
        for logs in &requests {
            let (chunks, _) =
                exporter.pack(Signal::Logs, vec![logs.clone()]).expect("is within its limit");
            let items = sluice_otlp::scan(Signal::Logs, logs).expect("is OTLP") as usize;
            let (made, asked) = (
                chunks.iter().map(Bytes::len).sum::<usize>(),
                exporter.packing_bytes(logs.len(), items),
            );
            assert!(made > 0 && 2 * made <= asked, "{kind} {options}: {made} of {asked}");
        }
        // A record of more fields than there is memory for in lists.
        let fields = vec![(String::new(), AnyValue::Empty); 100_000];
        let logs = request(&[], &[], &[AnyValue::Map(fields)]);
        let refused = exporter.pack(Signal::Logs, vec![logs]).expect_err("is too many");
        assert!(matches!(&refused, PackError::TooLarge(why) if why.contains("fields")));
    }
}

/// Guarantee: values are written as protobuf reads them: the last one counts, lists go on.
#[test]
fn a_list_in_pieces_is_one_list() {
    let int = |value: u8| vec![0x0a, 0x02, 0x18, value];
    let list = |number: u8, content: Vec<u8>| [vec![number, content.len() as u8], content].concat();
    let pieces = [list(0x2a, int(1)), list(0x0a, b"text".to_vec()), list(0x2a, int(2))];
    let pieces = [pieces.concat(), list(0x2a, int(3))].concat();
    let mut out = Vec::new();
    notation::write_value::<Json>(&mut out, &pieces, 0).expect("is a value");
    assert_eq!(out, b"[2,3]");
    let deep = |levels: usize| {
        (0..levels).fold(Vec::new(), |inner, _| {
            let mut element = vec![0x0a];
            sluice_otlp::wire::write_varint(&mut element, inner.len() as u64);
            element.extend(inner);
            let mut list = vec![0x2a];
            sluice_otlp::wire::write_varint(&mut list, element.len() as u64);
            list.extend(element);
            list
        })
    };
    assert!(notation::write_value::<MessagePack>(&mut out, &deep(48), 4).is_ok());
    assert!(notation::write_value::<MessagePack>(&mut out, &deep(49), 4).is_err());
}

/// Guarantee: what small requests are charged lets many of them be packed at once.
#[test]
fn small_requests_take_little_memory_for_writing() {
    for (kind, options) in [("fluentbit_http", ""), ("fluentforward", "endpoint: 'a:1'")] {
        let exporter = exporter(kind, &format!("{{{options}}}"));
        assert!(exporter.packing_bytes(1 << 10, 1) < 128 << 10, "{kind}");
        assert!(exporter.packing_bytes(4 << 10, 10) < 1 << 20, "{kind}");
        let (small, large) = (exporter.packing_bytes(1 << 20, 1000), 8 << 20);
        assert!(small >= large, "{kind}: the limit bounds it");
    }
}
