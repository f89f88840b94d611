//! `resource` and `attributes` against decoding, editing and encoding with the official generated
//! types.

#[path = "../../otlp/tests/support/mod.rs"]
mod support;

mod model;

use bytes::Bytes;
use proptest::prelude::*;
use sluice_config::read_text;
use sluice_flow::Metadata;
use sluice_otlp::{Signal, scan};
use sluice_processors::{Built, PROCESSORS, ProcessorConfig};
use support::decoded::{Decoded, unknown_fields};
use support::generate::{Shape, any_request};

const PROPER: Shape = Shape { odd_ids: false, ..Shape::ANY };

fn metadata() -> Metadata {
    Metadata {
        peer: Some("10.1.2.3:99".to_owned()),
        headers: vec![("tenant".to_owned(), b"blue".to_vec())],
    }
}

fn build(kind: &str, yaml: &str, signal: Signal) -> Built {
    let (settings, diagnostics) =
        read_text("processors.test", yaml, |fields| PROCESSORS.read(kind, fields));
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let Some(ProcessorConfig::Edits(build)) = settings else { panic!("{kind} edits") };
    build(signal).unwrap()
}

/// Runs a processor; answers the request after it, and whether it was changed.
fn process(kind: &str, yaml: &str, signal: Signal, request: &Bytes) -> (Bytes, bool) {
    let built = build(kind, yaml, signal);
    let edited = built.processor.process(signal, request, &metadata(), usize::MAX);
    match edited.unwrap().expect("is without limit") {
        None => (request.clone(), false),
        Some(edited) => {
            let items = scan(signal, &edited);
            assert_eq!(items, scan(signal, request), "a valid request comes out");
            (edited, true)
        }
    }
}

fn check(kind: &str, actions: &[model::Action], signal: Signal, request: Vec<u8>) {
    let request = Bytes::from(request);
    let option = if kind == "resource" { "attributes" } else { "actions" };
    let yaml = format!(
        "{option}: [{}]",
        actions.iter().map(model::Action::yaml).collect::<Vec<_>>().join(", ")
    );
    let (edited, changed) = process(kind, &yaml, signal, &request);

    let before = Decoded::decode(signal, &request).unwrap();
    let mut expected = before.clone();
    let mut edit =
        |attributes: &mut Vec<_>| actions.iter().for_each(|action| action.apply(attributes));
    match kind {
        "resource" => model::resources(&mut expected, &mut edit),
        _ => model::items(&mut expected, &mut edit),
    }
    let actual = Decoded::decode(signal, &edited).unwrap();
    assert_eq!(model::normalised(&actual), model::normalised(&expected), "{yaml}");
    if !changed {
        assert_eq!(
            model::normalised(&expected),
            model::normalised(&before),
            "a change was missed: {yaml}"
        );
    }
    let removes = actions.iter().any(model::Action::removes);
    for (field, count) in unknown_fields(signal, &request) {
        // An attribute that is replaced or removed takes its unknown fields along.
        if !removes && !field.0.contains("attributes") {
            assert_eq!(
                unknown_fields(signal, &edited).get(&field),
                Some(&count),
                "{field:?} was lost: {yaml}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Any actions on any items, in any wire form.
    #[test]
    fn attributes_equals_decode_edit_encode(
        (signal, request) in any_request(PROPER),
        actions in prop::collection::vec(model::action(), 1..4),
    ) {
        check("attributes", &actions, signal, request);
    }

    /// Any actions on any resources, in any wire form.
    #[test]
    fn resource_equals_decode_edit_encode(
        (signal, request) in any_request(PROPER),
        actions in prop::collection::vec(model::action(), 1..4),
    ) {
        check("resource", &actions, signal, request);
    }

    /// Any metrics, in any wire form, come out valid; a second time as well.
    #[test]
    fn conversions_of_any_points_are_valid((signal, request) in any_request(PROPER)) {
        let request = Bytes::from(request);
        for kind in ["cumulative_to_delta", "delta_to_cumulative", "interval"] {
            if signal != Signal::Metrics {
                continue;
            }
            let built = build(kind, "{}", signal);
            for _ in 0..2 {
                let edited = built.processor.process(signal, &request, &metadata(), usize::MAX);
                if let Some(edited) = edited.unwrap().expect("is without limit") {
                    let items = scan(signal, &edited).expect("is valid");
                    prop_assert!(items <= scan(signal, &request).unwrap());
                    Decoded::decode(signal, &edited).unwrap();
                }
            }
            for len in 0..request.len() {
                let part = request.slice(..len);
                let _ = built.processor.process(signal, &part, &metadata(), usize::MAX);
            }
        }
    }

    /// A request that is cut short anywhere is refused or edited, never a panic.
    #[test]
    fn truncated_requests_do_not_panic((signal, request) in any_request(Shape::ANY)) {
        let request = Bytes::from(request);
        let actions = "[{key: a, action: upsert, value: x}, {key: b, action: hash}]";
        for (kind, option) in [("resource", "attributes"), ("attributes", "actions")] {
            let built = build(kind, &format!("{option}: {actions}"), signal);
            for len in 0..request.len() {
                let part = request.slice(..len);
                let _ = built.processor.process(signal, &part, &metadata(), usize::MAX);
            }
        }
    }
}
