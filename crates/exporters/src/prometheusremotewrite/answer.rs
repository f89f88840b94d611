//! Outcomes of answers, by the specifications of remote write 1.0 and 2.0.

use http::HeaderMap;
use sluice_flow::Outcome;
use sluice_net::client::{Answer, Secrets, retry_after};
use sluice_prometheus::Version;

use super::note::Note;
use crate::outcome::{http_reason, is_web_page, of_http};

/// Headers with the numbers that a backend of remote write 2.0 has taken.
const WRITTEN: [&str; 2] =
    ["x-prometheus-remote-write-samples-written", "x-prometheus-remote-write-histograms-written"];

/// Texts of Prometheus, Mimir, Cortex and Thanos about samples that are older than they take: what
/// stands beside one in a request is as old.
const TOO_OLD: [&str; 5] =
    ["out of bounds", "too old", "too-old", "too far in the past", "timestamp too old"];

/// Samples and histograms that the backend says it has taken.
fn written(headers: &HeaderMap) -> Option<u64> {
    let number = |name| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let numbers = WRITTEN.map(number);
    let is_told = numbers.iter().any(Option::is_some);
    is_told
        .then(|| numbers.iter().flatten().fold(0, |sum: u64, number| sum.saturating_add(*number)))
}

fn partly(items: u64, reason: String) -> Outcome {
    match items {
        0 => Outcome::Delivered,
        items => Outcome::PartlyRejected { items, reason },
    }
}

/// The outcome of a request with nothing that could be sent.
pub(super) fn of_nothing(note: Note) -> Outcome {
    partly(note.dropped, inexpressible(note))
}

fn inexpressible(note: Note) -> String {
    format!(
        "{} points cannot be sent as remote write: not cumulative, without a name, or with buckets \
         or attributes that it cannot have",
        note.dropped
    )
}

/// The outcome of an answer.
pub(super) fn of(version: Version, note: Note, answer: &Answer, secrets: &Secrets<'_>) -> Outcome {
    let code = answer.status.as_u16();
    let reason = || http_reason(answer, secrets);
    let taken =
        Some(version).filter(|it| *it == Version::V2).and_then(|_| written(&answer.headers));
    match code {
        200..=299 => match taken {
            _ if is_web_page(answer) => Outcome::Misconfigured {
                reason: format!("{}: a web page, not an answer of a backend", reason()),
            },
            None if version == Version::V2 => Outcome::Misconfigured {
                reason: format!(
                    "{} without the headers of remote write 2.0: the backend does not know it and \
                     may have taken nothing; set `protobuf_message: prometheus.WriteRequest`",
                    reason()
                ),
            },
            Some(taken) if taken < note.written => {
                let missing = note.written - taken;
                partly(missing.saturating_add(note.dropped), {
                    format!("the backend took {taken} of {} samples", note.written)
                })
            }
            _ => partly(note.dropped, inexpressible(note)),
        },
        // The rest of the request is stored, and must not be sent again.
        400..=499 if taken.is_some_and(|taken| taken > 0) => {
            let missing = note.written.saturating_sub(taken.unwrap_or_default()).max(1);
            partly(missing.saturating_add(note.dropped), reason())
        }
        400 | 422 if speaks_of_age(&reason()) => partly(note.points.max(1), reason()),
        408 => Outcome::RetryAfter { delay: None, reason: reason() },
        500..=599 => Outcome::RetryAfter { delay: retry_after(&answer.headers), reason: reason() },
        _ => of_http(answer, secrets),
    }
}

fn speaks_of_age(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    TOO_OLD.iter().any(|words| reason.contains(words))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderName, HeaderValue, StatusCode};

    use super::*;
    use crate::tests::kind;

    const NOTE: Note = Note { points: 5, dropped: 0, written: 10 };

    fn outcome(
        version: Version,
        code: u16,
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> Outcome {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"))
        });
        let (headers, status) = (headers.collect(), StatusCode::from_u16(code).expect("a status"));
        let body = Bytes::copy_from_slice(body.as_bytes());
        of(version, NOTE, &Answer { status, headers, body, trailers: None }, &Secrets::default())
    }

    /// Guarantee: as the specification has it, 5xx and 429 are sent again and other 4xx are not,
    /// and settings are not the data's fault.
    #[test]
    fn statuses_mean_what_the_specification_says() {
        for code in 200..600 {
            let expected = match code {
                200..=299 => "delivered",
                300..=399 | 401 | 403 | 404 | 405 | 406 | 407 | 415 | 426 => "misconfigured",
                413 => "large",
                408 | 429 | 500..=599 => "retry",
                _ => "rejected",
            };
            assert_eq!(kind(&outcome(Version::V1, code, &[], "")), expected, "{code}");
        }
        let later = outcome(Version::V1, 500, &[("retry-after", "7")], "");
        let Outcome::RetryAfter { delay: Some(delay), .. } = later else { panic!("{later:?}") };
        assert_eq!(delay.as_secs(), 7);
    }

    /// Scenario: answers that are called HTML. Guarantee: a login page is held, and nothing is sent
    /// again that the backend took.
    #[test]
    fn only_a_web_page_is_no_success() {
        let of = |body| kind(&outcome(Version::V1, 200, &[("content-type", "text/html")], body));
        assert_eq!(of("\n<!DOCTYPE html><title>Log in</title>"), "misconfigured");
        assert_eq!(of(""), "delivered");
        assert_eq!(of("ok"), "delivered");
    }

    #[test]
    fn a_backend_that_does_not_know_version_2_is_found_out() {
        let of = |headers: &[_]| outcome(Version::V2, 204, headers, "");
        assert_eq!(kind(&of(&[])), "misconfigured");
        assert_eq!(kind(&of(&[(WRITTEN[0], "10")])), "delivered");
        assert_eq!(kind(&of(&[(WRITTEN[0], "7"), (WRITTEN[1], "3")])), "delivered");
        let short = of(&[(WRITTEN[0], "7"), (WRITTEN[1], "0")]);
        assert!(matches!(short, Outcome::PartlyRejected { items: 3, .. }), "{short:?}");
    }

    /// Guarantee: what was stored of a refused request is not sent again, and the rest is counted.
    #[test]
    fn a_partial_refusal_is_final() {
        let of = |written| outcome(Version::V2, 400, &[(WRITTEN[0], written)], "out of order");
        assert!(matches!(of("8"), Outcome::PartlyRejected { items: 2, .. }));
        assert!(matches!(of("99"), Outcome::PartlyRejected { items: 1, .. }));
        assert_eq!(kind(&of("0")), "rejected");
    }

    /// Guarantee: all samples of a request that is too old are given up, others are sought.
    #[test]
    fn old_samples_are_not_sought_one_by_one() {
        for text in ["out of bounds", "too old sample", "err-mimir-sample-timestamp-too-old"] {
            let outcome = outcome(Version::V1, 400, &[], text);
            assert!(matches!(outcome, Outcome::PartlyRejected { items: 5, .. }), "{text}");
        }
        for text in ["out of order sample", "duplicate sample for timestamp", "no such label"] {
            assert_eq!(kind(&outcome(Version::V1, 400, &[], text)), "rejected", "{text}");
        }
    }

    #[test]
    fn what_cannot_be_expressed_is_counted() {
        let note = Note { points: 3, dropped: 3, written: 0 };
        assert!(matches!(of_nothing(note), Outcome::PartlyRejected { items: 3, .. }));
        assert_eq!(of_nothing(Note::default()), Outcome::Delivered);
        assert_eq!(Note::from_bytes(&NOTE.to_bytes()), NOTE);
    }
}
