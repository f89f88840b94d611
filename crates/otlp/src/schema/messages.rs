//! Every message, by the `.proto` file that defines it.

use super::Kind::Message as Child;
use super::{Field, Kind, Message, Presence, SPAN_ID_BYTES, TRACE_ID_BYTES, WireKind};

/// `NAME = TypeOfTheProtoFile [fields]`
macro_rules! messages {
    ($($name:ident = $proto:ident [$($field:expr),* $(,)?])*) => {
        $(pub(crate) static $name: Message = {
            static FIELDS: &[Field] = &[$($field),*];
            Message::new(stringify!($proto), FIELDS)
        };)*
    };
}

const fn one(number: u32, name: &'static str, kind: Kind) -> Field {
    let presence =
        if matches!(kind, Kind::Message(_)) { Presence::Explicit } else { Presence::Implicit };
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

const fn level(number: u32, name: &'static str, below: &'static Message) -> Field {
    Field { wire: WireKind::Level(below), ..many(number, name, Child(below)) }
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
const TEMPORALITY_FIELD: Field = one(2, "aggregationTemporality", TEMPORALITY);

const fn attributes(number: u32) -> Field {
    key_values(number, "attributes")
}

const fn dropped_attributes(number: u32) -> Field {
    one(number, "droppedAttributesCount", Kind::Uint32)
}

messages! {
    TRACES_REQUEST = ExportTraceServiceRequest [level(1, "resourceSpans", &RESOURCE_SPANS)]
    METRICS_REQUEST = ExportMetricsServiceRequest [level(1, "resourceMetrics", &RESOURCE_METRICS)]
    LOGS_REQUEST = ExportLogsServiceRequest [level(1, "resourceLogs", &RESOURCE_LOGS)]

    // common.proto and resource.proto

    ANY_VALUE = AnyValue [
        choice(1, "stringValue", Kind::String),
        choice(2, "boolValue", Kind::Bool),
        choice(3, "intValue", Kind::Int64),
        choice(4, "doubleValue", Kind::Double),
        choice(5, "arrayValue", Child(&ARRAY_VALUE)),
        choice(6, "kvlistValue", Child(&KEY_VALUE_LIST)),
        choice(7, "bytesValue", Kind::Bytes),
        choice(8, "stringValueStrindex", Kind::Int32),
    ]
    ARRAY_VALUE = ArrayValue [many(1, "values", Child(&ANY_VALUE))]
    KEY_VALUE_LIST = KeyValueList [key_values(1, "values")]
    KEY_VALUE = KeyValue [
        one(1, "key", Kind::String),
        one(2, "value", Child(&ANY_VALUE)),
        one(3, "keyStrindex", Kind::Int32),
    ]
    SCOPE = InstrumentationScope [
        one(1, "name", Kind::String),
        one(2, "version", Kind::String),
        attributes(3),
        dropped_attributes(4),
    ]
    RESOURCE = Resource [
        attributes(1),
        dropped_attributes(2),
        many(3, "entityRefs", Child(&ENTITY_REF)),
    ]
    ENTITY_REF = EntityRef [
        one(1, "schemaUrl", Kind::String),
        one(2, "type", Kind::String),
        many(3, "idKeys", Kind::String),
        many(4, "descriptionKeys", Kind::String),
    ]

    // trace.proto

    RESOURCE_SPANS = ResourceSpans [
        RESOURCE_FIELD,
        level(2, "scopeSpans", &SCOPE_SPANS),
        SCHEMA_URL,
    ]
    SCOPE_SPANS = ScopeSpans [SCOPE_FIELD, items(2, "spans", &SPAN), SCHEMA_URL]
    SPAN = Span [
        one(1, "traceId", TRACE_ID),
        one(2, "spanId", SPAN_ID),
        one(3, "traceState", Kind::String),
        one(4, "parentSpanId", SPAN_ID),
        one(16, "flags", Kind::Fixed32),
        one(5, "name", Kind::String),
        one(6, "kind", SPAN_KIND),
        one(7, "startTimeUnixNano", Kind::Fixed64),
        one(8, "endTimeUnixNano", Kind::Fixed64),
        attributes(9),
        dropped_attributes(10),
        many(11, "events", Child(&EVENT)),
        one(12, "droppedEventsCount", Kind::Uint32),
        many(13, "links", Child(&LINK)),
        one(14, "droppedLinksCount", Kind::Uint32),
        one(15, "status", Child(&STATUS)),
    ]
    EVENT = Event [
        one(1, "timeUnixNano", Kind::Fixed64),
        one(2, "name", Kind::String),
        attributes(3),
        dropped_attributes(4),
    ]
    LINK = Link [
        one(1, "traceId", TRACE_ID),
        one(2, "spanId", SPAN_ID),
        one(3, "traceState", Kind::String),
        attributes(4),
        dropped_attributes(5),
        one(6, "flags", Kind::Fixed32),
    ]
    STATUS = Status [one(2, "message", Kind::String), one(3, "code", STATUS_CODE)]

    // metrics.proto

    RESOURCE_METRICS = ResourceMetrics [
        RESOURCE_FIELD,
        level(2, "scopeMetrics", &SCOPE_METRICS),
        SCHEMA_URL,
    ]
    SCOPE_METRICS = ScopeMetrics [SCOPE_FIELD, level(2, "metrics", &METRIC), SCHEMA_URL]
    METRIC = Metric [
        one(1, "name", Kind::String),
        one(2, "description", Kind::String),
        one(3, "unit", Kind::String),
        data(5, "gauge", &GAUGE),
        data(7, "sum", &SUM),
        data(9, "histogram", &HISTOGRAM),
        data(10, "exponentialHistogram", &EXPONENTIAL_HISTOGRAM),
        data(11, "summary", &SUMMARY),
        key_values(12, "metadata"),
    ]
    GAUGE = Gauge [items(1, "dataPoints", &NUMBER_POINT)]
    SUM = Sum [
        items(1, "dataPoints", &NUMBER_POINT),
        TEMPORALITY_FIELD,
        one(3, "isMonotonic", Kind::Bool),
    ]
    HISTOGRAM = Histogram [items(1, "dataPoints", &HISTOGRAM_POINT), TEMPORALITY_FIELD]
    EXPONENTIAL_HISTOGRAM = ExponentialHistogram [
        items(1, "dataPoints", &EXPONENTIAL_POINT),
        TEMPORALITY_FIELD,
    ]
    SUMMARY = Summary [items(1, "dataPoints", &SUMMARY_POINT)]
    NUMBER_POINT = NumberDataPoint [
        attributes(7),
        START_TIME,
        POINT_TIME,
        choice(4, "asDouble", Kind::Double),
        choice(6, "asInt", Kind::Sfixed64),
        many(5, "exemplars", Child(&EXEMPLAR)),
        one(8, "flags", Kind::Uint32),
    ]
    HISTOGRAM_POINT = HistogramDataPoint [
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
        optional(12, "max", Kind::Double),
    ]
    EXPONENTIAL_POINT = ExponentialHistogramDataPoint [
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
        one(14, "zeroThreshold", Kind::Double),
    ]
    BUCKETS = Buckets [one(1, "offset", Kind::Sint32), many(2, "bucketCounts", Kind::Uint64)]
    SUMMARY_POINT = SummaryDataPoint [
        attributes(7),
        START_TIME,
        POINT_TIME,
        one(4, "count", Kind::Fixed64),
        one(5, "sum", Kind::Double),
        many(6, "quantileValues", Child(&VALUE_AT_QUANTILE)),
        one(8, "flags", Kind::Uint32),
    ]
    VALUE_AT_QUANTILE = ValueAtQuantile [
        one(1, "quantile", Kind::Double),
        one(2, "value", Kind::Double),
    ]
    EXEMPLAR = Exemplar [
        key_values(7, "filteredAttributes"),
        one(2, "timeUnixNano", Kind::Fixed64),
        choice(3, "asDouble", Kind::Double),
        choice(6, "asInt", Kind::Sfixed64),
        one(4, "spanId", SPAN_ID),
        one(5, "traceId", TRACE_ID),
    ]

    // logs.proto

    RESOURCE_LOGS = ResourceLogs [RESOURCE_FIELD, level(2, "scopeLogs", &SCOPE_LOGS), SCHEMA_URL]
    SCOPE_LOGS = ScopeLogs [SCOPE_FIELD, items(2, "logRecords", &LOG_RECORD), SCHEMA_URL]
    LOG_RECORD = LogRecord [
        one(1, "timeUnixNano", Kind::Fixed64),
        one(11, "observedTimeUnixNano", Kind::Fixed64),
        one(2, "severityNumber", SEVERITY_NUMBER),
        one(3, "severityText", Kind::String),
        one(5, "body", Child(&ANY_VALUE)),
        attributes(6),
        dropped_attributes(7),
        one(8, "flags", Kind::Fixed32),
        one(9, "traceId", TRACE_ID),
        one(10, "spanId", SPAN_ID),
        one(12, "eventName", Kind::String),
    ]
}

// Names of enum values, which are numbered from zero

const SPAN_KIND: Kind =
    Kind::Enum("SPAN_KIND_", "UNSPECIFIED INTERNAL SERVER CLIENT PRODUCER CONSUMER");
const STATUS_CODE: Kind = Kind::Enum("STATUS_CODE_", "UNSET OK ERROR");
const TEMPORALITY: Kind = Kind::Enum("AGGREGATION_TEMPORALITY_", "UNSPECIFIED DELTA CUMULATIVE");
const SEVERITY_NUMBER: Kind = Kind::Enum(
    "SEVERITY_NUMBER_",
    "UNSPECIFIED TRACE TRACE2 TRACE3 TRACE4 DEBUG DEBUG2 DEBUG3 DEBUG4 INFO INFO2 INFO3 INFO4 \
     WARN WARN2 WARN3 WARN4 ERROR ERROR2 ERROR3 ERROR4 FATAL FATAL2 FATAL3 FATAL4",
);
