//! `split` against the official generated types: the parts, decoded, are the request, decoded.

mod support;

use bytes::Bytes;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data};
use proptest::prelude::*;
use prost::Message;
use sluice_otlp::{Part, PartRef, Parts, Signal, SplitLimits, parts, scan, split};
use support::decoded::{Decoded, unknown_fields};
use support::generate::{Shape, any_request};

/// An item with everything around it, encoded: it must come out of the parts again, in order.
/// Elements without items show with the item empty.
type Placed = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

/// `Message::encode_to_vec` of a message without its children.
fn header<M: Message + Clone>(message: &M, clear: impl FnOnce(&mut M)) -> Vec<u8> {
    let mut header = message.clone();
    clear(&mut header);
    header.encode_to_vec()
}

fn points(metric: &Metric) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut header = metric.clone();
    macro_rules! take {
        ($($variant:ident),*) => {
            match &mut header.data {
                $(Some(Data::$variant(data)) => {
                    let points = std::mem::take(&mut data.data_points);
                    points.iter().map(Message::encode_to_vec).collect()
                })*
                None => Vec::new(),
            }
        };
    }
    let points = take!(Gauge, Sum, Histogram, ExponentialHistogram, Summary);
    (header.encode_to_vec(), points)
}

fn placed(decoded: &Decoded) -> Vec<Placed> {
    let mut all = Vec::new();
    macro_rules! walk {
        ($resources:expr, $scopes:ident, $entries:ident, $each:expr) => {
            for resource in $resources {
                let resource_header = header(resource, |resource| resource.$scopes.clear());
                if resource.$scopes.is_empty() {
                    all.push((resource_header.clone(), vec![], vec![], vec![]));
                }
                for scope in &resource.$scopes {
                    let scope_header = header(scope, |scope| scope.$entries.clear());
                    if scope.$entries.is_empty() {
                        all.push((resource_header.clone(), scope_header.clone(), vec![], vec![]));
                    }
                    for entry in &scope.$entries {
                        let (entry_header, items): (Vec<u8>, Vec<Vec<u8>>) = $each(entry);
                        if items.is_empty() {
                            all.push((
                                resource_header.clone(),
                                scope_header.clone(),
                                entry_header.clone(),
                                vec![],
                            ));
                        }
                        for item in items {
                            all.push((
                                resource_header.clone(),
                                scope_header.clone(),
                                entry_header.clone(),
                                item,
                            ));
                        }
                    }
                }
            }
        };
    }
    match decoded {
        Decoded::Traces(request) => {
            walk!(&request.resource_spans, scope_spans, spans, |span: &_| (
                vec![],
                vec![Message::encode_to_vec(span)]
            ));
        }
        Decoded::Logs(request) => {
            walk!(&request.resource_logs, scope_logs, log_records, |log: &_| (
                vec![],
                vec![Message::encode_to_vec(log)]
            ));
        }
        Decoded::Metrics(request) => {
            walk!(&request.resource_metrics, scope_metrics, metrics, points)
        }
    }
    all
}

/// Checks all that is promised of the parts of a request.
fn check(signal: Signal, request: &Bytes, limits: SplitLimits, parts: &[Part]) {
    let mut together = Vec::new();
    for part in parts {
        let decoded = Decoded::decode(signal, &part.bytes).expect("every part decodes");
        assert_eq!(scan(signal, &part.bytes), Ok(part.items));
        assert_eq!(decoded.items(), part.items as usize);
        let pieces = placed(&decoded);
        assert!(part.items as usize <= limits.max_items.max(1), "{} items", part.items);
        assert!(
            part.bytes.len() <= limits.max_bytes || pieces.len() <= 1 || part.items == 0,
            "{} bytes",
            part.bytes.len()
        );
        together.extend(pieces);
    }
    let whole = Decoded::decode(signal, request).unwrap();
    assert_eq!(together, placed(&whole), "the parts do not hold what the request held");
}

/// Halves a part again and again. Each time its request's bytes go and come back.
fn halve(request: &Bytes, part: &PartRef, items: &mut Vec<Part>) {
    let sizes = part.sizes;
    let bytes = part.bytes();
    assert_eq!(bytes.len(), sizes.len_bytes);
    let detached = part.detached();
    assert!(request.is_empty() || detached.attached(&request.slice(1..)).is_err());
    let part = detached.attached(request).expect("is its request");
    assert_eq!((part.sizes, part.bytes()), (sizes, bytes.clone()));
    if sizes.items <= 1 {
        return items.push(Part { bytes, items: sizes.items });
    }
    let max_items = (sizes.items as usize).div_ceil(2);
    let halves = part.parts(SplitLimits { max_items, max_bytes: usize::MAX });
    let halves: Vec<_> = halves.map(|half| half.unwrap()).collect();
    assert_eq!(halves.iter().map(|half| half.sizes.items).sum::<u32>(), sizes.items);
    halves.iter().for_each(|half| halve(request, half, items));
}

proptest! {
    /// Any limits on any request: the parts contain the same items under the same headers in the
    /// same order, within the limits.
    #[test]
    fn parts_are_the_request(
        (signal, request) in any_request(Shape::ANY),
        max_bytes in prop_oneof![0usize..2000, Just(usize::MAX)],
        max_items in prop_oneof![0usize..10, Just(usize::MAX)],
    ) {
        let request = Bytes::from(request);
        let limits = SplitLimits { max_bytes, max_items };
        // Ids of any length are the receiver's affair: `split` does not look into items.
        if scan(signal, &request).is_ok() {
            let parts = split(signal, &request, limits).unwrap();
            check(signal, &request, limits, &parts);
        }
    }

    /// Parts that are halved again and again, down to single items, as a refused request is: the
    /// same items under the same headers, and each part is as long as it said, also if the
    /// request's bytes are gone in between.
    #[test]
    fn parts_of_parts_are_the_request(
        (signal, request) in any_request(Shape::ANY),
        max_bytes in prop_oneof![0usize..2000, Just(usize::MAX)],
    ) {
        let request = Bytes::from(request);
        let limits = SplitLimits { max_bytes, max_items: usize::MAX };
        if scan(signal, &request).is_ok() {
            let mut items = Vec::new();
            let mut parts = parts(signal, &request, limits).unwrap();
            while let Some(part) = parts.next() {
                halve(&request, &part.unwrap(), &mut items);
                let detached = parts.detached();
                prop_assert_eq!(detached.is_over(), parts.is_over());
                parts = detached.attached(&request).unwrap();
            }
            let limits = SplitLimits { max_bytes: usize::MAX, max_items: 1 };
            check(signal, &request, limits, &items);
        }
    }

    /// No unknown field is lost, wherever it stands; those of headers are in every part that
    /// repeats the header.
    #[test]
    fn unknown_fields_are_carried(
        (signal, request) in any_request(Shape::PLAIN),
        max_items in 1usize..4,
    ) {
        let request = Bytes::from(request);
        let limits = SplitLimits { max_bytes: usize::MAX, max_items };
        let parts = split(signal, &request, limits).unwrap();
        let mut found = std::collections::BTreeMap::new();
        for part in &parts {
            for (field, count) in unknown_fields(signal, &part.bytes) {
                *found.entry(field).or_insert(0) += count;
            }
        }
        for (field, count) in unknown_fields(signal, &request) {
            let is_there = found.get(&field).is_some_and(|found| *found >= count);
            prop_assert!(is_there, "{:?} is lost", field);
        }
    }

    /// Truncated requests are refused or cut, never a panic.
    #[test]
    fn truncated_requests_do_not_panic(
        (signal, request) in any_request(Shape::ANY),
        max_bytes in 0usize..200,
    ) {
        let request = Bytes::from(request);
        for len in 0..request.len() {
            let _ = split(signal, &request.slice(..len), SplitLimits { max_bytes, max_items: 2 });
        }
    }

    /// The concatenation of two requests is the merged request.
    #[test]
    fn concatenation_merges(
        (signal, first, second) in support::generate::signal().prop_flat_map(|signal| (
            Just(signal),
            support::generate::wire_request(signal, Shape::ANY, support::rewrite::Freedoms::ALL),
            support::generate::wire_request(signal, Shape::ANY, support::rewrite::Freedoms::ALL),
        )),
    ) {
        let merged = Decoded::decode(signal, &[first.clone(), second.clone()].concat()).unwrap();
        let mut expected = placed(&Decoded::decode(signal, &first).unwrap());
        expected.extend(placed(&Decoded::decode(signal, &second).unwrap()));
        prop_assert_eq!(placed(&merged), expected);
    }
}

/// Cuts at the top level copy nothing: such parts point into the request.
#[test]
fn top_level_cuts_are_slices() {
    let resource = [0x0a, 6, 0x12, 4, 0x12, 2, 0x2a, 0];
    let request = Bytes::from(resource.repeat(10));
    let parts =
        split(Signal::Traces, &request, SplitLimits { max_bytes: usize::MAX, max_items: 3 })
            .unwrap();
    assert_eq!(parts.iter().map(|part| part.items).collect::<Vec<_>>(), [3, 3, 3, 1]);
    for (index, part) in parts.iter().enumerate() {
        assert_eq!(
            part.bytes.as_ptr(),
            request[index * 3 * resource.len()..].as_ptr(),
            "part {index} was copied"
        );
    }
}

/// Parts that share a header copy it once, also when they are cut again.
#[test]
fn headers_are_copied_once() {
    let resource = [&[0x0a, 100, 0x0a, 90][..], &[0xff; 90], &[0x12, 6, 0x12, 0, 0x12, 0, 0x12, 0]];
    let request = Bytes::from(resource.concat());
    let one = SplitLimits { max_bytes: usize::MAX, max_items: 1 };
    let copied = |parts: Parts| parts.map(|part| part.unwrap().sizes.copied_bytes).sum::<usize>();
    let cut = || parts(Signal::Logs, &request, one).unwrap();
    assert_eq!(copied(cut()), 92);
    for part in cut() {
        assert_eq!(copied(part.unwrap().parts(one)), 0);
    }
}

/// Scenario: behind each record is a field of their scope. Guarantee: each part has all of these
/// fields, and then its records, in order.
#[test]
fn parts_of_scattered_records() {
    let record = |it: u8| [0x12, 2, 0x38, it];
    let field = |it: u8| [0x52, 1, it];
    // Of 128 to 255 bytes.
    let message = |tag: u8, content: &[u8]| [&[tag, content.len() as u8, 1], content].concat();
    let request = |scope: &[u8]| message(0x0a, &message(0x12, scope));
    let scope: Vec<u8> = (0..30).flat_map(|it| [&record(it)[..], &field(it)].concat()).collect();
    let limits = SplitLimits { max_bytes: usize::MAX, max_items: 20 };
    let parts = split(Signal::Logs, &Bytes::from(request(&scope)), limits).unwrap();
    let fields: Vec<u8> = (0..30).flat_map(field).collect();
    for (part, range) in parts.iter().zip([0..20, 20..30]) {
        let records: Vec<u8> = range.flat_map(record).collect();
        assert_eq!(part.bytes, request(&[&fields[..], &records].concat()));
    }
    assert_eq!(parts.len(), 2);
}

/// A request within the limits comes back as it is; an empty request is one empty part.
#[test]
fn requests_within_limits_stay_whole() {
    let none = SplitLimits { max_bytes: usize::MAX, max_items: usize::MAX };
    let request = Bytes::from_static(&[0x0a, 6, 0x12, 4, 0x12, 2, 0x2a, 0]);
    let parts = split(Signal::Traces, &request, none).unwrap();
    assert_eq!(parts, [Part { bytes: request.clone(), items: 1 }]);
    assert_eq!(parts[0].bytes.as_ptr(), request.as_ptr());
    let empty =
        split(Signal::Logs, &Bytes::new(), SplitLimits { max_bytes: 0, max_items: 0 }).unwrap();
    assert_eq!(empty, [Part { bytes: Bytes::new(), items: 0 }]);
}

/// One resource or scope: its header, then this many empty elements with the tag 0x12.
fn element(header_bytes: usize, elements: usize) -> Vec<u8> {
    let mut content = vec![0x0a];
    prost::encoding::encode_varint(header_bytes as u64, &mut content);
    content.resize(content.len() + header_bytes, 0xff);
    (0..elements).for_each(|_| content.extend([0x12, 0]));
    content
}

fn message(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    prost::encoding::encode_varint(content.len() as u64, &mut message);
    message.extend(content);
    message
}

/// A resource with a header of this length, and one scope with this many empty records.
fn resource_of(header_bytes: usize, records: usize) -> Vec<u8> {
    let scope = message(0x12, &element(0, records));
    message(0x0a, &[element(header_bytes, 0), scope].concat())
}

const MIB: usize = 1 << 20;

/// Scenario: 100,000 empty records or scopes, the header of whose resource is about as long as a
/// part may be, or longer; another resource follows. Guarantee: the parts are few and together not
/// many times the request; nothing is lost, and the other resource has a part of its own.
#[test]
fn a_long_header_is_not_repeated_for_each_element() {
    for (header_bytes, max_bytes) in [(MIB - 100, MIB), (3 * MIB, MIB), (10 * MIB, 4 * MIB)] {
        let records = resource_of(header_bytes, 100_000);
        let scopes = message(0x0a, &element(header_bytes, 100_000));
        for (kind, long) in [("records", records), ("scopes", scopes)] {
            let case = format!("{kind}, {header_bytes} of {max_bytes}");
            let request = Bytes::from([long, resource_of(10, 3)].concat());
            let limits = SplitLimits { max_bytes, max_items: usize::MAX };
            let parts = split(Signal::Logs, &request, limits).expect("a request");
            let whole_bytes: usize = parts.iter().map(|part| part.bytes.len()).sum();
            assert!(
                parts.len() <= 4 && whole_bytes <= 4 * request.len(),
                "{case}: {}",
                parts.len()
            );
            let items: u32 = parts.iter().map(|part| part.items).sum();
            assert_eq!(items, if kind == "records" { 100_003 } else { 3 }, "{case}");
            assert_eq!(parts.last().map(|it| it.bytes.len()), Some(resource_of(10, 3).len()));
        }
    }
}

/// Scenario: parts of records whose resource has a header of 3 MiB or less. Guarantee: it is
/// dominant where it is nearly all of a part and would be repeated much; other items are in no part
/// with it, unless it is short.
#[test]
fn a_header_that_is_nearly_all_of_a_part_is_known() {
    let dominant = |request: Vec<u8>, max_items| -> Vec<(u32, bool)> {
        let limits = SplitLimits { max_bytes: usize::MAX, max_items };
        let parts = parts(Signal::Logs, &request.into(), limits).expect("a request");
        let facts = |part: PartRef| (part.sizes.items, part.dominant_header_bytes().is_some());
        parts.map(|part| facts(part.expect("a part"))).collect()
    };
    let long = || resource_of(3 * MIB, 500_000);
    assert_eq!(dominant(long(), 250_000), [(250_000, false); 2], "six sevenths");
    assert_eq!(dominant(long(), 125_000), [(125_000, true); 4]);
    let two = [resource_of(3 * MIB, 20), resource_of(10, 5)].concat();
    let short = [resource_of(60_000, 900), resource_of(10, 5)].concat();
    let expected = [(305, true), (305, true), (295, false)];
    assert_eq!(dominant(short, 305), expected, "a part of two resources");
    assert_eq!(dominant(two.clone(), 13), [(13, true), (7, true), (5, false)], "two resources");
    assert_eq!(dominant(two, 10), [(10, true), (10, true), (5, false)]);
    assert_eq!(dominant(resource_of(1000, 1000), 50), [(50, false); 20], "not repeated much");
    assert_eq!(dominant(resource_of(3 * MIB, 2), 1), [(1, false); 2], "single items");
}
