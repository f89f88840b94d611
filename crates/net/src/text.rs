//! Texts of peers, which land in errors, headers and logs.

/// Longest text of a peer that is kept, in bytes.
pub(crate) const TEXT_LIMIT_BYTES: usize = 1024;

/// The beginning of the text, as long as may be kept.
pub(crate) fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_LIMIT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
