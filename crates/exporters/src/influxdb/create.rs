//! A database of InfluxDB 1.x that is missing is created, if `create_database` asks for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use sluice_flow::Outcome;
use sluice_net::client::{Answer, Secrets, TransportError, retry_after};
use tokio::sync::Mutex;

use super::answer::{NO_DATABASE, said};
use crate::connections::Destination;

pub(super) struct CreateDatabase {
    /// The name of the exporter, for the log.
    exporter: String,
    name: String,
    /// The statement as a form.
    form: Bytes,
    queries: Destination,
    /// The time at which it was created last. One request at a time asks for that.
    created: Mutex<Option<Instant>>,
    has_warned: AtomicBool,
}

impl CreateDatabase {
    pub(super) fn new(exporter: &str, name: &str, queries: Destination) -> CreateDatabase {
        let statement = format!("CREATE DATABASE {}", identifier(name));
        CreateDatabase {
            exporter: exporter.to_owned(),
            name: name.to_owned(),
            form: format!("q={}", utf8_percent_encode(&statement, NON_ALPHANUMERIC)).into(),
            queries,
            created: Mutex::new(None),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Creates the database, unless another request did so after `sent`, the time at which this one
    /// was written. `headers` are those of the write. Returns `None` if the database is there, or
    /// the outcome of the write, and whether InfluxDB did not take the credentials.
    ///
    /// # Errors
    /// InfluxDB cannot be asked.
    pub(super) async fn create(
        &self,
        sent: Instant,
        headers: &HeaderMap,
        secrets: &Secrets<'_>,
    ) -> Result<Option<(Outcome, bool)>, TransportError> {
        let mut created = self.created.lock().await;
        if created.is_some_and(|at| at >= sent) {
            return Ok(None);
        }
        let body = Arc::from([self.form.clone()]);
        let answer = self.queries.post(&form_headers(headers), &body).await?;
        let (exporter, database) = (&*self.exporter, &*self.name);
        let Some(refusal) = refusal(&answer) else {
            tracing::info!(exporter, database, "created the database, which did not exist");
            *created = Some(Instant::now());
            self.has_warned.store(false, Ordering::Relaxed);
            return Ok(None);
        };
        let reason = secrets.peer_text(&format!(
            "{NO_DATABASE}, and `CREATE DATABASE` failed: HTTP status {}: {refusal}",
            answer.status
        ));
        if matches!(answer.status.as_u16(), 408 | 429 | 500..=599) {
            let delay = retry_after(&answer.headers);
            return Ok(Some((Outcome::RetryAfter { delay, reason }, false)));
        }
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                exporter,
                database,
                reason,
                "the database does not exist and cannot be created: create it as an \
                 administrator, or configure a user who may; its data wait until then"
            );
        }
        let is_unauthorized = answer.status == StatusCode::UNAUTHORIZED;
        Ok(Some((Outcome::Misconfigured { reason }, is_unauthorized)))
    }
}

/// Whether InfluxDB refused a write because its database does not exist.
pub(super) fn is_missing(answer: &Answer) -> bool {
    matches!(answer.status.as_u16(), 404 | 500..=599) && said(answer).contains(NO_DATABASE)
}

/// A name as InfluxQL takes it, in double quotes.
fn identifier(name: &str) -> String {
    let mut out = String::from('"');
    for letter in name.chars() {
        match letter {
            '\n' => out.push_str("\\n"),
            '\\' | '"' => out.extend(['\\', letter]),
            _ => out.push(letter),
        }
    }
    out.push('"');
    out
}

fn form_headers(of_write: &HeaderMap) -> HeaderMap {
    let mut headers = of_write.clone();
    headers.remove(CONTENT_ENCODING);
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(CONTENT_TYPE, form);
    headers
}

/// InfluxDB's reason for which it did not run the statement. Errors of a statement come with 200.
fn refusal(answer: &Answer) -> Option<String> {
    if !answer.status.is_success() {
        return Some(said(answer));
    }
    let content = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    match content["results"].as_array() {
        Some(results) => {
            results.iter().find_map(|result| result["error"].as_str()).map(str::to_owned)
        }
        None => Some("the answer is not from InfluxDB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, body: &'static str) -> Answer {
        let status = StatusCode::from_u16(code).expect("a status");
        let body = Bytes::from_static(body.as_bytes());
        Answer { status, headers: HeaderMap::new(), body, trailers: None }
    }

    /// Guarantee: a name cannot end its quotes.
    #[test]
    fn names_stay_within_their_quotes() {
        assert_eq!(identifier("k6"), r#""k6""#);
        assert_eq!(identifier("a \"b\" \\\n"), r#""a \"b\" \\\n""#);
    }

    #[test]
    fn only_a_missing_database_is_created() {
        let missing = r#"{"error":"database not found: \"k6\""}"#;
        for (code, body, expected) in [
            (404, missing, true),
            (500, missing, true),
            (204, "", false),
            (400, missing, false),
            (404, "404 page not found", false),
            (500, r#"{"error":"retention policy not found: week"}"#, false),
        ] {
            assert_eq!(is_missing(&answer(code, body)), expected, "{code} {body}");
        }
    }

    /// Scenario: answers of InfluxDB 1.8. Guarantee: a statement's error is found, although its
    /// status is 200, and nothing else than InfluxDB's answer counts as success.
    #[test]
    fn refusals_are_told_from_success() {
        assert_eq!(refusal(&answer(200, r#"{"results":[{"statement_id":0}]}"#)), None);
        for (code, body, expected) in [
            (200, r#"{"results":[{"statement_id":0,"error":"invalid name"}]}"#, "invalid name"),
            (403, r#"{"error":"error authorizing query: w"}"#, "error authorizing query: w"),
            (401, r#"{"error":"authorization failed"}"#, "authorization failed"),
            (200, "<html>", "the answer is not from InfluxDB"),
        ] {
            assert_eq!(refusal(&answer(code, body)).as_deref(), Some(expected), "{code} {body}");
        }
    }
}
