//! The table of OTLP's fields agrees with the official generated types.
//!
//! Each field is sent to the official type of its message alone; the result (its `Debug` form, and
//! its encoding) tells the field's name, type and presence. prost drops fields that it does not
//! know.

mod support;

use std::fmt::Debug;

use opentelemetry_proto::tonic::collector::{
    logs, metrics as metrics_service, trace as trace_service,
};
use opentelemetry_proto::tonic::common::v1 as common;
use opentelemetry_proto::tonic::logs::v1 as log;
use opentelemetry_proto::tonic::metrics::v1 as metrics;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1 as trace;
use sluice_otlp::Signal;

use support::request;
use support::schema::{
    FIELDS_LIMIT, FIXED32, FIXED64, Field, Kind, LEN, Message, Presence, VARINT, WireKind,
};
use support::wire::{Record, write_record, write_varint};

/// Beyond the largest number of any OTLP message.
const NUMBERS: std::ops::Range<u32> = 1..64;
/// As a 32-bit integer: -2, signed; as zigzag: 2147483647.
const WIDE: u64 = 0x1_ffff_fffe;

/// The official type's reading of an encoded message: its `Debug` form, and its encoding. `None` if
/// it cannot be decoded.
type Reading = Option<(String, Vec<u8>)>;

fn read<M: prost::Message + Default + Debug>(encoded: &[u8]) -> Reading {
    M::decode(encoded).ok().map(|message| (format!("{message:?}"), message.encode_to_vec()))
}

fn official(name: &str) -> fn(&[u8]) -> Reading {
    use metrics::exponential_histogram_data_point::Buckets;
    use metrics::summary_data_point::ValueAtQuantile;
    match name {
        "ExportTraceServiceRequest" => read::<trace_service::v1::ExportTraceServiceRequest>,
        "ExportMetricsServiceRequest" => read::<metrics_service::v1::ExportMetricsServiceRequest>,
        "ExportLogsServiceRequest" => read::<logs::v1::ExportLogsServiceRequest>,
        "AnyValue" => read::<common::AnyValue>,
        "ArrayValue" => read::<common::ArrayValue>,
        "KeyValueList" => read::<common::KeyValueList>,
        "KeyValue" => read::<common::KeyValue>,
        "InstrumentationScope" => read::<common::InstrumentationScope>,
        "EntityRef" => read::<common::EntityRef>,
        "Resource" => read::<Resource>,
        "ResourceSpans" => read::<trace::ResourceSpans>,
        "ScopeSpans" => read::<trace::ScopeSpans>,
        "Span" => read::<trace::Span>,
        "Event" => read::<trace::span::Event>,
        "Link" => read::<trace::span::Link>,
        "Status" => read::<trace::Status>,
        "ResourceMetrics" => read::<metrics::ResourceMetrics>,
        "ScopeMetrics" => read::<metrics::ScopeMetrics>,
        "Metric" => read::<metrics::Metric>,
        "Gauge" => read::<metrics::Gauge>,
        "Sum" => read::<metrics::Sum>,
        "Histogram" => read::<metrics::Histogram>,
        "ExponentialHistogram" => read::<metrics::ExponentialHistogram>,
        "Summary" => read::<metrics::Summary>,
        "NumberDataPoint" => read::<metrics::NumberDataPoint>,
        "HistogramDataPoint" => read::<metrics::HistogramDataPoint>,
        "ExponentialHistogramDataPoint" => read::<metrics::ExponentialHistogramDataPoint>,
        "Buckets" => read::<Buckets>,
        "SummaryDataPoint" => read::<metrics::SummaryDataPoint>,
        "ValueAtQuantile" => read::<ValueAtQuantile>,
        "Exemplar" => read::<metrics::Exemplar>,
        "ResourceLogs" => read::<log::ResourceLogs>,
        "ScopeLogs" => read::<log::ScopeLogs>,
        "LogRecord" => read::<log::LogRecord>,
        other => panic!("the official types have no {other}"),
    }
}

fn all_messages() -> Vec<&'static Message> {
    let mut seen: Vec<&'static Message> = Vec::new();
    let mut todo: Vec<&'static Message> = Signal::ALL.into_iter().map(request).collect();
    while let Some(message) = todo.pop() {
        if seen.iter().any(|known| std::ptr::eq(*known, message)) {
            continue;
        }
        seen.push(message);
        todo.extend(message.fields.iter().filter_map(|field| match field.kind {
            Kind::Message(child) => Some(child),
            _ => None,
        }));
    }
    seen
}

fn varint(value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_varint(&mut bytes, value, 0);
    bytes
}

fn encoded(number: u32, wire_type: u8, value: Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_record(&mut bytes, &Record { number, wire_type, value }, 0, 0);
    bytes
}

/// True if the official type takes anything at all under this number: it refuses it, or writes it
/// again.
fn is_known(read: fn(&[u8]) -> Reading, number: u32) -> bool {
    let values = [
        (VARINT, varint(1)),
        (FIXED64, 1_f64.to_le_bytes().to_vec()),
        (LEN, b"x".to_vec()),
        (FIXED32, vec![1; 4]),
    ];
    values.into_iter().any(|(wire_type, value)| {
        read(&encoded(number, wire_type, value)).is_none_or(|(_, again)| !again.is_empty())
    })
}

/// Guarantee: the table has every message and every field that the official types know, and no
/// other.
#[test]
fn the_table_has_exactly_the_official_fields() {
    let messages = all_messages();
    assert_eq!(messages.len(), 34, "every message is reached");
    for message in messages {
        assert!(message.fields.len() <= FIELDS_LIMIT, "{}", message.name);
        for number in NUMBERS {
            let is_known = is_known(official(message.name), number);
            assert_eq!(
                message.numbered(number).is_some(),
                is_known,
                "field {number} of {}",
                message.name
            );
        }
    }
}

/// A value that no other type reads alike, and how the official types show it.
fn telling_values(kind: Kind) -> Vec<(Vec<u8>, String)> {
    let minus_one = (-1_f64).to_le_bytes().to_vec();
    match kind {
        Kind::Bool => vec![(varint(WIDE), "true".into())],
        Kind::Int32 => vec![(varint(WIDE), "-2".into()), (varint(1), "1".into())],
        Kind::Uint32 => vec![(varint(WIDE), "4294967294".into())],
        Kind::Sint32 => vec![(varint(WIDE), "2147483647".into())],
        Kind::Int64 => vec![(varint(u64::MAX), "-1".into()), (varint(WIDE), WIDE.to_string())],
        Kind::Uint64 => {
            vec![(varint(u64::MAX), u64::MAX.to_string()), (varint(WIDE), WIDE.to_string())]
        }
        Kind::Enum(_, names) => {
            // `SPAN_KIND_SERVER` is `Server`: the names of all values begin with `prefix`.
            let variant = |name: &str| format!("{}{}", &name[..1], name[1..].to_lowercase());
            let unset = names.split(' ').next().expect("a name");
            let values = names.split(' ').enumerate();
            values
                .map(|(value, name)| (varint(value as u64), variant(name)))
                .chain([(varint(WIDE), "-2".into()), (varint(0), variant(unset))])
                .collect()
        }
        Kind::Fixed32 => vec![(vec![0xff; 4], u32::MAX.to_string())],
        Kind::Fixed64 => vec![(minus_one, (-1_f64).to_bits().to_string())],
        Kind::Sfixed64 => vec![(minus_one, ((-1_f64).to_bits() as i64).to_string())],
        Kind::Double => vec![(minus_one, "-1.0".into())],
        Kind::String => vec![("é".into(), "\"é\"".into())],
        Kind::Bytes | Kind::Id(_) => vec![("é".into(), "[195, 169]".into())],
        // A child message is compared by its name: its fields have their own turn.
        Kind::Message(child) => vec![(Vec::new(), child.name.to_owned())],
    }
}

fn snake_case(camel: &str) -> String {
    camel
        .chars()
        .flat_map(|one| one.is_uppercase().then_some('_').into_iter().chain(one.to_lowercase()))
        .collect()
}

fn pascal_case(camel: &str) -> String {
    format!("{}{}", camel[..1].to_uppercase(), &camel[1..])
}

fn shown_as(field: &Field, value: &str) -> String {
    match field.presence {
        Presence::Implicit => format!("{}: {value}", snake_case(field.name)),
        Presence::Explicit => format!("{}: Some({value}", snake_case(field.name)),
        Presence::Repeated => format!("{}: [{value}", snake_case(field.name)),
        Presence::Oneof => format!(": Some({}({value}", pascal_case(field.name)),
    }
}

/// Guarantee: every field has the name, type, child message and enum values that the official type
/// has.
#[test]
fn every_field_is_what_the_official_types_take_it_for() {
    for message in all_messages() {
        let read = official(message.name);
        for field in message.fields {
            for (value, shown) in telling_values(field.kind) {
                let (debug, _) =
                    read(&encoded(field.number, field.kind.wire_type(), value)).expect(field.name);
                let shown = shown_as(field, &shown);
                assert!(
                    debug.contains(&shown),
                    "{}.{}: no {shown:?} in {debug}",
                    message.name,
                    field.name
                );
            }
        }
    }
}

/// Guarantee: whether a default value is kept, and whether several occurrences add up, is as in the
/// official types.
#[test]
fn every_field_has_the_official_presence() {
    for message in all_messages() {
        let read = official(message.name);
        for field in message.fields {
            let (wire_type, is_message) =
                (field.kind.wire_type(), matches!(field.kind, Kind::Message(_)));
            let default = match wire_type {
                VARINT => vec![0],
                FIXED64 => vec![0; 8],
                FIXED32 => vec![0; 4],
                _ => Vec::new(),
            };
            let one = encoded(field.number, wire_type, default);
            let (_, once) = read(&one).expect(field.name);
            let (_, twice) = read(&[&one[..], &one].concat()).expect(field.name);
            let is_kept = field.presence != Presence::Implicit || is_message;
            assert_eq!(!once.is_empty(), is_kept, "{}.{}", message.name, field.name);
            let adds_up = field.presence == Presence::Repeated;
            assert_eq!(twice.len() > once.len(), adds_up, "{}.{}", message.name, field.name);
        }
    }
}

/// Guarantee: exactly the ids are written in hexadecimal (the OTLP specification, JSON Protobuf
/// Encoding).
#[test]
fn trace_and_span_ids_are_ids() {
    for field in all_messages().into_iter().flat_map(|message| message.fields) {
        let length = match field.name {
            "traceId" => Some(16),
            "spanId" | "parentSpanId" => Some(8),
            _ => None,
        };
        let id = if let Kind::Id(length) = field.kind { Some(length) } else { None };
        assert_eq!(id, length, "{}", field.name);
    }
}

/// Both spellings that the Collector takes, and nothing near them.
#[test]
fn fields_are_found_by_both_their_names() {
    let span = all_messages().into_iter().find(|message| message.name == "Span").expect("a span");
    let index = span.named("startTimeUnixNano", 0).expect("the JSON name");
    assert_eq!(span.fields[index].number, 7);
    assert_eq!(span.named("start_time_unix_nano", 0), Some(index));
    for wrong in [
        "",
        "start_time_unix_nan",
        "start_time_unix_nano_",
        "starttimeunixnano",
        "start_timeUnixNano",
    ] {
        assert_eq!(span.named(wrong, 0), None, "{wrong}");
    }
}

/// Guarantee: cutting and editing, which know the variants of `Metric.data` by number, know those
/// of the table.
#[test]
fn metric_data_are_the_members_of_the_oneof() {
    let metric =
        all_messages().into_iter().find(|message| message.name == "Metric").expect("a metric");
    for number in NUMBERS {
        let is_member =
            support::field(metric, number).is_some_and(|field| field.presence == Presence::Oneof);
        let is_data = matches!(metric.wire_kind(number), WireKind::Data(_));
        assert_eq!(is_data, is_member, "{number}");
    }
}
