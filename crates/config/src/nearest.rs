//! "Did you mean …?": the valid name that a mistyped one is nearest to.

use strsim::osa_distance;

/// The candidate nearest to `name`, if it is near enough: about one edit for three characters.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The comparison is quadratic, and nothing is near to an absurdly long key.
    if name.len() > 256 {
        return None;
    }
    let (name, limit) = (fold(name), (name.chars().count() / 3).max(1));
    candidates
        .into_iter()
        .map(|candidate| (osa_distance(&name, &fold(candidate)), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// The hint that names the nearest candidate.
pub(crate) fn did_you_mean<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest(name, candidates).map(|meant| format!("did you mean `{meant}`?"))
}

/// Letter case and the choice of separator are no difference worth an edit.
fn fold(name: &str) -> String {
    name.replace('-', "_").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: usual slips of the keyboard. Guarantee: the name that was meant is found.
    #[test]
    fn finds_what_was_meant() {
        let names = ["retry_on_failure", "sending_queue", "endpoint", "tls", "timeout"];
        for (typed, meant) in [
            ("retry_on_failures", "retry_on_failure"),
            ("retryOnFailure", "retry_on_failure"),
            ("sending-queue", "sending_queue"),
            ("endpiont", "endpoint"),
            ("tsl", "tls"),
            ("time_out", "timeout"),
        ] {
            assert_eq!(nearest(typed, names), Some(meant), "{typed}");
        }
    }

    /// Scenario: a name that is like nothing. Guarantee: no misleading suggestion.
    #[test]
    fn suggests_nothing_for_something_else() {
        assert_eq!(nearest("color", ["endpoint", "tls"]), None);
        assert_eq!(nearest("", ["tls"]), None);
        assert_eq!(nearest(&"x".repeat(100_000), ["tls"]), None);
    }
}
