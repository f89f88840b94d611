//! Lines as log records.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use prost::Message as _;
use sluice_flow::Payload;

/// A request with a record for each line, and their number.
pub(crate) fn encode(chunk: &[u8]) -> (Payload, u32) {
    let lines = chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let records: Vec<LogRecord> = lines
        .map(|line| {
            let text = String::from_utf8_lossy(line).into_owned();
            let body = Some(AnyValue { value: Some(any_value::Value::StringValue(text)) });
            LogRecord { body, ..LogRecord::default() }
        })
        .collect();
    let items = records.len() as u32;
    let scope_logs = vec![ScopeLogs { log_records: records, ..ScopeLogs::default() }];
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs { scope_logs, ..ResourceLogs::default() }],
    };
    (Payload::identity(Bytes::from(request.encode_to_vec())), items)
}
