//! Answers of backends: partial successes, and gRPC statuses in headers; and grants of token
//! endpoints.
//!
//! An input is one byte, which chooses the form, and then the answer: a body, or headers that line
//! feeds part.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use sluice_exporters::partial::{from_json, from_proto};
use sluice_extensions::oauth2client::Granted;
use sluice_flow::Outcome;
use sluice_net::client::Secrets;
use sluice_net::grpc::status::{GRPC_MESSAGE, GRPC_STATUS, GRPC_STATUS_DETAILS, Status};

pub fn check_answers(data: &[u8]) {
    let Some((&form, answer)) = data.split_first() else { return };
    match form % 4 {
        0 => check_proto(answer),
        1 => check_json(answer),
        2 => check_status(answer),
        _ => check_token(answer),
    }
}

/// All three signals answer alike on the wire. An answer that the official type reads, without
/// fields that it does not know, is read alike.
fn check_proto(body: &[u8]) {
    let outcome = from_proto(body, &Secrets::default());
    check_outcome(&outcome);
    let Ok(answer) = ExportTraceServiceResponse::decode(body) else { return };
    let partial = answer.partial_success.clone().unwrap_or_default();
    let expected = match u64::try_from(partial.rejected_spans) {
        Ok(items) if items > 0 => Outcome::PartlyRejected {
            items,
            reason: Secrets::default().peer_text(&partial.error_message),
        },
        _ => Outcome::Delivered,
    };
    assert_eq!(from_proto(&answer.encode_to_vec(), &Secrets::default()), expected);
    if matches!(outcome, Outcome::PartlyRejected { .. }) {
        assert_eq!(outcome, expected);
    }
}

/// An answer that is a refusal in any spelling reads the same in the canonical one.
fn check_json(body: &[u8]) {
    let outcome = from_json(body, &Secrets::default());
    check_outcome(&outcome);
    if let Outcome::PartlyRejected { items, reason } = &outcome {
        let partial =
            serde_json::json!({ "rejectedSpans": items.to_string(), "errorMessage": reason });
        let again = serde_json::json!({ "partialSuccess": partial }).to_string();
        assert_eq!(from_json(again.as_bytes(), &Secrets::default()), outcome);
    }
}

fn check_outcome(outcome: &Outcome) {
    match outcome {
        Outcome::Delivered => {}
        Outcome::PartlyRejected { items, reason } => {
            assert!(*items > 0);
            assert_eq!(&Secrets::default().peer_text(reason), reason, "it is bounded and one line");
        }
        other => panic!("the backend took the request: {other:?}"),
    }
}

/// A status has the values of its headers, and survives being written and read again.
fn check_status(lines: &[u8]) {
    let mut headers = HeaderMap::new();
    let names: [HeaderName; 3] = [GRPC_STATUS, GRPC_MESSAGE, GRPC_STATUS_DETAILS];
    for (name, line) in names.into_iter().zip(lines.split(|byte| *byte == b'\n')) {
        let Ok(value) = HeaderValue::from_bytes(line) else { return };
        headers.insert(name, value);
    }
    if let Some(status) = Status::read_from(&headers) {
        let mut again = HeaderMap::new();
        status.write_to(&mut again);
        assert_eq!(Status::read_from(&again), Some(status));
    }
}

/// A token goes into a header as it is, is never shown, and ends within any clock's range.
fn check_token(body: &[u8]) {
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    if let Ok(granted) = Granted::read(Some(&form), body) {
        assert!(granted.header.is_sensitive());
    }
    let Ok(granted) = Granted::read(None, body) else { return };
    assert!(granted.header.is_sensitive());
    // Fields that are not read may have text that is none.
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(body) else { return };
    let token = json["access_token"].as_str().expect("it was read");
    assert!(granted.header.as_bytes().ends_with(token.as_bytes()));
    if let Some(lives) = granted.lives {
        assert!(std::time::Instant::now().checked_add(lives).is_some());
    }
}
