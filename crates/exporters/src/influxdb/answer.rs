//! Outcomes of answers, by what InfluxDB 1.x, 2.x and 3 say.

use serde_json::Value;
use sluice_flow::Outcome;
use sluice_net::client::{Answer, Secrets, retry_after};

use super::note::Note;
use crate::outcome::{is_web_page, of_http};

/// An answer of this size is read: errors of many lines are longer, and say nothing new.
const ANSWER_BYTES: usize = 64 << 10;

/// Words of 1.x about a database that does not exist.
pub(super) const NO_DATABASE: &str = "database not found";

/// Words of 1.x about what is missing at the server, which it says with the status 500.
const MISSING: [&str; 2] = ["retention policy not found", NO_DATABASE];

/// The name of a partial write, before its reason.
const PARTIAL: &str = "partial write: ";

/// The outcome of a request with nothing that could be sent.
pub(super) fn of_nothing(note: Note) -> Outcome {
    taken(note)
}

/// The outcome of a request of which all lines are stored.
fn taken(note: Note) -> Outcome {
    match note {
        Note { left_out: 0, .. } => Outcome::Delivered,
        Note { left_out: items, without_time } => {
            let others = items - without_time;
            let reason = format!(
                "{items} points cannot be written as lines: {without_time} have no time, {others} \
                 no value, one that is not finite, or a name or time that InfluxDB does not take"
            );
            Outcome::PartlyRejected { items, reason }
        }
    }
}

/// The outcome of an answer to a request with lines.
pub(super) fn of(note: Note, answer: &Answer, secrets: &Secrets<'_>) -> Outcome {
    let said = said(answer);
    let reason = || {
        let separator = if said.is_empty() { "" } else { ": " };
        secrets.peer_text(&format!("HTTP status {}{separator}{said}", answer.status))
    };
    match answer.status.as_u16() {
        200..=299 if is_web_page(answer) => Outcome::Misconfigured {
            reason: format!("{}: a web page, not an answer of InfluxDB", reason()),
        },
        200..=299 => taken(note),
        400 | 422 => match too_old(&said) {
            Some(items) => {
                let items = items.saturating_add(note.left_out);
                Outcome::PartlyRejected { items, reason: reason() }
            }
            None => Outcome::Rejected { reason: reason() },
        },
        408 => Outcome::RetryAfter { delay: None, reason: reason() },
        500..=599 if MISSING.iter().any(|words| said.contains(words)) => {
            Outcome::Misconfigured { reason: reason() }
        }
        500..=599 => Outcome::RetryAfter { delay: retry_after(&answer.headers), reason: reason() },
        // Of a redirect, the place says more.
        300..=399 => of_http(answer, secrets),
        _ => with_reason(of_http(answer, secrets), reason()),
    }
}

fn with_reason(outcome: Outcome, reason: String) -> Outcome {
    match outcome {
        Outcome::RetryAfter { delay, .. } => Outcome::RetryAfter { delay, reason },
        Outcome::TooLarge { .. } => Outcome::TooLarge { reason },
        Outcome::Rejected { .. } => Outcome::Rejected { reason },
        Outcome::Misconfigured { .. } => Outcome::Misconfigured { reason },
        other => other,
    }
}

/// The number of points that are older than the retention policy, if nothing else is wrong: all
/// others are stored. 1.x and 2.x count them.
fn too_old(said: &str) -> Option<u64> {
    // Behind a quote are bytes of the line itself: `unable to parse 'm s="partial write: …`.
    let (_, reason) = said.split_once(PARTIAL).filter(|(before, _)| !before.contains('\''))?;
    let is_old = reason.starts_with("points beyond retention policy")
        || reason.starts_with("dropped ") && reason.contains(" outside retention policy");
    let count = || -> Option<u64> {
        let (_, count) = reason.rsplit_once("dropped=")?;
        let end = count.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(count.len());
        count[..end].parse().ok()
    };
    is_old.then(|| count().unwrap_or(1).max(1))
}

/// InfluxDB's words: `error` of 1.x, `message` and `line` of 2.x, `error` and `data` of 3.
pub(super) fn said(answer: &Answer) -> String {
    if answer.status.is_success() {
        return String::new();
    }
    let body = &answer.body[..answer.body.len().min(ANSWER_BYTES)];
    let Ok(json) = serde_json::from_slice::<Value>(body) else {
        let header = answer.headers.get("x-influxdb-error").and_then(|value| value.to_str().ok());
        let text = String::from_utf8_lossy(body);
        let is_page = text.trim_start().starts_with('<');
        return match header {
            Some(header) => header.to_owned(),
            None if is_page => String::new(),
            None => text.trim().to_owned(),
        };
    };
    let text = |key: &str| json[key].as_str().unwrap_or_default().trim().to_owned();
    let (message, error) = (text("message"), text("error"));
    let mut said = if message.is_empty() { error } else { message };
    if let Some(line) = json["line"].as_u64() {
        said.push_str(&format!(" (line {line})"));
    }
    let faults = match &json["data"] {
        Value::Array(faults) => &faults[..],
        Value::Null => &[],
        one => std::slice::from_ref(one),
    };
    if let Some(first) = faults.first() {
        let text = |key: &str| first[key].as_str().unwrap_or_default().trim().to_owned();
        said.push_str(&format!(": {}", text("error_message")));
        let line = text("original_line");
        if !line.is_empty() {
            said.push_str(&format!(" in '{line}'"));
        }
        if faults.len() > 1 {
            said.push_str(&format!(", and {} more lines", faults.len() - 1));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderName, HeaderValue, StatusCode};

    use super::*;
    use crate::tests::kind;

    fn outcome(code: u16, headers: &[(&'static str, &'static str)], body: &str) -> Outcome {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let (headers, status) = (headers.collect(), StatusCode::from_u16(code).expect("a status"));
        let body = Bytes::copy_from_slice(body.as_bytes());
        let answer = Answer { status, headers, body, trailers: None };
        of(Note::default(), &answer, &Secrets::default())
    }

    /// Guarantee: only what is wrong with the data is searched for; what may pass is sent again,
    /// and settings are not the data's fault.
    #[test]
    fn statuses_are_told_apart() {
        for code in 200..600 {
            let expected = match code {
                200..=299 => "delivered",
                300..=399 | 401 | 403 | 404 | 405 | 406 | 407 | 415 | 426 => "misconfigured",
                413 => "large",
                408 | 429 | 500..=599 => "retry",
                _ => "rejected",
            };
            assert_eq!(kind(&outcome(code, &[], "")), expected, "{code}");
        }
        for code in [429, 500, 503] {
            let outcome = outcome(code, &[("retry-after", "7")], "");
            let Outcome::RetryAfter { delay: Some(delay), .. } = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!(delay.as_secs(), 7, "{code}");
        }
    }

    /// Scenario: refusals in the words of all three versions. Guarantee: they are the reason.
    #[test]
    fn reasons_are_those_of_influxdb() {
        for (code, body, expected) in [
            (
                400,
                concat!(
                    r#"{"error":"partial write: field type conflict: input field \"value\" on "#,
                    r#"measurement \"m\" is type integer, already exists as type float "#,
                    r#"dropped=1"}"#,
                ),
                "partial write: field type conflict: input field \"value\" on measurement \"m\" \
                 is type integer, already exists as type float dropped=1",
            ),
            (
                400,
                r#"{"code":"invalid","message":"unable to parse 'm x': missing fields","line":3}"#,
                "unable to parse 'm x': missing fields (line 3)",
            ),
            (
                422,
                concat!(
                    r#"{"code":"unprocessable entity","message":"failure writing points to "#,
                    r#"database: partial write: field type conflict dropped=2"}"#,
                ),
                "failure writing points to database: partial write: field type conflict dropped=2",
            ),
            (
                400,
                concat!(
                    r#"{"error":"partial write of line protocol occurred","data":["#,
                    r#"{"error_message":"invalid column type for column 'value', expected "#,
                    r#"iox::column_type::field::float, got iox::column_type::field::integer","#,
                    r#""line_number":2,"original_line":"m value=1i"},"#,
                    r#"{"error_message":"x","line_number":3,"original_line":"y"}]}"#,
                ),
                "partial write of line protocol occurred: invalid column type for column 'value', \
                 expected iox::column_type::field::float, got iox::column_type::field::integer in \
                 'm value=1i', and 1 more lines",
            ),
            (
                400,
                r#"{"error":"parsing failed","data":{"error_message":"bad","original_line":"z"}}"#,
                "parsing failed: bad in 'z'",
            ),
            (400, "plain words\n", "plain words"),
        ] {
            let outcome = outcome(code, &[("content-type", "application/json")], body);
            let Outcome::Rejected { reason } = outcome else { panic!("{outcome:?}") };
            assert!(reason.ends_with(&format!(": {expected}")), "{reason}");
        }
        let header = [("x-influxdb-error", "database is required")];
        let Outcome::Rejected { reason } = outcome(400, &header, "") else { panic!("rejected") };
        assert!(reason.ends_with(": database is required"), "{reason}");
    }

    /// Guarantee: points that are too old cost no search, since the others are stored; a line that
    /// only speaks of them does.
    #[test]
    fn points_that_are_too_old_are_counted() {
        for (said, items) in [
            ("partial write: points beyond retention policy dropped=3", 3),
            (
                "failure writing points to database: partial write: points beyond retention \
                 policy dropped=12",
                12,
            ),
            (
                "partial write: dropped 5 points outside retention policy of duration 1h0m0s - \
                 oldest point m at 1970-01-01T00:00:00Z dropped=5",
                5,
            ),
        ] {
            for key in ["error", "message"] {
                let body = serde_json::json!({ key: said }).to_string();
                let outcome = outcome(400, &[], &body);
                let Outcome::PartlyRejected { items: found, reason } = &outcome else {
                    panic!("{outcome:?}")
                };
                assert!(*found == items && reason.contains(said), "{outcome:?}");
            }
        }
        for said in [
            "partial write: unable to parse 'partial write: points beyond retention policy': x \
             dropped=0",
            "points beyond retention policy",
            "unable to parse 'm s=\"partial write: points beyond retention policy dropped=1\"': \
             invalid number",
        ] {
            let body = serde_json::json!({ "error": said }).to_string();
            assert_eq!(kind(&outcome(400, &[], &body)), "rejected", "{said}");
        }
    }

    #[test]
    fn what_is_missing_at_the_server_is_a_setting() {
        for (code, said) in [
            (404, "database not found: \"k6\""),
            (500, "retention policy not found: \"week\""),
            (403, "\"me\" user is not authorized to write to database \"k6\""),
        ] {
            let body = serde_json::json!({ "error": said }).to_string();
            let outcome = outcome(code, &[("content-type", "application/json")], &body);
            let Outcome::Misconfigured { reason } = outcome else { panic!("{outcome:?}") };
            assert!(reason.ends_with(said), "{reason}");
        }
        let page = [("content-type", "text/html")];
        assert_eq!(kind(&outcome(200, &page, "<!doctype html>")), "misconfigured");
    }

    #[test]
    fn points_without_a_line_are_counted() {
        let note = Note { left_out: 3, without_time: 2 };
        let Outcome::PartlyRejected { items: 3, reason } = of_nothing(note) else {
            panic!("are counted")
        };
        assert!(reason.contains("2 have no time"), "{reason}");
        assert_eq!(of_nothing(Note::default()), Outcome::Delivered);
    }
}
