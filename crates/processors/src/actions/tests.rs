use bytes::Bytes;
use sluice_config::read_text;
use sluice_flow::Metadata;
use sluice_otlp::{AnyValue, edit_resources};

use super::read;

/// A request with one resource, whose attributes are these.
fn request(attributes: &[(&str, AnyValue)]) -> Bytes {
    let field = |number: u8, content: &[u8]| {
        [&[number << 3 | 2, content.len() as u8][..], content].concat()
    };
    let attributes = attributes.iter().flat_map(|(key, value)| {
        field(1, &[field(1, key.as_bytes()), field(2, &value.encoded())].concat())
    });
    field(1, &field(1, &attributes.collect::<Vec<u8>>())).into()
}

/// Carries out actions and answers the resulting attributes; nothing if the request stayed as it
/// was.
fn run(actions: &str, attributes: &[(&str, AnyValue)]) -> Option<Vec<(String, AnyValue)>> {
    let (actions, diagnostics) =
        read_text("p", &format!("actions: {actions}"), |fields| read(fields, "actions", ""));
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let metadata = Metadata::default();
    let edited = edit_resources(&request(attributes), actions.prepare(&metadata)).unwrap()?;
    let mut found = Vec::new();
    let look = |attributes: &mut sluice_otlp::Attributes<'_>| {
        found = attributes
            .keys()
            .map(|(index, key)| {
                (String::from_utf8_lossy(key).into_owned(), attributes.value(index).to_owned())
            })
            .collect();
    };
    assert_eq!(edit_resources(&edited, look).unwrap(), None);
    Some(found)
}

fn text(text: &str) -> AnyValue {
    AnyValue::String(text.to_owned())
}

/// Each action sees the result of the one before.
#[test]
fn actions_follow_each_other() {
    let actions = "[{key: b, action: insert, from_attribute: a}, {key: a, action: delete},
        {key: c, action: upsert, from_attribute: b},
        {key: a, action: update, value: never}, {key: b, action: update, value: last}]";
    let found = run(actions, &[("a", text("first"))]).unwrap();
    assert_eq!(found, [("b".to_owned(), text("last")), ("c".to_owned(), text("first"))]);
}

/// Of several attributes with one key the first is meant; a pattern means all.
#[test]
fn duplicates_are_handled_like_the_collectors_map() {
    let twice = [("a", text("1")), ("b", text("2")), ("a", text("3"))];
    let found = run("[{key: a, action: delete}]", &twice).unwrap();
    assert_eq!(found, [("b".to_owned(), text("2")), ("a".to_owned(), text("3"))]);
    let found = run("[{key: a, action: upsert, value: x}]", &twice).unwrap();
    assert_eq!(found[0], ("a".to_owned(), text("x")));
    assert_eq!(found[2], ("a".to_owned(), text("3")));
    assert_eq!(
        run("[{pattern: ^a$, action: delete}]", &twice).unwrap(),
        [("b".to_owned(), text("2"))]
    );
}

/// The hash is SHA-256 in hexadecimal; a value that cannot be hashed becomes the empty string.
#[test]
fn hashes_are_sha256() {
    let found = run(
        "[{key: s, action: hash}, {pattern: '^[ibl]$', action: hash}]",
        &[
            ("s", text("abc")),
            ("i", AnyValue::Int(1)),
            ("b", AnyValue::Bool(true)),
            ("l", AnyValue::Array(vec![])),
        ],
    )
    .unwrap();
    let values: Vec<AnyValue> = found.into_iter().map(|(_, value)| value).collect();
    assert_eq!(values[0], text("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    assert_eq!(values[1], text("7c9fa136d4413fa6173637e883b6998d32e1d675f88cddff9dcbcf331820f4b8"));
    assert_eq!(values[2], text("4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a"));
    assert_eq!(values[3], text(""));
}

/// Values keep the type that they have in the configuration, nested ones too.
#[test]
fn values_have_the_types_of_the_configuration() {
    let found =
        run("[{key: a, action: insert, value: [1, 1.5, true, x, {k: v}, null]}]", &[]).unwrap();
    let map = AnyValue::Map(vec![("k".to_owned(), text("v"))]);
    let list = vec![
        AnyValue::Int(1),
        AnyValue::Double(1.5),
        AnyValue::Bool(true),
        text("x"),
        map,
        AnyValue::Empty,
    ];
    assert_eq!(found, [("a".to_owned(), AnyValue::Array(list))]);
}

/// If no action changes anything, the request is not copied.
#[test]
fn nothing_to_do_is_unchanged() {
    let actions =
        "[{key: a, action: upsert, value: same}, {key: a, action: insert, value: other}, {key: z, action: delete},
        {key: a, action: convert, converted_type: string},
        {key: n, action: convert, converted_type: int}]";
    assert_eq!(run(actions, &[("a", text("same")), ("n", text("none"))]), None);
}
