//! The OTLP messages as a table: field number → kind or child message, written from the .proto files of
//! opentelemetry-proto. It knows nothing of the code under test, so that it can judge it.

use sluice_otlp::Signal;

#[derive(Clone, Copy)]
pub enum Kind {
    Bool,
    Enum,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Fixed32,
    Fixed64,
    Sfixed64,
    Double,
    String,
    Bytes,
    Message(&'static Message),
}

impl Kind {
    /// The wire type of one value that is not packed.
    pub fn wire_type(self) -> u8 {
        match self {
            Kind::Bool | Kind::Enum | Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 | Kind::Sint32 => 0,
            Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => 1,
            Kind::String | Kind::Bytes | Kind::Message(_) => 2,
            Kind::Fixed32 => 5,
        }
    }

    pub fn is_packable(self) -> bool {
        self.wire_type() != 2
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// A proto3 singular field: absent and default mean the same.
    Implicit,
    /// `optional`, or a singular message.
    Explicit,
    /// Member of the message's oneof (no OTLP message has two).
    Oneof,
    Repeated,
}

pub struct Field {
    pub number: u32,
    pub name: &'static str,
    pub kind: Kind,
    pub presence: Presence,
}

pub struct Message {
    pub name: &'static str,
    pub fields: &'static [Field],
}

impl Message {
    pub fn field(&self, number: u32) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.number == number)
    }
}

/// The export request of a signal.
pub fn request(signal: Signal) -> &'static Message {
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

use Kind::Message as Child;

static TRACES_REQUEST: Message =
    Message { name: "ExportTraceServiceRequest", fields: &[many(1, "resource_spans", Child(&RESOURCE_SPANS))] };

static METRICS_REQUEST: Message =
    Message { name: "ExportMetricsServiceRequest", fields: &[many(1, "resource_metrics", Child(&RESOURCE_METRICS))] };

static LOGS_REQUEST: Message =
    Message { name: "ExportLogsServiceRequest", fields: &[many(1, "resource_logs", Child(&RESOURCE_LOGS))] };

// common.proto, resource.proto

static ANY_VALUE: Message = Message {
    name: "AnyValue",
    fields: &[
        choice(1, "string_value", Kind::String),
        choice(2, "bool_value", Kind::Bool),
        choice(3, "int_value", Kind::Int64),
        choice(4, "double_value", Kind::Double),
        choice(5, "array_value", Child(&ARRAY_VALUE)),
        choice(6, "kvlist_value", Child(&KEY_VALUE_LIST)),
        choice(7, "bytes_value", Kind::Bytes),
        choice(8, "string_value_strindex", Kind::Int32),
    ],
};

static ARRAY_VALUE: Message = Message { name: "ArrayValue", fields: &[many(1, "values", Child(&ANY_VALUE))] };

static KEY_VALUE_LIST: Message = Message { name: "KeyValueList", fields: &[many(1, "values", Child(&KEY_VALUE))] };

static KEY_VALUE: Message = Message {
    name: "KeyValue",
    fields: &[one(1, "key", Kind::String), one(2, "value", Child(&ANY_VALUE)), one(3, "key_strindex", Kind::Int32)],
};

static SCOPE: Message = Message {
    name: "InstrumentationScope",
    fields: &[
        one(1, "name", Kind::String),
        one(2, "version", Kind::String),
        many(3, "attributes", Child(&KEY_VALUE)),
        one(4, "dropped_attributes_count", Kind::Uint32),
    ],
};

static ENTITY_REF: Message = Message {
    name: "EntityRef",
    fields: &[
        one(1, "schema_url", Kind::String),
        one(2, "type", Kind::String),
        many(3, "id_keys", Kind::String),
        many(4, "description_keys", Kind::String),
    ],
};

static RESOURCE: Message = Message {
    name: "Resource",
    fields: &[
        many(1, "attributes", Child(&KEY_VALUE)),
        one(2, "dropped_attributes_count", Kind::Uint32),
        many(3, "entity_refs", Child(&ENTITY_REF)),
    ],
};

// trace.proto

static RESOURCE_SPANS: Message = Message {
    name: "ResourceSpans",
    fields: &[
        one(1, "resource", Child(&RESOURCE)),
        many(2, "scope_spans", Child(&SCOPE_SPANS)),
        one(3, "schema_url", Kind::String),
    ],
};

static SCOPE_SPANS: Message = Message {
    name: "ScopeSpans",
    fields: &[one(1, "scope", Child(&SCOPE)), many(2, "spans", Child(&SPAN)), one(3, "schema_url", Kind::String)],
};

static SPAN: Message = Message {
    name: "Span",
    fields: &[
        one(1, "trace_id", Kind::Bytes),
        one(2, "span_id", Kind::Bytes),
        one(3, "trace_state", Kind::String),
        one(4, "parent_span_id", Kind::Bytes),
        one(5, "name", Kind::String),
        one(6, "kind", Kind::Enum),
        one(7, "start_time_unix_nano", Kind::Fixed64),
        one(8, "end_time_unix_nano", Kind::Fixed64),
        many(9, "attributes", Child(&KEY_VALUE)),
        one(10, "dropped_attributes_count", Kind::Uint32),
        many(11, "events", Child(&EVENT)),
        one(12, "dropped_events_count", Kind::Uint32),
        many(13, "links", Child(&LINK)),
        one(14, "dropped_links_count", Kind::Uint32),
        one(15, "status", Child(&STATUS)),
        one(16, "flags", Kind::Fixed32),
    ],
};

static EVENT: Message = Message {
    name: "Event",
    fields: &[
        one(1, "time_unix_nano", Kind::Fixed64),
        one(2, "name", Kind::String),
        many(3, "attributes", Child(&KEY_VALUE)),
        one(4, "dropped_attributes_count", Kind::Uint32),
    ],
};

static LINK: Message = Message {
    name: "Link",
    fields: &[
        one(1, "trace_id", Kind::Bytes),
        one(2, "span_id", Kind::Bytes),
        one(3, "trace_state", Kind::String),
        many(4, "attributes", Child(&KEY_VALUE)),
        one(5, "dropped_attributes_count", Kind::Uint32),
        one(6, "flags", Kind::Fixed32),
    ],
};

static STATUS: Message =
    Message { name: "Status", fields: &[one(2, "message", Kind::String), one(3, "code", Kind::Enum)] };

// metrics.proto

static RESOURCE_METRICS: Message = Message {
    name: "ResourceMetrics",
    fields: &[
        one(1, "resource", Child(&RESOURCE)),
        many(2, "scope_metrics", Child(&SCOPE_METRICS)),
        one(3, "schema_url", Kind::String),
    ],
};

static SCOPE_METRICS: Message = Message {
    name: "ScopeMetrics",
    fields: &[one(1, "scope", Child(&SCOPE)), many(2, "metrics", Child(&METRIC)), one(3, "schema_url", Kind::String)],
};

static METRIC: Message = Message {
    name: "Metric",
    fields: &[
        one(1, "name", Kind::String),
        one(2, "description", Kind::String),
        one(3, "unit", Kind::String),
        choice(5, "gauge", Child(&GAUGE)),
        choice(7, "sum", Child(&SUM)),
        choice(9, "histogram", Child(&HISTOGRAM)),
        choice(10, "exponential_histogram", Child(&EXPONENTIAL_HISTOGRAM)),
        choice(11, "summary", Child(&SUMMARY)),
        many(12, "metadata", Child(&KEY_VALUE)),
    ],
};

static GAUGE: Message = Message { name: "Gauge", fields: &[many(1, "data_points", Child(&NUMBER_POINT))] };

static SUM: Message = Message {
    name: "Sum",
    fields: &[
        many(1, "data_points", Child(&NUMBER_POINT)),
        one(2, "aggregation_temporality", Kind::Enum),
        one(3, "is_monotonic", Kind::Bool),
    ],
};

static HISTOGRAM: Message = Message {
    name: "Histogram",
    fields: &[many(1, "data_points", Child(&HISTOGRAM_POINT)), one(2, "aggregation_temporality", Kind::Enum)],
};

static EXPONENTIAL_HISTOGRAM: Message = Message {
    name: "ExponentialHistogram",
    fields: &[
        many(1, "data_points", Child(&EXPONENTIAL_HISTOGRAM_POINT)),
        one(2, "aggregation_temporality", Kind::Enum),
    ],
};

static SUMMARY: Message = Message { name: "Summary", fields: &[many(1, "data_points", Child(&SUMMARY_POINT))] };

static NUMBER_POINT: Message = Message {
    name: "NumberDataPoint",
    fields: &[
        one(2, "start_time_unix_nano", Kind::Fixed64),
        one(3, "time_unix_nano", Kind::Fixed64),
        choice(4, "as_double", Kind::Double),
        many(5, "exemplars", Child(&EXEMPLAR)),
        choice(6, "as_int", Kind::Sfixed64),
        many(7, "attributes", Child(&KEY_VALUE)),
        one(8, "flags", Kind::Uint32),
    ],
};

static HISTOGRAM_POINT: Message = Message {
    name: "HistogramDataPoint",
    fields: &[
        one(2, "start_time_unix_nano", Kind::Fixed64),
        one(3, "time_unix_nano", Kind::Fixed64),
        one(4, "count", Kind::Fixed64),
        optional(5, "sum", Kind::Double),
        many(6, "bucket_counts", Kind::Fixed64),
        many(7, "explicit_bounds", Kind::Double),
        many(8, "exemplars", Child(&EXEMPLAR)),
        many(9, "attributes", Child(&KEY_VALUE)),
        one(10, "flags", Kind::Uint32),
        optional(11, "min", Kind::Double),
        optional(12, "max", Kind::Double),
    ],
};

static EXPONENTIAL_HISTOGRAM_POINT: Message = Message {
    name: "ExponentialHistogramDataPoint",
    fields: &[
        many(1, "attributes", Child(&KEY_VALUE)),
        one(2, "start_time_unix_nano", Kind::Fixed64),
        one(3, "time_unix_nano", Kind::Fixed64),
        one(4, "count", Kind::Fixed64),
        optional(5, "sum", Kind::Double),
        one(6, "scale", Kind::Sint32),
        one(7, "zero_count", Kind::Fixed64),
        one(8, "positive", Child(&BUCKETS)),
        one(9, "negative", Child(&BUCKETS)),
        one(10, "flags", Kind::Uint32),
        many(11, "exemplars", Child(&EXEMPLAR)),
        optional(12, "min", Kind::Double),
        optional(13, "max", Kind::Double),
        one(14, "zero_threshold", Kind::Double),
    ],
};

static BUCKETS: Message =
    Message { name: "Buckets", fields: &[one(1, "offset", Kind::Sint32), many(2, "bucket_counts", Kind::Uint64)] };

static SUMMARY_POINT: Message = Message {
    name: "SummaryDataPoint",
    fields: &[
        one(2, "start_time_unix_nano", Kind::Fixed64),
        one(3, "time_unix_nano", Kind::Fixed64),
        one(4, "count", Kind::Fixed64),
        one(5, "sum", Kind::Double),
        many(6, "quantile_values", Child(&VALUE_AT_QUANTILE)),
        many(7, "attributes", Child(&KEY_VALUE)),
        one(8, "flags", Kind::Uint32),
    ],
};

static VALUE_AT_QUANTILE: Message =
    Message { name: "ValueAtQuantile", fields: &[one(1, "quantile", Kind::Double), one(2, "value", Kind::Double)] };

static EXEMPLAR: Message = Message {
    name: "Exemplar",
    fields: &[
        one(2, "time_unix_nano", Kind::Fixed64),
        choice(3, "as_double", Kind::Double),
        one(4, "span_id", Kind::Bytes),
        one(5, "trace_id", Kind::Bytes),
        choice(6, "as_int", Kind::Sfixed64),
        many(7, "filtered_attributes", Child(&KEY_VALUE)),
    ],
};

// logs.proto

static RESOURCE_LOGS: Message = Message {
    name: "ResourceLogs",
    fields: &[
        one(1, "resource", Child(&RESOURCE)),
        many(2, "scope_logs", Child(&SCOPE_LOGS)),
        one(3, "schema_url", Kind::String),
    ],
};

static SCOPE_LOGS: Message = Message {
    name: "ScopeLogs",
    fields: &[
        one(1, "scope", Child(&SCOPE)),
        many(2, "log_records", Child(&LOG_RECORD)),
        one(3, "schema_url", Kind::String),
    ],
};

static LOG_RECORD: Message = Message {
    name: "LogRecord",
    fields: &[
        one(1, "time_unix_nano", Kind::Fixed64),
        one(2, "severity_number", Kind::Enum),
        one(3, "severity_text", Kind::String),
        one(5, "body", Child(&ANY_VALUE)),
        many(6, "attributes", Child(&KEY_VALUE)),
        one(7, "dropped_attributes_count", Kind::Uint32),
        one(8, "flags", Kind::Fixed32),
        one(9, "trace_id", Kind::Bytes),
        one(10, "span_id", Kind::Bytes),
        one(11, "observed_time_unix_nano", Kind::Fixed64),
        one(12, "event_name", Kind::String),
    ],
};
