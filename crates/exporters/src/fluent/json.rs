//! Values as plain JSON.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sluice_otlp::AnyValue;

/// Writes the value. Bytes become base64; a number that JSON does not have becomes `null`.
pub(crate) fn write_json(out: &mut Vec<u8>, value: &AnyValue) {
    match value {
        AnyValue::Empty => out.extend_from_slice(b"null"),
        AnyValue::String(text) => write_text(out, text),
        AnyValue::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        AnyValue::Int(value) => _ = write!(out, "{value}"),
        AnyValue::Double(value) => write_number(out, *value),
        AnyValue::Bytes(bytes) => write_text(out, &STANDARD.encode(bytes)),
        AnyValue::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                out.push(if index == 0 { b'[' } else { b',' });
                write_json(out, value);
            }
            out.extend_from_slice(if values.is_empty() { b"[]" } else { b"]" });
        }
        AnyValue::Map(pairs) => {
            for (index, (key, value)) in pairs.iter().enumerate() {
                out.push(if index == 0 { b'{' } else { b',' });
                write_text(out, key);
                out.push(b':');
                write_json(out, value);
            }
            out.extend_from_slice(if pairs.is_empty() { b"{}" } else { b"}" });
        }
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing into memory does not fail.
    _ = serde_json::to_writer(out, text);
}

fn write_number(out: &mut Vec<u8>, value: f64) {
    _ = serde_json::to_writer(out, &value);
}
