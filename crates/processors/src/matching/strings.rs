//! Lists of strings to match against, exactly or by regular expression.

use crate::fingerprint::Fingerprint;
use crate::go_regexp::Pattern;

/// One of them has to match.
#[derive(Clone, Debug)]
pub(crate) enum Strings {
    Strict(Vec<String>),
    /// Anywhere in the text, unless a pattern says otherwise.
    Regexp(Vec<Pattern>),
}

impl Strings {
    pub(crate) fn match_text(&self, text: &[u8]) -> bool {
        match self {
            Strings::Strict(strings) => strings.iter().any(|string| string.as_bytes() == text),
            Strings::Regexp(patterns) => patterns.iter().any(|pattern| pattern.matches(text)),
        }
    }

    pub(super) fn fingerprint(strings: Option<&Strings>, fingerprint: &mut Fingerprint) {
        match strings {
            None => fingerprint.text("any"),
            Some(Strings::Strict(strings)) => {
                fingerprint.text("strict");
                fingerprint.list(strings, |fingerprint, string| fingerprint.text(string));
            }
            Some(Strings::Regexp(patterns)) => {
                fingerprint.text("regexp");
                fingerprint.list(patterns, |fingerprint, pattern| fingerprint.text(pattern.text()));
            }
        }
    }
}
