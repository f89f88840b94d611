use serde_json::json;

use super::*;
use crate::tests::{config, exporter, one_span, packed, send};

fn span() -> Value {
    json!({"resourceSpans": [{
        "resource": {"attributes": [{"key": "resource-attr", "value": {"stringValue": "resource-attr-val-1"}}]},
        "scopeSpans": [{"spans": [{
            "traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "1112131415161718", "name": "operationA", "traceState": "ot=th:0",
            "startTimeUnixNano": "1581452772000000321", "endTimeUnixNano": "1581452773000000789",
            "status": {"code": 2, "message": "status-cancelled"}, "droppedAttributesCount": 1, "droppedEventsCount": 1,
            "events": [{"name": "event-with-attr", "timeUnixNano": "1581452773000000123", "droppedAttributesCount": 2,
                "attributes": [{"key": "span-event-attr", "value": {"stringValue": "span-event-attr-val"}}]}],
        }]}],
    }]})
}

/// Scenario: a span with all that spans have. Guarantee: the Collector's text, line by line.
#[test]
fn a_span_in_detail() {
    let expected = "\
ResourceSpans #0
Resource SchemaURL: 
Resource attributes:
     -> resource-attr: Str(resource-attr-val-1)
ScopeSpans #0
ScopeSpans SchemaURL: 
InstrumentationScope  
Span #0
    Trace ID       : 0102030405060708090a0b0c0d0e0f10
    Parent ID      : 
    ID             : 1112131415161718
    Name           : operationA
    Kind           : Unspecified
    TraceState     : ot=th:0
    Start time     : 2020-02-11 20:26:12.000000321 +0000 UTC
    End time       : 2020-02-11 20:26:13.000000789 +0000 UTC
    Status code    : Error
    Status message : status-cancelled
    DroppedAttributesCount: 1
    DroppedEventsCount: 1
    DroppedLinksCount: 0
Events:
SpanEvent #0
     -> Name: event-with-attr
     -> Timestamp: 2020-02-11 20:26:13.000000123 +0000 UTC
     -> DroppedAttributesCount: 2
     -> Attributes::
          -> span-event-attr: Str(span-event-attr-val)
";
    assert_eq!(detailed::render(Signal::Traces, &span()), expected);
}

/// Scenario: points of every kind. Guarantee: values, buckets and bounds as the Collector writes
/// them.
#[test]
fn points() {
    let metrics = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "g", "unit": "1", "gauge": {"dataPoints": [
            {"asInt": "123", "attributes": [{"key": "a", "value": {"stringValue": "b"}}]}]}},
        {"name": "s", "sum": {"isMonotonic": true, "aggregationTemporality": 2,
            "dataPoints": [{"asDouble": 1.23}]}},
        {"name": "h", "histogram": {"aggregationTemporality": 1, "dataPoints": [
            {"count": "1", "sum": 15.0, "explicitBounds": [1.0], "bucketCounts": ["0", "1"]}]}},
        {"name": "e", "exponentialHistogram": {"dataPoints": [
            {"count": "5", "sum": 0.15, "scale": 1, "zeroCount": "1",
            "negative": {"offset": -1, "bucketCounts": ["1", "1"]},
            "positive": {"offset": 1, "bucketCounts": ["1", "1"]}}]}},
        {"name": "q", "summary": {"dataPoints": [
            {"count": "1", "sum": 15.0, "quantileValues": [{"quantile": 0.9, "value": 15.0}]}]}},
    ]}]}]});
    let text = detailed::render(Signal::Metrics, &metrics);
    for line in [
        "     -> DataType: Gauge\nNumberDataPoints #0\nData point attributes:\n     -> a: Str(b)\n",
        "     -> IsMonotonic: true\n     -> AggregationTemporality: Cumulative\n",
        "Value: 123\n",
        "Value: 1.230000\n",
        "Sum: 15.000000\nExplicitBounds #0: 1.000000\nBuckets #0, Count: 0\nBuckets #1, Count: 1\n",
        "Bucket [-1.414214, -1.000000), Count: 1\nBucket [-1.000000, -0.707107), Count: 1\nBucket [0, 0], Count: 1\nBucket (1.414214, 2.000000], Count: 1\nBucket (2.000000, 2.828427], Count: 1\n",
        "QuantileValue #0: Quantile 0.900000, Value 15.000000\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let text = normal::render(Signal::Metrics, &metrics);
    assert!(
        text.contains("\ng{a=b} 123\n") && text.contains("\nh{} count=1 sum=15 le1=0 1\n"),
        "{text}"
    );
}

/// Scenario: a log record. Guarantee: severity, body and attributes in both forms.
#[test]
fn a_record() {
    let logs = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [
        {"severityNumber": 10, "severityText": "Information", "body": {"stringValue": "hello"},
        "attributes": [{"key": "n", "value": {"intValue": "7"}}]}]}]}]});
    let text = detailed::render(Signal::Logs, &logs);
    assert!(
        text.contains(
            "SeverityNumber: Info2(10)\nBody: Str(hello)\nAttributes:\n     -> n: Int(7)\n"
        ),
        "{text}"
    );
    assert_eq!(normal::render(Signal::Logs, &logs), "ResourceLog #0\nScopeLog #0\nhello n=7\n");
}

/// Scenario: written to a file, with sampling. Guarantee: only the sampled requests, each with its
/// counts; everything counts as delivered, and no sender waits.
#[tokio::test]
async fn sampled_requests_are_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("out.txt");
    let text = format!(
        "use_internal_logger: false\noutput_paths: ['{}']\nverbosity: normal\nsampling_initial: 1\nsampling_thereafter: 0",
        path.display()
    );
    let exporter = exporter("debug", &text);
    assert!(config("debug", &text).is_best_effort());
    let start = std::time::Instant::now();
    for _ in 0..3 {
        assert_eq!(send(&*exporter).await, Outcome::Delivered);
    }
    let written = std::fs::read_to_string(&path).expect("reads");
    // A second may have ended meanwhile, which lets another request through.
    let seconds = usize::try_from(start.elapsed().as_secs()).expect("few") + 1;
    assert!(
        (1..=seconds).contains(&written.matches("\"resource spans\": 1, \"spans\": 1").count()),
        "{written}"
    );
    assert!(
        written.contains("\nwork 01010101010101010101010101010101 0202020202020202\n"),
        "{written}"
    );
}

/// The text that was written.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Scenario: a request waits while another one is written, and its delivery ends. Guarantee: it is
/// not written any more, as it comes again; one that stays may wait for any time.
#[tokio::test]
async fn a_request_that_leaves_is_not_written() {
    let config = DebugConfig {
        verbosity: Verbosity::Basic,
        sampling: LogSampling { tick: Duration::from_secs(1), initial: 9, thereafter: 1 },
        use_internal_logger: false,
        output_paths: Vec::new(),
        sending: Sending::default(),
    };
    let shared = Shared { name: "debug".to_owned(), config, sampler: Mutex::default() };
    let page = Page::default();
    let exporter = DebugExporter::new(shared, vec![Box::new(page.clone())]);
    let request = packed(&exporter, Signal::Traces, vec![one_span()]);
    let turn = exporter.outputs.clone().lock_owned().await;
    let mut leaves = exporter.send(&request);
    let stays = tokio::time::timeout(exporter.timeout(), exporter.send(&request));
    let waited = tokio::time::timeout(Duration::from_millis(50), &mut leaves).await;
    assert!(waited.is_err(), "it was not its turn");
    drop((leaves, turn));
    assert_eq!(stays.await, Ok(Outcome::Delivered));
    drop(exporter.outputs.lock().await);
    assert_eq!(exporter.timeout(), Duration::MAX);
    let written = String::from_utf8(page.0.lock().clone()).expect("text");
    assert_eq!(written.matches("\"spans\": 1").count(), 1, "{written}");
}

/// Scenario: a sender's text has characters that drive a terminal, or turn the direction of text.
/// Guarantee: they are escaped; line breaks, tabs and all other text stay.
#[test]
fn control_characters_are_escaped() {
    for (given, expected) in [
        ("plain\n\ttext äß…", "plain\n\ttext äß…"),
        ("\u{1b}[2Ja\r\u{0}\u{7f}", "\\x1b[2Ja\\r\\x00\\x7f"),
        ("\u{9b}31m\u{202e}\u{2066}\u{200f}x", "\\u009b31m\\u202e\\u2066\\u200fx"),
    ] {
        assert_eq!(text::without_controls(given.to_owned()), expected);
    }
}

/// Scenario: a span's name has an escape sequence. Guarantee: the file has none.
#[tokio::test]
async fn no_control_characters_are_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("out.txt");
    for verbosity in ["normal", "detailed"] {
        let options = format!("output_paths: ['{}']\nverbosity: {verbosity}", path.display());
        let exporter = exporter("debug", &format!("use_internal_logger: false\n{options}"));
        let mut bytes = one_span().to_vec();
        let at = bytes.windows(4).position(|it| it == b"work").expect("the name");
        bytes[at + 1] = 0x1b;
        let request = packed(&*exporter, Signal::Traces, vec![bytes.into()]);
        assert_eq!(exporter.send(&request).await, Outcome::Delivered);
        let written = std::fs::read_to_string(&path).expect("reads");
        assert!(written.contains("w\\x1brk") && !written.contains('\u{1b}'), "{written:?}");
    }
}

/// Scenario: values that are not finite, huge or tiny. Guarantee: as Go prints them.
#[test]
fn numbers_are_written_as_in_go() {
    for (value, shortest, fixed) in [
        (f64::INFINITY, "+Inf", "+Inf"),
        (f64::NEG_INFINITY, "-Inf", "-Inf"),
        (f64::NAN, "NaN", "NaN"),
        (1e21, "1e+21", "1000000000000000000000.000000"),
        (-1.5e100, "-1.5e+100", &format!("{:.6}", -1.5e100)),
        (1e20, "100000000000000000000", "100000000000000000000.000000"),
        (0.00025, "0.00025", "0.000250"),
        (0.000025, "2.5e-05", "0.000025"),
        (-0.0, "-0", "-0.000000"),
        (12.5, "12.5", "12.500000"),
    ] {
        assert_eq!((&*text::shortest(value), &*text::fixed(value)), (shortest, fixed), "{value}");
    }
    for (value, expected) in [("1e100", "1e+100"), ("0.000025", "0.000025"), ("2.5e-7", "2.5e-7")] {
        let value = json!({"doubleValue": value});
        assert_eq!(text::any_value(&value), ("Double", expected.to_owned()));
    }
}
