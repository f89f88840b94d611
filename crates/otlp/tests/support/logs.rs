use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::generate::{
    Shape, any_value, attributes, counter, id, open_enum, resource, scope, small, text,
};

pub fn request(shape: Shape) -> BoxedStrategy<ExportLogsServiceRequest> {
    let scope_logs = (scope(shape), vec(log_record(shape), 0..4), text())
        .prop_map(|(scope, log_records, schema_url)| ScopeLogs { scope, log_records, schema_url });
    let resource_logs = (resource(shape), vec(scope_logs, 0..3), text()).prop_map(
        |(resource, scope_logs, schema_url)| ResourceLogs { resource, scope_logs, schema_url },
    );
    vec(resource_logs, 0..3)
        .prop_map(|resource_logs| ExportLogsServiceRequest { resource_logs })
        .boxed()
}

pub fn log_record(shape: Shape) -> BoxedStrategy<LogRecord> {
    let when = (counter(), counter());
    let what = (open_enum(25), text(), option::of(any_value(shape)), text());
    let context = (small(), id(shape, 16), id(shape, 8));
    (when, what, attributes(shape), small(), context)
        .prop_map(|(when, what, attributes, dropped_attributes_count, context)| {
            let (time_unix_nano, observed_time_unix_nano) = when;
            let (severity_number, severity_text, body, event_name) = what;
            let (flags, trace_id, span_id) = context;
            LogRecord {
                time_unix_nano,
                observed_time_unix_nano,
                severity_number,
                severity_text,
                body,
                attributes,
                dropped_attributes_count,
                flags,
                trace_id,
                span_id,
                event_name,
            }
        })
        .boxed()
}
