//! Checks the judges themselves: a rewritten request is the same request, and the rewrites happen.

mod support;

use proptest::prelude::*;
use sluice_otlp::Signal;

use support::decoded::{Decoded, assert_equivalent, unknown_fields};
use support::generate::{Shape, nested_value, request, signal};
use support::rewrite::{Freedoms, rewrite};

fn encoded() -> impl Strategy<Value = (Signal, Vec<u8>)> {
    signal().prop_flat_map(|signal| (Just(signal), request(signal, Shape::ANY)))
}

proptest! {
    #[test]
    fn a_rewritten_request_means_what_the_original_means(
        (signal, original) in encoded(),
        seed: u64,
    ) {
        assert_equivalent(signal, &original, &rewrite(signal, &original, Freedoms::ALL, seed));
    }

    #[test]
    fn a_rewrite_without_freedoms_changes_no_byte((signal, original) in encoded(), seed: u64) {
        prop_assert_eq!(&rewrite(signal, &original, Freedoms::NONE, seed), &original);
        prop_assert!(unknown_fields(signal, &original).is_empty(), "the schema knows every field");
    }
}

/// Each freedom alone has to change a request that offers the occasion, or a property that relies
/// on it tests nothing.
#[test]
fn every_freedom_is_used() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let none = Freedoms::NONE;
    let freedoms = [
        ("order", Freedoms { order: true, ..none }),
        ("packing", Freedoms { packing: true, ..none }),
        ("long_varints", Freedoms { long_varints: true, ..none }),
        ("split_messages", Freedoms { split_messages: true, ..none }),
        ("unknown_fields", Freedoms { unknown_fields: true, ..none }),
        ("superseded", Freedoms { superseded: true, ..none }),
    ];
    let requests: Vec<Vec<u8>> = (0..200)
        .map(|_| {
            request(Signal::Metrics, Shape::ANY).new_tree(&mut runner).expect("a request").current()
        })
        .collect();
    for (name, freedoms) in freedoms {
        let changed = requests
            .iter()
            .filter(|original| rewrite(Signal::Metrics, original, freedoms, 7) != **original)
            .count();
        assert!(changed >= 20, "{name} changed {changed} of 200 requests");
    }
    let unknown: Vec<_> = requests
        .iter()
        .map(|original| {
            unknown_fields(Signal::Metrics, &rewrite(Signal::Metrics, original, Freedoms::ALL, 7))
        })
        .collect();
    let with_unknown = unknown.iter().filter(|fields| !fields.is_empty()).count();
    assert!(with_unknown >= 100, "{with_unknown} of 200 requests got unknown fields");
    let with_groups = unknown
        .iter()
        .filter(|fields| fields.keys().any(|(_, field)| field.wire_type == 3))
        .count();
    assert!(with_groups >= 20, "{with_groups} of 200 requests got unknown groups");
}

/// Nesting that the official types decode at most: a log body of 48 arrays (resource, scope,
/// record, body, then two messages a level; the generated decoder stops below 100 messages).
#[test]
fn the_official_types_decode_bodies_of_48_nested_arrays_and_no_more() {
    let decodes = |levels| Decoded::decode(Signal::Logs, &log_with_body(levels)).is_ok();
    assert!(decodes(48));
    assert!(!decodes(49));
}

fn log_with_body(levels: usize) -> Vec<u8> {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    let record = LogRecord { body: Some(nested_value(levels)), ..Default::default() };
    let scope_logs = vec![ScopeLogs { log_records: vec![record], ..Default::default() }];
    let resource_logs = vec![ResourceLogs { scope_logs, ..Default::default() }];
    Decoded::Logs(ExportLogsServiceRequest { resource_logs }).encode()
}
