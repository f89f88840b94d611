//! `partial_success`: items that a backend refused of a request that it took.
//!
//! All signals answer with `partial_success = 1 { rejected_… = 1 (int64), error_message = 2 }`.

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_flow::Outcome;
use sluice_net::client::peer_text;
use sluice_otlp::Malformed;
use sluice_otlp::wire::{Fields, LEN, VARINT};

/// An answer of this size is read: it has a number and a message.
const ANSWER_BYTES: usize = 64 * 1024;

/// Turns the body of a successful answer into an outcome. A body that cannot be read, or is longer
/// than any such answer, changes nothing: the backend has said that it took the request.
pub fn from_proto(body: &[u8]) -> Outcome {
    let (rejected, message) = read_proto(is_short(body)).unwrap_or_default();
    outcome(rejected, &message)
}

/// The same for JSON, in which 64-bit integers are strings or numbers.
pub fn from_json(body: &[u8]) -> Outcome {
    let answer: Answer = serde_json::from_slice(is_short(body)).unwrap_or_default();
    let Partial { rejected, message } = answer.partial.unwrap_or_default();
    let rejected = match rejected {
        Some(Number::Integer(number)) => number,
        Some(Number::Text(text)) => text.parse().unwrap_or_default(),
        Some(Number::Other(_)) | None => 0,
    };
    outcome(rejected, &message.map(|message| peer_text(&message)).unwrap_or_default())
}

/// Nothing of a longer body: a part of it could be misread.
fn is_short(body: &[u8]) -> &[u8] {
    if body.len() <= ANSWER_BYTES { body } else { &[] }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    #[serde(rename = "partialSuccess", alias = "partial_success")]
    partial: Option<Partial>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Partial {
    #[serde(
        alias = "rejectedSpans",
        alias = "rejected_spans",
        alias = "rejectedDataPoints",
        alias = "rejected_data_points",
        alias = "rejectedLogRecords",
        alias = "rejected_log_records"
    )]
    rejected: Option<Number>,
    #[serde(rename = "errorMessage", alias = "error_message")]
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Integer(i64),
    Text(String),
    Other(IgnoredAny),
}

fn outcome(rejected: i64, message: &str) -> Outcome {
    if let Ok(items @ 1..) = u64::try_from(rejected) {
        return Outcome::PartlyRejected { items, reason: message.to_owned() };
    }
    if !message.is_empty() {
        tracing::warn!(%message, "the backend took a request with a warning");
    }
    Outcome::Delivered
}

fn read_proto(body: &[u8]) -> Result<(i64, String), Malformed> {
    let (mut rejected, mut message) = (0, String::new());
    let mut answer = Fields::of(body);
    while let Some(field) = answer.next_message(1)? {
        let success = &body[field.content()];
        let mut fields = Fields::of(success);
        while let Some(field) = fields.next_field()? {
            let content = &success[field.content()];
            match (field.number, field.wire_type) {
                (1, VARINT) => rejected = field.varint(success) as i64,
                (2, LEN) => message = peer_text(&String::from_utf8_lossy(content)),
                _ => {}
            }
        }
    }
    Ok((rejected, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the answers that backends give to a request they took.
    /// Guarantee: only a number of refused items above zero counts as a refusal.
    #[test]
    fn protobuf_answers() {
        assert_eq!(from_proto(b""), Outcome::Delivered);
        assert_eq!(from_proto(&[0x0a, 0x00]), Outcome::Delivered);
        assert_eq!(from_proto(b"\x0a\x06\x12\x04slow"), Outcome::Delivered);
        let refused = Outcome::PartlyRejected { items: 300, reason: "bad".to_owned() };
        assert_eq!(from_proto(b"\x0a\x08\x08\xac\x02\x12\x03bad"), refused);
        for garbage in [&b"\xff"[..], b"\x0a\xff", b"\x0a\x02\x08", b"<html>"] {
            assert_eq!(from_proto(garbage), Outcome::Delivered, "{garbage:?}");
        }
    }

    #[test]
    fn json_answers() {
        assert_eq!(from_json(b"{}"), Outcome::Delivered);
        assert_eq!(from_json(br#"{"partialSuccess":{}}"#), Outcome::Delivered);
        assert_eq!(from_json(br#"{"partialSuccess":{"errorMessage":"slow"}}"#), Outcome::Delivered);
        let refused = Outcome::PartlyRejected { items: 3, reason: "bad".to_owned() };
        assert_eq!(
            from_json(br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"bad"}}"#),
            refused
        );
        assert_eq!(
            from_json(br#"{"partialSuccess":{"rejectedLogRecords":3,"errorMessage":"bad"}}"#),
            refused
        );
        assert_eq!(from_json(b"nonsense"), Outcome::Delivered);
        let other = br#"{"x":[{}],"partial_success":{"rejected_spans":{},"error_message":null}}"#;
        assert_eq!(from_json(other), Outcome::Delivered);
    }

    /// Scenario: a backend answers with megabytes. Guarantee: they are not read, and the request
    /// counts as taken, as the status says.
    #[test]
    fn long_answers_are_not_read() {
        let partial = br#"{"partialSuccess":{"rejectedSpans":"3"}}"#;
        let padded = |len: usize| [&partial[..], &vec![b' '; len - partial.len()]].concat();
        assert!(!matches!(from_json(&padded(ANSWER_BYTES)), Outcome::Delivered));
        assert_eq!(from_json(&padded(ANSWER_BYTES + 1)), Outcome::Delivered);
        let partial = [&b"\x0a\x02\x08\x03"[..], &b"\x12\x00".repeat(ANSWER_BYTES / 2)].concat();
        assert_eq!(from_proto(&partial), Outcome::Delivered);
        assert!(!matches!(from_proto(&partial[..ANSWER_BYTES]), Outcome::Delivered));
    }
}
