//! Detectors in surroundings that a test makes: a folder as the file system, variables, and a
//! listener in the place of services.

mod clouds;
mod env;
mod options;
mod start;
mod system;

use std::path::Path;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue as Any, KeyValue};
use opentelemetry_proto::tonic::logs::v1::ResourceLogs;
use opentelemetry_proto::tonic::resource::v1::Resource;
use parking_lot::Mutex;
use prost::Message as _;
use sluice_config::read_text;
use sluice_otlp::AnyValue;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const SCHEMA: &str = "https://opentelemetry.io/schemas/1.40.0";

fn options(yaml: &str) -> Result<Options, String> {
    let (options, diagnostics) = read_text("processors.resource_detection", yaml, Options::read);
    if diagnostics.has_errors() { Err(diagnostics.render(false)) } else { Ok(options) }
}

fn nothing() -> Surroundings {
    Surroundings::of(Path::new("/nowhere"), &[], "http://127.0.0.1:9")
}

fn processor(yaml: &str, around: &Surroundings) -> ResourceDetection {
    let options = Arc::new(options(yaml).unwrap_or_else(|error| panic!("{error}")));
    ResourceDetection(Arc::new(Shared::new(options, around.clone())))
}

/// The attributes that are detected, as lines, and the schema of a resource that has none.
async fn detected(yaml: &str, around: &Surroundings) -> Result<(Vec<String>, String), String> {
    let processor = processor(yaml, around);
    processor.start().await?;
    let current = processor.0.detection.get().expect("is started").current();
    let line = |(key, value): &(String, AnyValue)| format!("{key}={}", shown(value));
    let mut lines: Vec<String> = current.found.attributes.iter().map(line).collect();
    lines.sort();
    Ok((lines, current.schema_url.to_owned()))
}

fn shown(value: &AnyValue) -> String {
    match value {
        AnyValue::String(text) => text.clone(),
        AnyValue::Int(number) => number.to_string(),
        AnyValue::Array(values) => {
            let values: Vec<String> = values.iter().map(shown).collect();
            format!("[{}]", values.join(", "))
        }
        other => panic!("{other:?}"),
    }
}

/// Attributes and schema, after the processor, of a resource with `a=old` and of a missing one that
/// has a schema.
fn run(processor: &ResourceDetection) -> Vec<(Vec<String>, String)> {
    let value = Some(Any { value: Some(Value::StringValue("old".to_owned())) });
    let attributes = vec![KeyValue { key: "a".to_owned(), value, ..KeyValue::default() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource_logs = vec![
        ResourceLogs { resource, ..ResourceLogs::default() },
        ResourceLogs { schema_url: "s".to_owned(), ..ResourceLogs::default() },
    ];
    let request = Bytes::from(ExportLogsServiceRequest { resource_logs }.encode_to_vec());
    let edited = processor.process(Signal::Logs, &request, &Metadata::default(), usize::MAX);
    let edited = edited.expect("is valid").expect("is within").unwrap_or(request);
    let decoded = ExportLogsServiceRequest::decode(edited).expect("is valid");
    let line = |attribute: KeyValue| match attribute.value.and_then(|it| it.value) {
        Some(Value::StringValue(text)) => format!("{}={text}", attribute.key),
        other => panic!("{other:?}"),
    };
    let logs = decoded.resource_logs.into_iter();
    let lines = logs.map(|it| {
        let attributes = it.resource.unwrap_or_default().attributes;
        (attributes.into_iter().map(line).collect(), it.schema_url)
    });
    lines.collect()
}

/// Requests that a service got: method, path, and headers in lower case.
type Asked = Arc<Mutex<Vec<String>>>;

/// Answers each request with what `answer` says to its head: a status, and a body.
async fn service(
    answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static,
) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = Asked::default();
    let kept = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            reply(stream, &kept, &answer).await;
        }
    });
    (url, asked)
}

async fn reply(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    asked: &Asked,
    answer: &impl Fn(&str) -> (u16, String),
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).expect("is text");
    asked.lock().push(head.clone());
    let (status, body) = answer(&head);
    let length = body.len();
    let reply = format!(
        "HTTP/1.1 {status} X\r\nmetadata-flavor: Google\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let _ = stream.write_all(reply.as_bytes()).await;
}

/// Answers by the paths of GETs; 404 for others.
fn by_path(answers: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> (u16, String) {
    move |head| {
        let path = head.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
        match answers.iter().find(|(known, _)| Some(*known) == path) {
            Some((_, body)) => (200, (*body).to_owned()),
            None => (404, "no".to_owned()),
        }
    }
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}
