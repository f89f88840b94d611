use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message as _;
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::otlp::Resource;

/// Runs something with a subscriber that pushes, and returns the records.
fn pushed(queue: &Arc<LogQueue>, work: impl FnOnce()) -> Vec<LogRecord> {
    let tap = Arc::<LogTap>::default();
    tap.add(queue.clone());
    let subscriber = tracing_subscriber::registry().with(TapLayer(tap.clone()));
    tracing::subscriber::with_default(subscriber, work);
    tap.remove(queue);
    assert!(tap.queues.read().is_empty());
    let request = logs::request(&Resource::default(), &queue.take(usize::MAX));
    let request = ExportLogsServiceRequest::decode(request.as_slice()).expect("is OTLP");
    request.resource_logs[0].scope_logs[0].log_records.clone()
}

fn body(record: &LogRecord) -> String {
    match record.body.as_ref().and_then(|body| body.value.clone()) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// Guarantee: message, severity, fields with their types and times are those of the line.
#[test]
fn a_line_is_a_record() {
    let queue = Arc::new(LogQueue::new(10, 10_000, 10));
    let records = pushed(&queue, || {
        let id = "traces/1";
        tracing::warn!(pipeline = %id, items = 3_u64, share = 0.5, held = true, "dropped {}", 3);
        tracing::error!(reason = "x".repeat(100_000), "long");
    });
    let [record, long] = &records[..] else { panic!("{records:?}") };
    assert_eq!(body(record), "dropped 3");
    assert_eq!((record.severity_number, record.severity_text.as_str()), (13, "warn"));
    assert!(record.time_unix_nano > 1_600_000_000_000_000_000);
    assert_eq!(record.time_unix_nano, record.observed_time_unix_nano);
    let attributes: Vec<_> = record
        .attributes
        .iter()
        .map(|it| (it.key.as_str(), it.value.clone().and_then(|value| value.value)))
        .collect();
    let expected = [
        ("pipeline", Some(Value::StringValue("traces/1".to_owned()))),
        ("items", Some(Value::IntValue(3))),
        ("share", Some(Value::DoubleValue(0.5))),
        ("held", Some(Value::BoolValue(true))),
    ];
    assert_eq!(attributes, expected);
    assert_eq!((long.severity_number, body(long)), (17, "long".to_owned()));
    assert!(long.encoded_len() < 10_000, "a field is cut");
}

/// Guarantee: lines of the work of sending own telemetry are not pushed, in whatever span below.
#[test]
fn lines_about_pushing_are_not_pushed() {
    let queue = Arc::new(LogQueue::new(10, 10_000, 10));
    let records = pushed(&queue, || {
        let _span = push_span().entered();
        tracing::error!("its backend does not answer");
        tracing::info_span!("inner").in_scope(|| tracing::error!("neither"));
        drop(_span);
        tracing::info!("of a pipeline");
    });
    assert_eq!(records.iter().map(body).collect::<Vec<_>>(), ["of a pipeline"]);
}

fn record(text: &str) -> Arc<[u8]> {
    text.as_bytes().into()
}

fn texts(records: &[Arc<[u8]>]) -> Vec<String> {
    records.iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect()
}

/// Scenario: nothing takes records. Guarantee: the queue keeps the newest, within both bounds, and
/// counts the others; what comes back has only the room that is left.
#[test]
fn a_queue_is_bounded_and_drops_the_oldest() {
    let queue = LogQueue::new(3, 100, 10);
    (0..10).for_each(|index| queue.push(record(&index.to_string())));
    assert_eq!((queue.len(), queue.dropped()), (3, 7));
    let taken = queue.take(2);
    assert_eq!(texts(&taken), ["7", "8"]);
    queue.push(record("10"));
    queue.put_back(taken);
    assert_eq!((queue.len(), queue.dropped()), (3, 8), "the oldest found no room");
    assert_eq!(texts(&queue.take(10)), ["8", "9", "10"]);
    queue.push(record(&"x".repeat(90)));
    queue.push(record(&"y".repeat(20)));
    assert_eq!((texts(&queue.take(10)), queue.dropped()), (vec!["y".repeat(20)], 9));
    queue.push(record(&"z".repeat(101)));
    assert!(queue.is_empty(), "a record larger than the queue is not kept");
}
