//! Log lines as records of OTLP.

use std::fmt;
use std::time::SystemTime;

use sluice_otlp::AnyValue;
use sluice_otlp::wire::write_len_field;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use super::metrics::nanoseconds;
use super::{Resource, write_attribute, write_fixed64, write_varint_field};

/// Longer texts are cut.
const TEXT_MAX_BYTES: usize = 8 * 1024;

/// The request of encoded records.
pub fn request(resource: &Resource, records: &[impl AsRef<[u8]>]) -> Vec<u8> {
    resource.request(records.iter().map(AsRef::as_ref))
}

/// An event as an encoded `LogRecord`: its message is the body, its fields are attributes.
pub(crate) fn record(event: &Event<'_>, now: SystemTime) -> Vec<u8> {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let (number, text) = severity(*event.metadata().level());
    let mut record = Vec::new();
    write_fixed64(&mut record, 1, nanoseconds(now));
    write_varint_field(&mut record, 2, number);
    write_len_field(&mut record, 3, text.as_bytes());
    write_len_field(&mut record, 5, &AnyValue::String(fields.message).encoded());
    record.extend_from_slice(&fields.attributes);
    write_fixed64(&mut record, 11, nanoseconds(now));
    record
}

/// The Collector's texts of severities.
fn severity(level: Level) -> (u64, &'static str) {
    match level {
        Level::TRACE => (1, "trace"),
        Level::DEBUG => (5, "debug"),
        Level::INFO => (9, "info"),
        Level::WARN => (13, "warn"),
        Level::ERROR => (17, "error"),
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    attributes: Vec<u8>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: AnyValue) {
        match (field.name(), value) {
            ("message", AnyValue::String(text)) => self.message = text,
            (name, value) => write_attribute(&mut self.attributes, 6, name, &value),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, AnyValue::Double(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, AnyValue::Int(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let text = || AnyValue::String(value.to_string());
        self.add(field, i64::try_from(value).map_or_else(|_| text(), AnyValue::Int));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, AnyValue::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, AnyValue::String(cut(value.to_owned())));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, AnyValue::String(cut(format!("{value:?}"))));
    }
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_MAX_BYTES {
        let mut ends = (0..=TEXT_MAX_BYTES).rev();
        text.truncate(ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0));
    }
    text
}
