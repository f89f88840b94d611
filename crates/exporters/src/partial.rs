//! `partial_success`: items that a backend refused of a request that it took.
//!
//! All signals answer with `partial_success = 1 { rejected_… = 1 (int64), error_message = 2 }`.

use sluice_flow::Outcome;
use sluice_net::client::peer_text;
use sluice_otlp::Malformed;
use sluice_otlp::wire::{Fields, LEN, VARINT};

/// Turns the body of a successful answer into an outcome. A body that cannot be read changes
/// nothing: the backend has said that it took the request.
pub fn from_proto(body: &[u8]) -> Outcome {
    let (rejected, message) = read_proto(body).unwrap_or_default();
    outcome(rejected, &message)
}

/// The same for JSON, in which 64-bit integers are strings or numbers.
pub fn from_json(body: &[u8]) -> Outcome {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let partial = body.get("partialSuccess").or_else(|| body.get("partial_success"));
    let (mut rejected, mut message) = (0, String::new());
    for (key, value) in partial.and_then(|partial| partial.as_object()).into_iter().flatten() {
        match key.as_str() {
            key if key.starts_with("rejected") => {
                let number = value.as_i64().or_else(|| value.as_str()?.parse().ok());
                rejected = number.unwrap_or(0);
            }
            "errorMessage" | "error_message" => {
                message = value.as_str().map(peer_text).unwrap_or_default()
            }
            _ => {}
        }
    }
    outcome(rejected, &message)
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
    }
}
