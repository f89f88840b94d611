//! The OTLP messages by name and number. Both directions of the translation follow this table.

use crate::Signal;
use crate::wire::{FIXED32, FIXED64, LEN, VARINT};

pub(super) struct Message {
    /// In the order in which they are written. At most [`FIELDS_LIMIT`].
    pub(super) fields: &'static [Field],
}

pub(super) struct Field {
    pub(super) number: u32,
    /// In lowerCamelCase.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) presence: Presence,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// A singular scalar whose default value means absent.
    Implicit,
    /// `optional`, or a singular message.
    Explicit,
    /// A member of the message's oneof. No OTLP message has two of them.
    Oneof,
    Repeated,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Fixed32,
    Fixed64,
    Sfixed64,
    Double,
    /// With the names of its values; any other 32-bit value is allowed too.
    Enum(&'static [(&'static str, i32)]),
    String,
    Bytes,
    /// A trace or span id of so many bytes (or none).
    Id(usize),
    Message(&'static Message),
}

impl Kind {
    /// The wire type of one value that is not packed.
    pub(super) fn wire_type(self) -> u8 {
        match self {
            Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 | Kind::Sint32 | Kind::Enum(_) => {
                VARINT
            }
            Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => FIXED64,
            Kind::Fixed32 => FIXED32,
            Kind::String | Kind::Bytes | Kind::Id(_) | Kind::Message(_) => LEN,
        }
    }
}

pub(super) const FIELDS_LIMIT: usize = 16;

impl Message {
    pub(super) fn numbered(&self, number: u32) -> Option<usize> {
        self.fields.iter().position(|field| field.number == number)
    }

    /// The index of the field that JSON calls `name`. Looks at `hint` first: senders write fields in a fixed order.
    pub(super) fn named(&self, name: &str, hint: usize) -> Option<usize> {
        if self.fields.get(hint).is_some_and(|field| field.name == name) {
            return Some(hint);
        }
        self.fields.iter().position(|field| field.name == name || is_original_name(name, field.name))
    }
}

/// Whether `original` is the snake_case form of `camel`.
fn is_original_name(original: &str, camel: &str) -> bool {
    let mut rest = original.bytes();
    camel.bytes().all(|byte| match byte.is_ascii_uppercase() {
        true => rest.next() == Some(b'_') && rest.next() == Some(byte.to_ascii_lowercase()),
        false => rest.next() == Some(byte),
    }) && rest.next().is_none()
}

pub(super) fn request(signal: Signal) -> &'static Message {
    match signal {
        Signal::Traces => &TRACES_REQUEST,
        Signal::Metrics => &METRICS_REQUEST,
        Signal::Logs => &LOGS_REQUEST,
    }
}

const fn one(number: u32, name: &'static str, kind: Kind) -> Field {
    let presence = if matches!(kind, Kind::Message(_)) { Presence::Explicit } else { Presence::Implicit };
    Field { number, name, kind, presence }
}

const fn optional(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, presence: Presence::Explicit }
}

const fn choice(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, presence: Presence::Oneof }
}

const fn many(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, presence: Presence::Repeated }
}

const TRACE_ID: Kind = Kind::Id(16);
const SPAN_ID: Kind = Kind::Id(8);
const RESOURCE_FIELD: Field = one(1, "resource", Kind::Message(&RESOURCE));
const SCOPE_FIELD: Field = one(1, "scope", Kind::Message(&SCOPE));
const SCHEMA_URL: Field = one(3, "schemaUrl", Kind::String);
const START_TIME: Field = one(2, "startTimeUnixNano", Kind::Fixed64);
const POINT_TIME: Field = one(3, "timeUnixNano", Kind::Fixed64);
const TEMPORALITY_FIELD: Field = one(2, "aggregationTemporality", Kind::Enum(TEMPORALITY));

const fn attributes(number: u32) -> Field {
    many(number, "attributes", Kind::Message(&KEY_VALUE))
}

const fn dropped_attributes(number: u32) -> Field {
    one(number, "droppedAttributesCount", Kind::Uint32)
}

static TRACES_REQUEST: Message = Message { fields: &[many(1, "resourceSpans", Kind::Message(&RESOURCE_SPANS))] };
static METRICS_REQUEST: Message = Message { fields: &[many(1, "resourceMetrics", Kind::Message(&RESOURCE_METRICS))] };
static LOGS_REQUEST: Message = Message { fields: &[many(1, "resourceLogs", Kind::Message(&RESOURCE_LOGS))] };

// common.proto and resource.proto

static ANY_VALUE: Message = Message {
    fields: &[
        choice(1, "stringValue", Kind::String),
        choice(2, "boolValue", Kind::Bool),
        choice(3, "intValue", Kind::Int64),
        choice(4, "doubleValue", Kind::Double),
        choice(5, "arrayValue", Kind::Message(&ARRAY_VALUE)),
        choice(6, "kvlistValue", Kind::Message(&KEY_VALUE_LIST)),
        choice(7, "bytesValue", Kind::Bytes),
        choice(8, "stringValueStrindex", Kind::Int32),
    ],
};
static ARRAY_VALUE: Message = Message { fields: &[many(1, "values", Kind::Message(&ANY_VALUE))] };
static KEY_VALUE_LIST: Message = Message { fields: &[many(1, "values", Kind::Message(&KEY_VALUE))] };
static KEY_VALUE: Message = Message {
    fields: &[
        one(1, "key", Kind::String),
        one(2, "value", Kind::Message(&ANY_VALUE)),
        one(3, "keyStrindex", Kind::Int32),
    ],
};
static SCOPE: Message = Message {
    fields: &[one(1, "name", Kind::String), one(2, "version", Kind::String), attributes(3), dropped_attributes(4)],
};
static RESOURCE: Message =
    Message { fields: &[attributes(1), dropped_attributes(2), many(3, "entityRefs", Kind::Message(&ENTITY_REF))] };
static ENTITY_REF: Message = Message {
    fields: &[
        one(1, "schemaUrl", Kind::String),
        one(2, "type", Kind::String),
        many(3, "idKeys", Kind::String),
        many(4, "descriptionKeys", Kind::String),
    ],
};

// trace.proto

static RESOURCE_SPANS: Message =
    Message { fields: &[RESOURCE_FIELD, many(2, "scopeSpans", Kind::Message(&SCOPE_SPANS)), SCHEMA_URL] };
static SCOPE_SPANS: Message = Message { fields: &[SCOPE_FIELD, many(2, "spans", Kind::Message(&SPAN)), SCHEMA_URL] };
static SPAN: Message = Message {
    fields: &[
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
        many(11, "events", Kind::Message(&EVENT)),
        one(12, "droppedEventsCount", Kind::Uint32),
        many(13, "links", Kind::Message(&LINK)),
        one(14, "droppedLinksCount", Kind::Uint32),
        one(15, "status", Kind::Message(&STATUS)),
    ],
};
static EVENT: Message = Message {
    fields: &[
        one(1, "timeUnixNano", Kind::Fixed64),
        one(2, "name", Kind::String),
        attributes(3),
        dropped_attributes(4),
    ],
};
static LINK: Message = Message {
    fields: &[
        one(1, "traceId", TRACE_ID),
        one(2, "spanId", SPAN_ID),
        one(3, "traceState", Kind::String),
        attributes(4),
        dropped_attributes(5),
        one(6, "flags", Kind::Fixed32),
    ],
};
static STATUS: Message =
    Message { fields: &[one(2, "message", Kind::String), one(3, "code", Kind::Enum(STATUS_CODE))] };

// metrics.proto

static RESOURCE_METRICS: Message =
    Message { fields: &[RESOURCE_FIELD, many(2, "scopeMetrics", Kind::Message(&SCOPE_METRICS)), SCHEMA_URL] };
static SCOPE_METRICS: Message =
    Message { fields: &[SCOPE_FIELD, many(2, "metrics", Kind::Message(&METRIC)), SCHEMA_URL] };
static METRIC: Message = Message {
    fields: &[
        one(1, "name", Kind::String),
        one(2, "description", Kind::String),
        one(3, "unit", Kind::String),
        choice(5, "gauge", Kind::Message(&GAUGE)),
        choice(7, "sum", Kind::Message(&SUM)),
        choice(9, "histogram", Kind::Message(&HISTOGRAM)),
        choice(10, "exponentialHistogram", Kind::Message(&EXPONENTIAL_HISTOGRAM)),
        choice(11, "summary", Kind::Message(&SUMMARY)),
        many(12, "metadata", Kind::Message(&KEY_VALUE)),
    ],
};
static GAUGE: Message = Message { fields: &[many(1, "dataPoints", Kind::Message(&NUMBER_POINT))] };
static SUM: Message = Message {
    fields: &[
        many(1, "dataPoints", Kind::Message(&NUMBER_POINT)),
        TEMPORALITY_FIELD,
        one(3, "isMonotonic", Kind::Bool),
    ],
};
static HISTOGRAM: Message =
    Message { fields: &[many(1, "dataPoints", Kind::Message(&HISTOGRAM_POINT)), TEMPORALITY_FIELD] };
static EXPONENTIAL_HISTOGRAM: Message =
    Message { fields: &[many(1, "dataPoints", Kind::Message(&EXPONENTIAL_POINT)), TEMPORALITY_FIELD] };
static SUMMARY: Message = Message { fields: &[many(1, "dataPoints", Kind::Message(&SUMMARY_POINT))] };
static NUMBER_POINT: Message = Message {
    fields: &[
        attributes(7),
        START_TIME,
        POINT_TIME,
        choice(4, "asDouble", Kind::Double),
        choice(6, "asInt", Kind::Sfixed64),
        many(5, "exemplars", Kind::Message(&EXEMPLAR)),
        one(8, "flags", Kind::Uint32),
    ],
};
static HISTOGRAM_POINT: Message = Message {
    fields: &[
        attributes(9),
        START_TIME,
        POINT_TIME,
        one(4, "count", Kind::Fixed64),
        optional(5, "sum", Kind::Double),
        many(6, "bucketCounts", Kind::Fixed64),
        many(7, "explicitBounds", Kind::Double),
        many(8, "exemplars", Kind::Message(&EXEMPLAR)),
        one(10, "flags", Kind::Uint32),
        optional(11, "min", Kind::Double),
        optional(12, "max", Kind::Double),
    ],
};
static EXPONENTIAL_POINT: Message = Message {
    fields: &[
        attributes(1),
        START_TIME,
        POINT_TIME,
        one(4, "count", Kind::Fixed64),
        optional(5, "sum", Kind::Double),
        one(6, "scale", Kind::Sint32),
        one(7, "zeroCount", Kind::Fixed64),
        one(8, "positive", Kind::Message(&BUCKETS)),
        one(9, "negative", Kind::Message(&BUCKETS)),
        one(10, "flags", Kind::Uint32),
        many(11, "exemplars", Kind::Message(&EXEMPLAR)),
        optional(12, "min", Kind::Double),
        optional(13, "max", Kind::Double),
        one(14, "zeroThreshold", Kind::Double),
    ],
};
static BUCKETS: Message = Message { fields: &[one(1, "offset", Kind::Sint32), many(2, "bucketCounts", Kind::Uint64)] };
static SUMMARY_POINT: Message = Message {
    fields: &[
        attributes(7),
        START_TIME,
        POINT_TIME,
        one(4, "count", Kind::Fixed64),
        one(5, "sum", Kind::Double),
        many(6, "quantileValues", Kind::Message(&VALUE_AT_QUANTILE)),
        one(8, "flags", Kind::Uint32),
    ],
};
static VALUE_AT_QUANTILE: Message =
    Message { fields: &[one(1, "quantile", Kind::Double), one(2, "value", Kind::Double)] };
static EXEMPLAR: Message = Message {
    fields: &[
        many(7, "filteredAttributes", Kind::Message(&KEY_VALUE)),
        one(2, "timeUnixNano", Kind::Fixed64),
        choice(3, "asDouble", Kind::Double),
        choice(6, "asInt", Kind::Sfixed64),
        one(4, "spanId", SPAN_ID),
        one(5, "traceId", TRACE_ID),
    ],
};

// logs.proto

static RESOURCE_LOGS: Message =
    Message { fields: &[RESOURCE_FIELD, many(2, "scopeLogs", Kind::Message(&SCOPE_LOGS)), SCHEMA_URL] };
static SCOPE_LOGS: Message =
    Message { fields: &[SCOPE_FIELD, many(2, "logRecords", Kind::Message(&LOG_RECORD)), SCHEMA_URL] };
static LOG_RECORD: Message = Message {
    fields: &[
        one(1, "timeUnixNano", Kind::Fixed64),
        one(11, "observedTimeUnixNano", Kind::Fixed64),
        one(2, "severityNumber", Kind::Enum(SEVERITY_NUMBER)),
        one(3, "severityText", Kind::String),
        one(5, "body", Kind::Message(&ANY_VALUE)),
        attributes(6),
        dropped_attributes(7),
        one(8, "flags", Kind::Fixed32),
        one(9, "traceId", TRACE_ID),
        one(10, "spanId", SPAN_ID),
        one(12, "eventName", Kind::String),
    ],
};

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Both spellings that the Collector takes, and nothing near them.
    #[test]
    fn fields_are_found_by_both_their_names() {
        let index = SPAN.named("startTimeUnixNano", 0).expect("the JSON name");
        assert_eq!(SPAN.fields[index].number, 7);
        assert_eq!(SPAN.named("start_time_unix_nano", 0), Some(index));
        for wrong in ["", "start_time_unix_nan", "start_time_unix_nano_", "starttimeunixnano", "start_timeUnixNano"] {
            assert_eq!(SPAN.named(wrong, 0), None, "{wrong}");
        }
    }

    /// The writer keeps one slot a field, and the reader one bit.
    #[test]
    fn no_message_has_more_fields_than_the_limit() {
        let mut seen = Vec::new();
        let mut todo: Vec<&'static Message> = Signal::ALL.into_iter().map(request).collect();
        while let Some(message) = todo.pop() {
            if seen.iter().any(|known| std::ptr::eq(*known, message)) {
                continue;
            }
            seen.push(message);
            assert!(message.fields.len() <= FIELDS_LIMIT);
            todo.extend(message.fields.iter().filter_map(|field| match field.kind {
                Kind::Message(child) => Some(child),
                _ => None,
            }));
        }
        assert_eq!(seen.len(), 34, "every message is reached");
    }
}
