//! Names and labels on a page, whose reader may not take all characters.

use std::borrow::Cow;

use sluice_otlp::wire::Fields;

/// A name, and whether it needs quotes.
pub(super) fn shown(name: &str, escapes: bool) -> (Cow<'_, str>, bool) {
    match is_plain(name) {
        true => (Cow::Borrowed(name), false),
        false if escapes => (Cow::Owned(escaped(name)), false),
        false => (Cow::Borrowed(name), true),
    }
}

/// Whether every reader takes the name.
fn is_plain(name: &str) -> bool {
    let takes = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    name.bytes().all(takes) && name.starts_with(|first: char| !first.is_ascii_digit())
}

/// The scheme `underscores` of Prometheus.
fn escaped(name: &str) -> String {
    let takes = |(index, found): (usize, char)| match found {
        '0'..='9' => index > 0,
        _ => found.is_ascii_alphabetic() || found == '_' || found == ':',
    };
    let one = |it: (usize, char)| if takes(it) { it.1 } else { '_' };
    name.chars().enumerate().map(one).collect()
}

/// Calls back with each label of a series, in order. Names that became the same one by escaping
/// stand once.
pub(super) fn each_label(
    labels: &[u8],
    escapes: bool,
    mut each: impl FnMut((Cow<'_, str>, bool), &str),
) {
    let mut fields = Fields::of(labels);
    let mut told: Vec<String> = Vec::new();
    // They are encoded here, so that they are never malformed.
    while let Ok(Some(label)) = fields.next_message(1) {
        let label = &labels[label.content()];
        let (mut name, mut value) = (&[][..], &[][..]);
        let mut inner = Fields::of(label);
        while let Ok(Some(field)) = inner.next_field() {
            match field.number {
                1 => name = &label[field.content()],
                _ => value = &label[field.content()],
            }
        }
        let name = String::from_utf8_lossy(name);
        let (shown, is_quoted) = shown(&name, escapes);
        if escapes {
            if told.iter().any(|other| *other == *shown) {
                continue;
            }
            told.push(shown.clone().into_owned());
        }
        each((shown, is_quoted), &String::from_utf8_lossy(value));
    }
}
