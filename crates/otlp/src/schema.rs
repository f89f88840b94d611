//! What is known of the OTLP messages (opentelemetry-proto 1.x), by field number.

/// What a field holds, and so how it is validated.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Unknown,
    Varint,
    Fixed32,
    Fixed64,
    /// UTF-8.
    String,
    Bytes,
    /// Empty or 16 bytes.
    TraceId,
    /// Empty or 8 bytes.
    SpanId,
    /// Repeated scalars: packed or one a field, as protobuf demands of every reader.
    RepeatedVarint,
    RepeatedFixed64,
    KeyValue,
    Message(&'static Descriptor),
    /// A message that is counted: a span, a data point, a log record.
    Item(&'static Descriptor),
    /// The variants of `Metric.data`, of which the last one on the wire counts.
    Data(&'static Descriptor),
}

/// Highest field number that is known anywhere, plus one.
const FIELDS: usize = 17;

/// The fields of one message.
pub(crate) struct Descriptor {
    fields: [Kind; FIELDS],
}

impl Descriptor {
    #[inline(always)]
    pub(crate) fn kind(&self, number: u32) -> Kind {
        self.fields.get(number as usize).copied().unwrap_or(Kind::Unknown)
    }
}

const fn message(known: &[(usize, Kind)]) -> Descriptor {
    let mut fields = [Kind::Unknown; FIELDS];
    let mut index = 0;
    while index < known.len() {
        fields[known[index].0] = known[index].1;
        index += 1;
    }
    Descriptor { fields }
}

use Kind::{
    Bytes, Data, Fixed32, Fixed64, Item, KeyValue, Message, RepeatedFixed64, RepeatedVarint, SpanId, String, TraceId,
    Varint,
};

pub(crate) static TRACES_REQUEST: Descriptor = message(&[(1, Message(&RESOURCE_SPANS))]);
pub(crate) static METRICS_REQUEST: Descriptor = message(&[(1, Message(&RESOURCE_METRICS))]);
pub(crate) static LOGS_REQUEST: Descriptor = message(&[(1, Message(&RESOURCE_LOGS))]);

static RESOURCE_SPANS: Descriptor = message(&[(1, Message(&RESOURCE)), (2, Message(&SCOPE_SPANS)), (3, String)]);
static RESOURCE_METRICS: Descriptor = message(&[(1, Message(&RESOURCE)), (2, Message(&SCOPE_METRICS)), (3, String)]);
static RESOURCE_LOGS: Descriptor = message(&[(1, Message(&RESOURCE)), (2, Message(&SCOPE_LOGS)), (3, String)]);

static SCOPE_SPANS: Descriptor = message(&[(1, Message(&SCOPE)), (2, Item(&SPAN)), (3, String)]);
static SCOPE_METRICS: Descriptor = message(&[(1, Message(&SCOPE)), (2, Message(&METRIC)), (3, String)]);
static SCOPE_LOGS: Descriptor = message(&[(1, Message(&SCOPE)), (2, Item(&LOG_RECORD)), (3, String)]);

static RESOURCE: Descriptor = message(&[(1, KeyValue), (2, Varint), (3, Message(&ENTITY_REF))]);
static ENTITY_REF: Descriptor = message(&[(1, String), (2, String), (3, String), (4, String)]);
static SCOPE: Descriptor = message(&[(1, String), (2, String), (3, KeyValue), (4, Varint)]);

pub(crate) static KEY_VALUE: Descriptor = message(&[(1, String), (2, Message(&ANY_VALUE)), (3, Varint)]);
pub(crate) static ANY_VALUE: Descriptor = message(&[
    (1, String),
    (2, Varint),
    (3, Varint),
    (4, Fixed64),
    (5, Message(&ARRAY_VALUE)),
    (6, Message(&KEY_VALUE_LIST)),
    (7, Bytes),
    (8, Varint),
]);
static ARRAY_VALUE: Descriptor = message(&[(1, Message(&ANY_VALUE))]);
static KEY_VALUE_LIST: Descriptor = message(&[(1, KeyValue)]);

static SPAN: Descriptor = message(&[
    (1, TraceId),
    (2, SpanId),
    (3, String),
    (4, SpanId),
    (5, String),
    (6, Varint),
    (7, Fixed64),
    (8, Fixed64),
    (9, KeyValue),
    (10, Varint),
    (11, Message(&EVENT)),
    (12, Varint),
    (13, Message(&LINK)),
    (14, Varint),
    (15, Message(&STATUS)),
    (16, Fixed32),
]);
static EVENT: Descriptor = message(&[(1, Fixed64), (2, String), (3, KeyValue), (4, Varint)]);
static LINK: Descriptor = message(&[(1, TraceId), (2, SpanId), (3, String), (4, KeyValue), (5, Varint), (6, Fixed32)]);
static STATUS: Descriptor = message(&[(2, String), (3, Varint)]);

static LOG_RECORD: Descriptor = message(&[
    (1, Fixed64),
    (2, Varint),
    (3, String),
    (5, Message(&ANY_VALUE)),
    (6, KeyValue),
    (7, Varint),
    (8, Fixed32),
    (9, TraceId),
    (10, SpanId),
    (11, Fixed64),
    (12, String),
]);

static METRIC: Descriptor = message(&[
    (1, String),
    (2, String),
    (3, String),
    (5, Data(&GAUGE)),
    (7, Data(&SUM)),
    (9, Data(&HISTOGRAM)),
    (10, Data(&EXPONENTIAL_HISTOGRAM)),
    (11, Data(&SUMMARY)),
    (12, KeyValue),
]);
static GAUGE: Descriptor = message(&[(1, Item(&NUMBER_DATA_POINT))]);
static SUM: Descriptor = message(&[(1, Item(&NUMBER_DATA_POINT)), (2, Varint), (3, Varint)]);
static HISTOGRAM: Descriptor = message(&[(1, Item(&HISTOGRAM_DATA_POINT)), (2, Varint)]);
static EXPONENTIAL_HISTOGRAM: Descriptor = message(&[(1, Item(&EXPONENTIAL_HISTOGRAM_DATA_POINT)), (2, Varint)]);
static SUMMARY: Descriptor = message(&[(1, Item(&SUMMARY_DATA_POINT))]);

static NUMBER_DATA_POINT: Descriptor = message(&[
    (2, Fixed64),
    (3, Fixed64),
    (4, Fixed64),
    (5, Message(&EXEMPLAR)),
    (6, Fixed64),
    (7, KeyValue),
    (8, Varint),
]);
static HISTOGRAM_DATA_POINT: Descriptor = message(&[
    (2, Fixed64),
    (3, Fixed64),
    (4, Fixed64),
    (5, Fixed64),
    (6, RepeatedFixed64),
    (7, RepeatedFixed64),
    (8, Message(&EXEMPLAR)),
    (9, KeyValue),
    (10, Varint),
    (11, Fixed64),
    (12, Fixed64),
]);
static EXPONENTIAL_HISTOGRAM_DATA_POINT: Descriptor = message(&[
    (1, KeyValue),
    (2, Fixed64),
    (3, Fixed64),
    (4, Fixed64),
    (5, Fixed64),
    (6, Varint),
    (7, Fixed64),
    (8, Message(&BUCKETS)),
    (9, Message(&BUCKETS)),
    (10, Varint),
    (11, Message(&EXEMPLAR)),
    (12, Fixed64),
    (13, Fixed64),
    (14, Fixed64),
]);
static BUCKETS: Descriptor = message(&[(1, Varint), (2, RepeatedVarint)]);
static SUMMARY_DATA_POINT: Descriptor = message(&[
    (2, Fixed64),
    (3, Fixed64),
    (4, Fixed64),
    (5, Fixed64),
    (6, Message(&QUANTILE)),
    (7, KeyValue),
    (8, Varint),
]);
static QUANTILE: Descriptor = message(&[(1, Fixed64), (2, Fixed64)]);
static EXEMPLAR: Descriptor =
    message(&[(2, Fixed64), (3, Fixed64), (4, SpanId), (5, TraceId), (6, Fixed64), (7, KeyValue)]);

/// Field numbers that the three signals share: a request holds resources, a resource scopes, a scope items or metrics.
pub(crate) const REQUEST_RESOURCES: u32 = 1;
pub(crate) const RESOURCE_X_RESOURCE: u32 = 1;
pub(crate) const RESOURCE_X_SCOPES: u32 = 2;
pub(crate) const SCOPE_X_SCOPE: u32 = 1;
pub(crate) const SCOPE_X_ENTRIES: u32 = 2;
pub(crate) const DATA_POINTS: u32 = 1;

/// True for the variants of `Metric.data`.
pub(crate) const fn is_metric_data(number: u32) -> bool {
    matches!(number, 5 | 7 | 9 | 10 | 11)
}
