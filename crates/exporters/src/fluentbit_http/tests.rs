//! Against a real listener.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use sluice_flow::Outcome;
use sluice_net::compress;
use sluice_net::forward::message::{EventReader, Events};
use sluice_net::forward::msgpack::Item;
use sluice_otlp::{Encoding, Signal};

use super::FluentBitHttpConfig;
use crate::fluent::tests::{request, text};
use crate::tests::{Backend, HttpRequest, config, exporter, http_backend, kind, packed, read};

/// Sends two records and returns the outcome, with the head and the body that the backend got.
async fn sent(options: &str, status: &'static str) -> (Outcome, String, Vec<u8>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let taken = seen.clone();
    let backend = http_backend(move |request: &HttpRequest| {
        taken.lock().push((request.head.clone(), request.body.clone()));
        (status.to_owned(), "content-type: text/html\r\n".to_owned(), b"<html>".to_vec())
    })
    .await;
    let outcome = send_to(&backend, options).await;
    let (head, body) = seen.lock().pop().expect("a request");
    (outcome, head, body)
}

async fn send_to(backend: &Backend, options: &str) -> Outcome {
    let port = backend.address.port();
    let exporter = exporter("fluentbit_http", &format!("{{port: {port}, {options}}}"));
    let logs = request(&[], &[("stream", text("out"))], &[text("one"), text("two")]);
    let request = packed(&*exporter, Signal::Logs, vec![logs]);
    exporter.send(&request).await
}

fn record(date: Value, log: &str) -> Value {
    json!({"date": date, "log": log, "stream": "out"})
}

fn parsed(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test]
async fn requests_are_written_in_all_formats() {
    let options = "uri: '/in?x=1', header: [X-Tenant blue], http_user: me, http_passwd: secret";
    let (outcome, head, body) = sent(options, "201 Created").await;
    assert_eq!(outcome, Outcome::Delivered);
    for line in [
        "post /in?x=1 http/1.1\r\n",
        "x-tenant: blue\r\n",
        "content-type: application/json\r\n",
        "user-agent: sluice/test\r\n",
        "authorization: basic bwu6c2vjcmv0\r\n",
    ] {
        assert!(head.contains(line), "{line} {head}");
    }
    let expected = [record(json!(1.500000001), "one"), record(json!(1.500000001), "two")];
    assert_eq!(parsed(&body), Value::from(expected.to_vec()));

    let (_, head, body) = sent("format: json_lines, compress: gzip", "200 OK").await;
    assert!(head.contains("content-encoding: gzip\r\n"), "{head}");
    let body = compress::decompress(Encoding::Gzip, &body, 1 << 20).expect("is gzip");
    assert!(head.contains("content-type: application/x-ndjson\r\n"), "{head}");
    let lines: Vec<Value> = body.split_inclusive(|byte| *byte == b'\n').map(parsed).collect();
    assert_eq!(lines, expected);
    assert!(body.ends_with(b"}\n"));

    let (_, head, body) = sent("format: json_stream", "200 OK").await;
    assert!(head.contains("content-type: application/json\r\n"), "{head}");
    let stream = serde_json::Deserializer::from_slice(&body).into_iter::<Value>();
    assert_eq!(stream.collect::<Result<Vec<_>, _>>().expect("is JSON"), expected);
    assert!(!body.contains(&b'\n'));

    let (_, head, body) = sent("format: msgpack", "200 OK").await;
    assert!(head.contains("content-type: application/msgpack\r\n"), "{head}");
    let mut events = EventReader::new(Events::Packed(&body)).expect("are events");
    for text in [&b"one"[..], b"two"] {
        let head = events.next_head().expect("is an event").expect("is there");
        assert_eq!(head.time_ns, 1_500_000_001);
        assert_eq!(events.reader.item(), Ok(Item::Map(2)));
        assert_eq!(events.reader.item(), Ok(Item::Str(b"log")));
        assert_eq!(events.reader.item(), Ok(Item::Str(text)));
        events.reader.skip().and_then(|_| events.reader.skip()).expect("a pair");
    }
    assert!(events.next_head().expect("ends").is_none());
}

/// Guarantee: as in Fluent Bit, a password is empty unless it is set, and a user's own header
/// takes the place of the format's.
#[tokio::test]
async fn a_user_needs_no_password() {
    let (_, head, _) = sent("http_user: me", "200 OK").await;
    assert!(head.contains("authorization: basic bwu6\r\n"), "{head}");
    let (_, head, _) = sent("", "200 OK").await;
    assert!(!head.contains("authorization"), "{head}");
    let own = "header: [Content-Type application/x-own], format: json_lines";
    let (_, head, _) = sent(own, "200 OK").await;
    assert!(head.contains("content-type: application/x-own\r\n") && !head.contains("ndjson"));
}

#[tokio::test]
async fn times_are_written_in_all_formats() {
    for (format, expected) in [
        ("double", json!(1.500000001)),
        ("epoch", json!(1)),
        ("epoch_ms", json!(1500)),
        ("iso8601", json!("1970-01-01T00:00:01.500000Z")),
        ("java_sql_timestamp", json!("1970-01-01 00:00:01.500000")),
    ] {
        let options = format!("json_date_format: {format}, json_date_key: stream");
        let (_, _, body) = sent(&options, "200 OK").await;
        let text = String::from_utf8(body.clone()).expect("is text");
        assert!(text.starts_with("[{\"stream\":"), "{text}");
        // It takes the place of a field with its name.
        assert_eq!(parsed(&body)[1], json!({"stream": expected, "log": "two"}), "{format}");
    }
    for none in ["''", "'false'"] {
        let (_, _, body) = sent(&format!("json_date_key: {none}"), "200 OK").await;
        assert_eq!(parsed(&body)[0], json!({"log": "one", "stream": "out"}));
    }
}

#[tokio::test]
async fn answers_are_judged_by_their_status() {
    for (status, expected) in [
        ("204 No Content", "delivered"),
        ("400 Bad Request", "rejected"),
        ("401 Unauthorized", "misconfigured"),
        ("408 Request Timeout", "retry"),
        ("413 Too Large", "large"),
        ("429 Too Many", "retry"),
        ("500 Failed", "failed"),
        ("503 Busy", "retry"),
    ] {
        assert_eq!(kind(&sent("", status).await.0), expected, "{status}");
    }
}

#[test]
fn a_request_that_is_too_large_in_its_format_is_split() {
    let exporter = exporter("fluentbit_http", "{max_request_bytes: 1KiB}");
    let logs = request(&[], &[], &[text(&"\u{1}".repeat(1000))]);
    let error = exporter.pack(Signal::Logs, vec![logs]).expect_err("is too large");
    assert!(matches!(error, sluice_flow::PackError::TooLarge(_)), "{error:?}");
}

#[test]
fn tls_is_on_where_its_section_is() {
    let target = |text: &str| config("fluentbit_http", text).destinations()[0].text.clone();
    assert_eq!(target("{}"), "http://127.0.0.1:80/");
    assert_eq!(target("{tls: {insecure: true}, uri: a}"), "http://127.0.0.1:80/a");
    assert_eq!(target("{host: logs, port: 443, tls: {}}"), "https://logs:443/");
    assert_eq!(target("{host: '::1', port: 8080}"), "http://[::1]:8080/");
    let read = |text| read(text, FluentBitHttpConfig::read);
    assert!(read("{header: ['X-Key: secret value']}").client.headers["x-key"].is_sensitive());
    for wrong in ["{header: [X-Key]}", "{http_passwd: x}", "{host: 'a b'}", "{format: gelf}"] {
        let (_, diagnostics) =
            sluice_config::read_text("exporters.test", wrong, FluentBitHttpConfig::read);
        assert!(diagnostics.errors().count() > 0, "{wrong}");
    }
}

#[test]
fn options_of_other_formats_cause_a_warning() {
    for (text, warnings) in [
        ("{format: msgpack, json_date_key: t, json_date_format: epoch}", 2),
        ("{format: msgpack}", 0),
        ("{format: json, json_date_key: t, json_date_format: epoch}", 0),
    ] {
        let (_, diagnostics) =
            sluice_config::read_text("exporters.test", text, FluentBitHttpConfig::read);
        let said = diagnostics.render(false);
        assert_eq!(said.matches("no effect with `format: msgpack`").count(), warnings, "{said}");
    }
}
