//! Arbitrary export requests in the official generated types.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, EntityRef, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message as _;
use sluice_otlp::Signal;

use super::rewrite::{Freedoms, rewrite};
use super::{logs, metrics, traces};

/// Unusual features that the generated requests may have.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Several attributes of the same key.
    pub duplicate_keys: bool,
    /// Trace and span ids of any length, not only 16 and 8 bytes or none.
    pub odd_ids: bool,
    /// String-table references (`key_strindex`, `string_value_strindex`), which only profiles may
    /// use.
    pub string_table: bool,
}

impl Shape {
    /// Requests of a well-behaved sender.
    pub const PLAIN: Shape = Shape { duplicate_keys: false, odd_ids: false, string_table: false };
    /// Everything that the generated types can express.
    pub const ANY: Shape = Shape { duplicate_keys: true, odd_ids: true, string_table: true };
}

/// An encoded request as the generated types write it.
pub fn request(signal: Signal, shape: Shape) -> BoxedStrategy<Vec<u8>> {
    match signal {
        Signal::Traces => {
            traces::request(shape).prop_map(|request| request.encode_to_vec()).boxed()
        }
        Signal::Metrics => {
            metrics::request(shape).prop_map(|request| request.encode_to_vec()).boxed()
        }
        Signal::Logs => logs::request(shape).prop_map(|request| request.encode_to_vec()).boxed(),
    }
}

/// An encoded request in any wire form that the protocol allows. Decode it for its meaning.
pub fn wire_request(signal: Signal, shape: Shape, freedoms: Freedoms) -> BoxedStrategy<Vec<u8>> {
    (request(signal, shape), any::<u64>())
        .prop_map(move |(encoded, seed)| rewrite(signal, &encoded, freedoms, seed))
        .boxed()
}

pub fn signal() -> impl Strategy<Value = Signal> {
    prop::sample::select(Signal::ALL.as_slice())
}

/// A request of any signal, in any wire form.
pub fn any_request(shape: Shape) -> impl Strategy<Value = (Signal, Vec<u8>)> {
    signal().prop_flat_map(move |signal| (Just(signal), wire_request(signal, shape, Freedoms::ALL)))
}

/// A value nested in `levels` arrays.
pub fn nested_value(levels: usize) -> AnyValue {
    let mut value = AnyValue { value: Some(Value::IntValue(1)) };
    for _ in 0..levels {
        value = AnyValue { value: Some(Value::ArrayValue(ArrayValue { values: vec![value] })) };
    }
    value
}

/// Strings as telemetry has them, and those that break naive code: empty, quotes, control
/// characters, all of Unicode.
pub(super) fn text() -> BoxedStrategy<String> {
    prop_oneof![
        2 => Just(String::new()),
        4 => "[a-z][a-z._]{0,11}",
        1 => "[\"\\\\/\u{0}-\u{1f}\u{7f}\u{2028}é€😀]{1,6}",
        1 => any::<String>(),
        1 => "[a-z]{130,140}",
    ]
    .boxed()
}

/// A double, now and then one of the special ones.
pub(super) fn double() -> BoxedStrategy<f64> {
    prop_oneof![
        4 => any::<f64>(),
        2 => (-1_000_000i32..1_000_000).prop_map(|value| f64::from(value) / 8.0),
        1 => prop::sample::select(vec![
            0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE,
        ]),
    ]
    .boxed()
}

pub(super) fn counter() -> BoxedStrategy<u64> {
    prop_oneof![Just(0), 0..1000u64, any::<u64>()].boxed()
}

pub(super) fn small() -> BoxedStrategy<u32> {
    prop_oneof![3 => Just(0), 1 => 0..1000u32, 1 => any::<u32>()].boxed()
}

/// An enum value: mostly a known one, but proto3 enums are open.
pub(super) fn open_enum(known: i32) -> BoxedStrategy<i32> {
    prop_oneof![6 => 0..known, 1 => any::<i32>()].boxed()
}

/// An id of `len` bytes, or none.
pub(super) fn id(shape: Shape, len: usize) -> BoxedStrategy<Vec<u8>> {
    let proper = prop_oneof![1 => Just(Vec::new()), 5 => vec(any::<u8>(), len)];
    if shape.odd_ids {
        prop_oneof![6 => proper, 1 => vec(any::<u8>(), 0..40)].boxed()
    } else {
        proper.boxed()
    }
}

pub(super) fn any_value(shape: Shape) -> BoxedStrategy<AnyValue> {
    let leaf = prop_oneof![
        4 => text().prop_map(Value::StringValue),
        1 => any::<bool>().prop_map(Value::BoolValue),
        2 => any::<i64>().prop_map(Value::IntValue),
        1 => double().prop_map(Value::DoubleValue),
        1 => vec(any::<u8>(), 0..20).prop_map(Value::BytesValue),
        1 => string_table_index(shape).prop_map(Value::StringValueStrindex),
    ]
    .prop_map(move |value| match value {
        Value::StringValueStrindex(_) if !shape.string_table => AnyValue { value: None },
        value => AnyValue { value: Some(value) },
    });
    leaf.prop_recursive(4, 12, 3, move |inner| {
        let list =
            vec(inner.clone(), 0..3).prop_map(|values| Value::ArrayValue(ArrayValue { values }));
        let map = vec(key_value(shape, text(), inner), 0..3)
            .prop_map(|values| Value::KvlistValue(KeyValueList { values }));
        prop_oneof![list, map].prop_map(|value| AnyValue { value: Some(value) })
    })
    .boxed()
}

fn string_table_index(shape: Shape) -> BoxedStrategy<i32> {
    if shape.string_table {
        prop_oneof![4 => Just(0), 1 => any::<i32>()].boxed()
    } else {
        Just(0).boxed()
    }
}

fn key_value(
    shape: Shape,
    key: BoxedStrategy<String>,
    value: impl Strategy<Value = AnyValue> + 'static,
) -> impl Strategy<Value = KeyValue> {
    (key, option::weighted(0.9, value), string_table_index(shape))
        .prop_map(|(key, value, key_strindex)| KeyValue { key, value, key_strindex })
}

pub(super) fn attributes(shape: Shape) -> BoxedStrategy<Vec<KeyValue>> {
    let key = if shape.duplicate_keys { prop_oneof!["[ab]", text()].boxed() } else { text() };
    vec(key_value(shape, key, any_value(shape)), 0..4)
        .prop_map(move |mut attributes| {
            if !shape.duplicate_keys {
                let mut seen = std::collections::HashSet::new();
                attributes.retain(|attribute| seen.insert(attribute.key.clone()));
            }
            attributes
        })
        .boxed()
}

pub(super) fn resource(shape: Shape) -> BoxedStrategy<Option<Resource>> {
    let entity_ref = (text(), text(), vec(text(), 0..3), vec(text(), 0..2)).prop_map(
        |(schema_url, r#type, id_keys, description_keys)| EntityRef {
            schema_url,
            r#type,
            id_keys,
            description_keys,
        },
    );
    let resource = (attributes(shape), small(), vec(entity_ref, 0..2)).prop_map(
        |(attributes, dropped_attributes_count, entity_refs)| Resource {
            attributes,
            dropped_attributes_count,
            entity_refs,
        },
    );
    option::weighted(0.85, resource).boxed()
}

pub(super) fn scope(shape: Shape) -> BoxedStrategy<Option<InstrumentationScope>> {
    let scope = (text(), text(), attributes(shape), small()).prop_map(
        |(name, version, attributes, dropped_attributes_count)| InstrumentationScope {
            name,
            version,
            attributes,
            dropped_attributes_count,
        },
    );
    option::weighted(0.85, scope).boxed()
}
