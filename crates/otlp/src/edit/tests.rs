use bytes::Bytes;

use super::attributes::ATTRIBUTES_LIMIT;
use super::*;
use crate::wire::OCCURRENCES_LIMIT;
use crate::{AnyValue, scan};

fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    crate::wire::write_len_field(&mut out, number, content);
    out
}

/// Adds an attribute of 3 + 2 + `len` bytes to every resource.
fn add(len: usize) -> impl FnMut(&mut Attributes<'_>) {
    move |attributes| {
        let value = AnyValue::String("x".repeat(len)).encoded();
        attributes.add(b"k", NewValue::Encoded(&value));
    }
}

/// Lengths around a change are rewritten in as many bytes as they need, wherever they grow beyond a
/// width.
#[test]
fn lengths_grow_with_their_content() {
    for before in [0, 1, 100, 120, 127, 128, 16_370, 16_383, 16_384] {
        for added in [0, 1, 5, 60, 130, 16_400] {
            let attribute = field(
                1,
                &[field(1, b"a"), field(2, &field(1, "v".repeat(before).as_bytes()))].concat(),
            );
            let request = Bytes::from(field(1, &field(1, &attribute)));
            let edited = edit_resources(&request, add(added)).unwrap().unwrap();
            assert!(scan(Signal::Traces, &edited).is_ok(), "{before} {added}");
            let mut seen = Vec::new();
            let look = |attributes: &mut Attributes<'_>| {
                seen.extend(
                    attributes
                        .keys()
                        .map(|(index, key)| (key.to_vec(), attributes.value(index).to_owned())),
                );
            };
            assert_eq!(edit_resources(&edited, look).unwrap(), None);
            let text = |len, letter: &str| AnyValue::String(letter.repeat(len));
            assert_eq!(
                seen,
                [(b"a".to_vec(), text(before, "v")), (b"k".to_vec(), text(added, "x"))]
            );
        }
    }
}

/// A resource in several pieces is one: attributes of all pieces are seen, and added ones go behind
/// the last one.
#[test]
fn a_resource_in_pieces_is_one() {
    let attribute = |key: &[u8]| field(1, &field(1, key));
    let pieces =
        [field(1, &attribute(b"a")), field(3, b"schema"), field(1, &attribute(b"b"))].concat();
    let request = Bytes::from(field(1, &pieces));
    let mut keys = Vec::new();
    let edited = edit_resources(&request, |attributes| {
        keys.extend(attributes.keys().map(|(_, key)| key.to_vec()));
        attributes.remove(0);
        attributes.add(b"c", NewValue::Encoded(&[]));
    });
    assert_eq!(keys, [b"a", b"b"]);
    let added = field(1, &[field(1, b"c"), field(2, b"")].concat());
    let expected =
        [field(1, b""), field(3, b"schema"), field(1, &[attribute(b"b"), added].concat())].concat();
    assert_eq!(edited.unwrap().unwrap(), field(1, &expected));
}

/// Scenario: resources with a URL of a schema, with an empty one, with one before an empty one,
/// without, and nothing at all. Guarantee: those that have none get one, with and without an
/// attribute beside it; an empty one is none.
#[test]
fn a_resource_without_a_schema_gets_one() {
    let (has, empty, new) = (field(3, b"has"), field(3, b""), field(3, b"new"));
    let adds = |attributes: &mut Attributes<'_>| attributes.add(b"c", NewValue::Encoded(&[]));
    let added = field(1, &field(1, &[field(1, b"c"), field(2, b"")].concat()));
    for (content, gets) in [
        (has.clone(), false),
        (empty.clone(), true),
        ([has.clone(), empty].concat(), true),
        ([field(2, b""), has].concat(), false),
        (Vec::new(), true),
    ] {
        let request = Bytes::from(field(1, &content));
        let url: &[u8] = if gets { &new } else { &[] };
        let edited = edit_resources_and_schemas(&request, "new", usize::MAX, |_| {});
        let edited = edited.unwrap().unwrap();
        assert_eq!(edited.unwrap_or(request.clone()), field(1, &[&content[..], url].concat()));
        let edited = edit_resources_and_schemas(&request, "new", usize::MAX, adds);
        let expected = field(1, &[&content[..], &added, url].concat());
        assert_eq!(edited.unwrap().unwrap().unwrap(), expected);
        let unchanged = edit_resources_and_schemas(&request, "", usize::MAX, |_| {});
        assert_eq!(unchanged.unwrap().unwrap(), None);
    }
}

/// Attributes and pieces without number are refused before they fill the memory.
#[test]
fn memory_is_bounded() {
    let many_attributes = Bytes::from(field(1, &field(1, &[0x0a, 0].repeat(ATTRIBUTES_LIMIT + 1))));
    assert!(
        edit_resources(&many_attributes, |_| {})
            .unwrap_err()
            .reason
            .contains("too many attributes")
    );
    let many_pieces = Bytes::from(field(1, &[0x0a, 0].repeat(OCCURRENCES_LIMIT + 1)));
    assert!(edit_resources(&many_pieces, |_| {}).unwrap_err().reason.contains("too often"));
}
