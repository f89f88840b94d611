//! Small requests of which very much text could be made.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::ResourceLogs;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::*;
use crate::tests::packed;

/// Text up to a limit, behind which writing fails.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<String>>);

const PAGE_BYTES: usize = TEXT_LIMIT_BYTES + 1024;

impl Write for Page {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let mut page = self.0.lock();
        if page.len() + text.len() > PAGE_BYTES {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        page.push_str(std::str::from_utf8(text).map_err(std::io::Error::other)?);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn message(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    prost::encoding::encode_varint(content.len() as u64, &mut message);
    message.extend(content);
    message
}

/// A resource with an attribute of this length, and a scope with empty records.
fn resource(attribute_bytes: usize, records: usize) -> Vec<u8> {
    let value = any_value::Value::StringValue("x".repeat(attribute_bytes));
    let value = Some(AnyValue { value: Some(value) });
    let attributes = vec![KeyValue { key: "long".to_owned(), value, ..KeyValue::default() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource = ResourceLogs { resource, ..ResourceLogs::default() }.encode_to_vec();
    let scope = message(0x12, &[0x12, 0].repeat(records));
    message(0x0a, &[resource, scope].concat())
}

/// The text of one request.
async fn written(verbosity: Verbosity, resources: &[Vec<u8>], items: u32) -> String {
    let config = DebugConfig {
        verbosity,
        sampling: LogSampling { tick: Duration::from_secs(1), initial: 9, thereafter: 1 },
        use_internal_logger: false,
        output_paths: Vec::new(),
        sending: Sending::default(),
    };
    let shared = Shared { name: "debug".to_owned(), config, sampler: Mutex::default() };
    let page = Page::default();
    let exporter = DebugExporter::new(shared, vec![Box::new(page.clone())]);
    let request = packed(&exporter, Signal::Logs, vec![resources.concat().into()]);
    let request = Packed { items, ..request };
    assert_eq!(exporter.send(&request).await, Outcome::Delivered, "{verbosity:?}");
    std::mem::take(&mut *page.0.lock())
}

/// Scenario: 700,000 empty records share a resource that is longer than a piece. Guarantee: it is
/// not written for each of them, the text ends at its limit, and its last line counts what is
/// missing.
#[tokio::test]
async fn the_text_of_a_request_is_bounded() {
    const RECORDS: usize = 700_000;
    let request = [resource(300 * 1024, RECORDS)];
    let text = written(Verbosity::Detailed, &request, RECORDS as u32).await;
    let records = text.matches("LogRecord #").count();
    assert!(records > RECORDS / 10, "{records}");
    let expected = format!(
        "\n({} more items are not written: the text of a request has at most 64 MiB)\n",
        RECORDS - records
    );
    assert!(text.ends_with(&expected), "{}: {}", expected, &text[text.len() - 200..]);
    let text = written(Verbosity::Normal, &request, RECORDS as u32).await;
    let copies = text.matches("ResourceLog #0").count();
    assert!(copies <= RECORDS / 10_000 && !text.contains("not written"), "{copies}");
}

/// Scenario: 20,000 records share a resource that is too large to be written, and another resource
/// follows. Guarantee: one line says so, and the other resource is written.
#[tokio::test]
async fn a_resource_that_is_too_large_is_named_once() {
    let resources = [resource(1_200_000, 20_000), resource(5, 3)];
    for verbosity in [Verbosity::Normal, Verbosity::Detailed] {
        let text = written(verbosity, &resources, 20_003).await;
        assert!(text.contains("xxxxx") && text.len() < 10_000, "{verbosity:?}: {}", text.len());
        assert_eq!(text.matches("not written").count(), 1, "{text}");
        let expected = "\n(20000 items are not written: with its resource, scope and metric each \
                        takes more than 1 MiB as JSON)\n";
        assert!(text.ends_with(expected), "{text}");
    }
}
