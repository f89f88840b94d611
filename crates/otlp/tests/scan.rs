//! `scan` against the official generated types.

mod support;

use proptest::prelude::*;
use sluice_otlp::{NESTING_LIMIT, Signal, scan};
use support::decoded::Decoded;
use support::generate::{Shape, any_request, nested_value};

const PROPER: Shape = Shape { odd_ids: false, ..Shape::ANY };

proptest! {
    /// Every legal wire form of every request is accepted, and counted as the generated types
    /// count.
    #[test]
    fn legal_requests_are_accepted_and_counted((signal, request) in any_request(PROPER)) {
        let decoded = Decoded::decode(signal, &request).unwrap();
        let found = scan(signal, &request).map(|items| items as usize);
        prop_assert_eq!(found, Ok(decoded.items()));
    }

    /// A request cut short anywhere: an accepted one decodes, and to the same count; one that does
    /// not decode is refused. (The only thing refused beyond that is an id of the wrong length,
    /// which cutting does not make.)
    #[test]
    fn truncations_are_refused_or_read_alike((signal, request) in any_request(PROPER)) {
        for len in 0..request.len() {
            let cut = &request[..len];
            let expected = Decoded::decode(signal, cut).ok().map(|decoded| decoded.items());
            let found = scan(signal, cut).ok().map(|items| items as usize);
            prop_assert_eq!(found, expected, "cut at {}", len);
        }
    }

    /// Requests with bytes changed at random: no request is accepted that the generated types
    /// cannot decode, and every accepted one is counted alike. One that is refused although it
    /// decodes has an id of the wrong length, or a group.
    #[test]
    fn damaged_requests_are_never_accepted_wrongly(
        (signal, mut request) in any_request(Shape::ANY),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for (index, byte) in damage {
            if !request.is_empty() {
                let index = index.index(request.len());
                request[index] = byte;
            }
        }
        match (scan(signal, &request), Decoded::decode(signal, &request)) {
            (Ok(items), decoded) => {
                prop_assert_eq!(items as usize, decoded.unwrap().items());
            }
            (Err(error), Ok(_)) => prop_assert!(
                error.reason.contains(" id is neither empty nor") || error.reason.contains("group"),
                "{}", error
            ),
            (Err(_), Err(_)) => {}
        }
    }
}

/// Random bytes never panic, and accepted ones decode.
#[test]
fn noise_is_read_like_the_generated_types_read_it() {
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    proptest!(|(signal in support::generate::signal(), noise in bytes)| {
        if let Ok(items) = scan(signal, &noise) {
            let decoded = Decoded::decode(signal, &noise).unwrap();
            prop_assert_eq!(decoded.items(), items as usize);
        }
    });
}

fn log_request(value: opentelemetry_proto::tonic::common::v1::AnyValue) -> Vec<u8> {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use prost::Message as _;
    let record = LogRecord { body: Some(value), ..LogRecord::default() };
    let scope = ScopeLogs { log_records: vec![record], ..ScopeLogs::default() };
    let resource = ResourceLogs { scope_logs: vec![scope], ..ResourceLogs::default() };
    ExportLogsServiceRequest { resource_logs: vec![resource] }.encode_to_vec()
}

/// Values nest to the limit and not deeper, and the limit is one that prost decodes.
#[test]
fn nesting_is_bounded_where_others_still_decode() {
    // Request, resource, scope, record, body: four levels below the request; each array adds two.
    let deepest = (NESTING_LIMIT - 4) / 2;
    let accepted = log_request(nested_value(deepest));
    assert_eq!(scan(Signal::Logs, &accepted), Ok(1));
    Decoded::decode(Signal::Logs, &accepted).unwrap();
    let refused = scan(Signal::Logs, &log_request(nested_value(deepest + 1))).unwrap_err();
    assert!(refused.reason.contains("nest"), "{refused}");
    assert!(deepest >= 47, "as deep as the official decoders");
}

/// A request of a million levels is refused without recursing into it.
#[test]
fn a_depth_bomb_is_refused() {
    let mut bomb = Vec::new();
    for _ in 0..1_000_000 {
        // Written inside out: each level is one length-delimited field; the lengths lie, but the
        // depth is met first.
        bomb.extend_from_slice(&[0x2a, 0xff, 0xff, 0xff, 0x07]);
    }
    assert!(scan(Signal::Logs, &bomb).is_err());
    let nested = log_request(nested_value(20_000));
    assert!(scan(Signal::Logs, &nested).unwrap_err().reason.contains("nest"));
}

/// Ids of the wrong length and strings that are not UTF-8 are refused, as the Collector and prost
/// refuse them.
#[test]
fn ids_and_strings_are_checked() {
    let span = |field: &[u8]| -> Vec<u8> {
        let wrap = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        wrap(0x0a, &wrap(0x12, &wrap(0x12, field)))
    };
    assert_eq!(scan(Signal::Traces, &span(&[0x0a, 0])), Ok(1));
    assert_eq!(scan(Signal::Traces, &span(&[0x12, 8, 1, 2, 3, 4, 5, 6, 7, 0xff])), Ok(1));
    let error = scan(Signal::Traces, &span(&[0x12, 3, 1, 2, 3])).unwrap_err();
    assert_eq!((error.offset, error.reason), (6, "a span id is neither empty nor 8 bytes long"));
    let error = scan(Signal::Traces, &span(&[0x2a, 2, 0xc3, 0x28])).unwrap_err();
    assert_eq!((error.offset, error.reason), (8, "a string is not valid UTF-8"));
    // An attribute in the shape of the fast path, but not in ASCII and not in UTF-8.
    let attribute = [0x4a, 10, 0x0a, 1, b'k', 0x12, 5, 0x0a, 3, b'a', 0xff, b'b'];
    assert_eq!(
        scan(Signal::Traces, &span(&attribute)).unwrap_err().reason,
        "a string is not valid UTF-8"
    );
    let attribute = [0x4a, 10, 0x0a, 1, b'k', 0x12, 5, 0x0a, 3, b'a', 0xc3, 0xa9];
    assert_eq!(scan(Signal::Traces, &span(&attribute)), Ok(1));
}
