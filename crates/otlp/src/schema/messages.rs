//! Every message, by the `.proto` file that defines it.

use super::Kind::Message as Child;
use super::{Field, Kind, Message, Presence, SPAN_ID_BYTES, TRACE_ID_BYTES, WireKind};

macro_rules! message {
    ($name:literal, $fields:expr) => {{
        static FIELDS: &[Field] = &$fields;
        Message::new($name, FIELDS)
    }};
}

const fn one(number: u32, name: &'static str, kind: Kind) -> Field {
    let presence = if matches!(kind, Kind::Message(_)) { Presence::Explicit } else { Presence::Implicit };
    Field::new(number, name, kind, presence)
}

const fn optional(number: u32, name: &'static str, kind: Kind) -> Field {
    Field::new(number, name, kind, Presence::Explicit)
}

const fn choice(number: u32, name: &'static str, kind: Kind) -> Field {
    Field::new(number, name, kind, Presence::Oneof)
}

const fn many(number: u32, name: &'static str, kind: Kind) -> Field {
    Field::new(number, name, kind, Presence::Repeated)
}

const fn items(number: u32, name: &'static str, item: &'static Message) -> Field {
    Field { wire: WireKind::Item(item), ..many(number, name, Child(item)) }
}

const fn data(number: u32, name: &'static str, variant: &'static Message) -> Field {
    Field { wire: WireKind::Data(variant), ..choice(number, name, Child(variant)) }
}

const fn key_values(number: u32, name: &'static str) -> Field {
    Field { wire: WireKind::KeyValue, ..many(number, name, Child(&KEY_VALUE)) }
}

const TRACE_ID: Kind = Kind::Id(TRACE_ID_BYTES);
const SPAN_ID: Kind = Kind::Id(SPAN_ID_BYTES);
const RESOURCE_FIELD: Field = one(1, "resource", Child(&RESOURCE));
const SCOPE_FIELD: Field = one(1, "scope", Child(&SCOPE));
const SCHEMA_URL: Field = one(3, "schemaUrl", Kind::String);
const START_TIME: Field = one(2, "startTimeUnixNano", Kind::Fixed64);
const POINT_TIME: Field = one(3, "timeUnixNano", Kind::Fixed64);
const TEMPORALITY_FIELD: Field = one(2, "aggregationTemporality", Kind::Enum(TEMPORALITY));

const fn attributes(number: u32) -> Field {
    key_values(number, "attributes")
}

const fn dropped_attributes(number: u32) -> Field {
    one(number, "droppedAttributesCount", Kind::Uint32)
}

pub(crate) static TRACES_REQUEST: Message =
    message!("ExportTraceServiceRequest", [many(1, "resourceSpans", Child(&RESOURCE_SPANS))]);
pub(crate) static METRICS_REQUEST: Message =
    message!("ExportMetricsServiceRequest", [many(1, "resourceMetrics", Child(&RESOURCE_METRICS))]);
pub(crate) static LOGS_REQUEST: Message =
    message!("ExportLogsServiceRequest", [many(1, "resourceLogs", Child(&RESOURCE_LOGS))]);

// common.proto and resource.proto

static ANY_VALUE: Message = message!(
    "AnyValue",
    [
        choice(1, "stringValue", Kind::String),
        choice(2, "boolValue", Kind::Bool),
        choice(3, "intValue", Kind::Int64),
        choice(4, "doubleValue", Kind::Double),
        choice(5, "arrayValue", Child(&ARRAY_VALUE)),
        choice(6, "kvlistValue", Child(&KEY_VALUE_LIST)),
        choice(7, "bytesValue", Kind::Bytes),
        choice(8, "stringValueStrindex", Kind::Int32)
    ]
);
static ARRAY_VALUE: Message = message!("ArrayValue", [many(1, "values", Child(&ANY_VALUE))]);
static KEY_VALUE_LIST: Message = message!("KeyValueList", [key_values(1, "values")]);
pub(crate) static KEY_VALUE: Message = message!(
    "KeyValue",
    [one(1, "key", Kind::String), one(2, "value", Child(&ANY_VALUE)), one(3, "keyStrindex", Kind::Int32)]
);
static SCOPE: Message = message!(
    "InstrumentationScope",
    [one(1, "name", Kind::String), one(2, "version", Kind::String), attributes(3), dropped_attributes(4)]
);
static RESOURCE: Message =
    message!("Resource", [attributes(1), dropped_attributes(2), many(3, "entityRefs", Child(&ENTITY_REF))]);
static ENTITY_REF: Message = message!(
    "EntityRef",
    [
        one(1, "schemaUrl", Kind::String),
        one(2, "type", Kind::String),
        many(3, "idKeys", Kind::String),
        many(4, "descriptionKeys", Kind::String)
    ]
);

// trace.proto

static RESOURCE_SPANS: Message =
    message!("ResourceSpans", [RESOURCE_FIELD, many(2, "scopeSpans", Child(&SCOPE_SPANS)), SCHEMA_URL]);
static SCOPE_SPANS: Message = message!("ScopeSpans", [SCOPE_FIELD, items(2, "spans", &SPAN), SCHEMA_URL]);
static SPAN: Message = message!(
    "Span",
    [
        one(1, "traceId", TRACE_ID),
        one(2, "spanId", SPAN_ID),
        one(3, "traceState", Kind::String),
        one(4, "parentSpanId", SPAN_ID),
        one(16, "flags", Kind::Fixed32),
        one(5, "name", Kind::String),
        one(6, "kind", Kind::Enum(SPAN_KIND)),
        one(7, "startTimeUnixNano", Kind::Fixed64),
        one(8, "endTimeUnixNano", Kind::Fixed64),
        attributes(9),
        dropped_attributes(10),
        many(11, "events", Child(&EVENT)),
        one(12, "droppedEventsCount", Kind::Uint32),
        many(13, "links", Child(&LINK)),
        one(14, "droppedLinksCount", Kind::Uint32),
        one(15, "status", Child(&STATUS))
    ]
);
static EVENT: Message = message!(
    "Event",
    [one(1, "timeUnixNano", Kind::Fixed64), one(2, "name", Kind::String), attributes(3), dropped_attributes(4)]
);
static LINK: Message = message!(
    "Link",
    [
        one(1, "traceId", TRACE_ID),
        one(2, "spanId", SPAN_ID),
        one(3, "traceState", Kind::String),
        attributes(4),
        dropped_attributes(5),
        one(6, "flags", Kind::Fixed32)
    ]
);
static STATUS: Message = message!("Status", [one(2, "message", Kind::String), one(3, "code", Kind::Enum(STATUS_CODE))]);

// metrics.proto

static RESOURCE_METRICS: Message =
    message!("ResourceMetrics", [RESOURCE_FIELD, many(2, "scopeMetrics", Child(&SCOPE_METRICS)), SCHEMA_URL]);
static SCOPE_METRICS: Message = message!("ScopeMetrics", [SCOPE_FIELD, many(2, "metrics", Child(&METRIC)), SCHEMA_URL]);
static METRIC: Message = message!(
    "Metric",
    [
        one(1, "name", Kind::String),
        one(2, "description", Kind::String),
        one(3, "unit", Kind::String),
        data(5, "gauge", &GAUGE),
        data(7, "sum", &SUM),
        data(9, "histogram", &HISTOGRAM),
        data(10, "exponentialHistogram", &EXPONENTIAL_HISTOGRAM),
        data(11, "summary", &SUMMARY),
        key_values(12, "metadata")
    ]
);
static GAUGE: Message = message!("Gauge", [items(1, "dataPoints", &NUMBER_POINT)]);
static SUM: Message =
    message!("Sum", [items(1, "dataPoints", &NUMBER_POINT), TEMPORALITY_FIELD, one(3, "isMonotonic", Kind::Bool)]);
static HISTOGRAM: Message = message!("Histogram", [items(1, "dataPoints", &HISTOGRAM_POINT), TEMPORALITY_FIELD]);
static EXPONENTIAL_HISTOGRAM: Message =
    message!("ExponentialHistogram", [items(1, "dataPoints", &EXPONENTIAL_POINT), TEMPORALITY_FIELD]);
static SUMMARY: Message = message!("Summary", [items(1, "dataPoints", &SUMMARY_POINT)]);
static NUMBER_POINT: Message = message!(
    "NumberDataPoint",
    [
        attributes(7),
        START_TIME,
        POINT_TIME,
        choice(4, "asDouble", Kind::Double),
        choice(6, "asInt", Kind::Sfixed64),
        many(5, "exemplars", Child(&EXEMPLAR)),
        one(8, "flags", Kind::Uint32)
    ]
);
static HISTOGRAM_POINT: Message = message!(
    "HistogramDataPoint",
    [
        attributes(9),
        START_TIME,
        POINT_TIME,
        one(4, "count", Kind::Fixed64),
        optional(5, "sum", Kind::Double),
        many(6, "bucketCounts", Kind::Fixed64),
        many(7, "explicitBounds", Kind::Double),
        many(8, "exemplars", Child(&EXEMPLAR)),
        one(10, "flags", Kind::Uint32),
        optional(11, "min", Kind::Double),
        optional(12, "max", Kind::Double)
    ]
);
static EXPONENTIAL_POINT: Message = message!(
    "ExponentialHistogramDataPoint",
    [
        attributes(1),
        START_TIME,
        POINT_TIME,
        one(4, "count", Kind::Fixed64),
        optional(5, "sum", Kind::Double),
        one(6, "scale", Kind::Sint32),
        one(7, "zeroCount", Kind::Fixed64),
        one(8, "positive", Child(&BUCKETS)),
        one(9, "negative", Child(&BUCKETS)),
        one(10, "flags", Kind::Uint32),
        many(11, "exemplars", Child(&EXEMPLAR)),
        optional(12, "min", Kind::Double),
        optional(13, "max", Kind::Double),
        one(14, "zeroThreshold", Kind::Double)
    ]
);
static BUCKETS: Message = message!("Buckets", [one(1, "offset", Kind::Sint32), many(2, "bucketCounts", Kind::Uint64)]);
static SUMMARY_POINT: Message = message!(
    "SummaryDataPoint",
    [
        attributes(7),
        START_TIME,
        POINT_TIME,
        one(4, "count", Kind::Fixed64),
        one(5, "sum", Kind::Double),
        many(6, "quantileValues", Child(&VALUE_AT_QUANTILE)),
        one(8, "flags", Kind::Uint32)
    ]
);
static VALUE_AT_QUANTILE: Message =
    message!("ValueAtQuantile", [one(1, "quantile", Kind::Double), one(2, "value", Kind::Double)]);
static EXEMPLAR: Message = message!(
    "Exemplar",
    [
        key_values(7, "filteredAttributes"),
        one(2, "timeUnixNano", Kind::Fixed64),
        choice(3, "asDouble", Kind::Double),
        choice(6, "asInt", Kind::Sfixed64),
        one(4, "spanId", SPAN_ID),
        one(5, "traceId", TRACE_ID)
    ]
);

// logs.proto

static RESOURCE_LOGS: Message =
    message!("ResourceLogs", [RESOURCE_FIELD, many(2, "scopeLogs", Child(&SCOPE_LOGS)), SCHEMA_URL]);
static SCOPE_LOGS: Message = message!("ScopeLogs", [SCOPE_FIELD, items(2, "logRecords", &LOG_RECORD), SCHEMA_URL]);
static LOG_RECORD: Message = message!(
    "LogRecord",
    [
        one(1, "timeUnixNano", Kind::Fixed64),
        one(11, "observedTimeUnixNano", Kind::Fixed64),
        one(2, "severityNumber", Kind::Enum(SEVERITY_NUMBER)),
        one(3, "severityText", Kind::String),
        one(5, "body", Child(&ANY_VALUE)),
        attributes(6),
        dropped_attributes(7),
        one(8, "flags", Kind::Fixed32),
        one(9, "traceId", TRACE_ID),
        one(10, "spanId", SPAN_ID),
        one(12, "eventName", Kind::String)
    ]
);

// Names of enum values

const SPAN_KIND: &[(&str, i32)] = &[
    ("SPAN_KIND_UNSPECIFIED", 0),
    ("SPAN_KIND_INTERNAL", 1),
    ("SPAN_KIND_SERVER", 2),
    ("SPAN_KIND_CLIENT", 3),
    ("SPAN_KIND_PRODUCER", 4),
    ("SPAN_KIND_CONSUMER", 5),
];
const STATUS_CODE: &[(&str, i32)] = &[("STATUS_CODE_UNSET", 0), ("STATUS_CODE_OK", 1), ("STATUS_CODE_ERROR", 2)];
const TEMPORALITY: &[(&str, i32)] = &[
    ("AGGREGATION_TEMPORALITY_UNSPECIFIED", 0),
    ("AGGREGATION_TEMPORALITY_DELTA", 1),
    ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2),
];
const SEVERITY_NUMBER: &[(&str, i32)] = &[
    ("SEVERITY_NUMBER_UNSPECIFIED", 0),
    ("SEVERITY_NUMBER_TRACE", 1),
    ("SEVERITY_NUMBER_TRACE2", 2),
    ("SEVERITY_NUMBER_TRACE3", 3),
    ("SEVERITY_NUMBER_TRACE4", 4),
    ("SEVERITY_NUMBER_DEBUG", 5),
    ("SEVERITY_NUMBER_DEBUG2", 6),
    ("SEVERITY_NUMBER_DEBUG3", 7),
    ("SEVERITY_NUMBER_DEBUG4", 8),
    ("SEVERITY_NUMBER_INFO", 9),
    ("SEVERITY_NUMBER_INFO2", 10),
    ("SEVERITY_NUMBER_INFO3", 11),
    ("SEVERITY_NUMBER_INFO4", 12),
    ("SEVERITY_NUMBER_WARN", 13),
    ("SEVERITY_NUMBER_WARN2", 14),
    ("SEVERITY_NUMBER_WARN3", 15),
    ("SEVERITY_NUMBER_WARN4", 16),
    ("SEVERITY_NUMBER_ERROR", 17),
    ("SEVERITY_NUMBER_ERROR2", 18),
    ("SEVERITY_NUMBER_ERROR3", 19),
    ("SEVERITY_NUMBER_ERROR4", 20),
    ("SEVERITY_NUMBER_FATAL", 21),
    ("SEVERITY_NUMBER_FATAL2", 22),
    ("SEVERITY_NUMBER_FATAL3", 23),
    ("SEVERITY_NUMBER_FATAL4", 24),
];
