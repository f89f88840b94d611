//! Texts of peers, which land in errors, headers and logs.

/// Longest text of a peer that is kept, in bytes.
pub(crate) const TEXT_LIMIT_BYTES: usize = 1024;

/// The beginning of the text, as long as may be kept.
pub(crate) fn cut(text: &str) -> &str {
    &text[..char_boundary(text, TEXT_LIMIT_BYTES)]
}

/// The last place at or before this one, in bytes, at which the text may be cut.
pub(crate) fn char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
