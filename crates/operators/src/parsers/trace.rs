//! `trace_parser`: the ids of trace and span, and the flags, from hexadecimal texts.

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use super::values::{excerpt, kind_of, read_source};
use crate::field::Field;
use crate::operator::Transform;
use crate::record::Record;

#[derive(Clone)]
pub(super) struct Trace {
    trace_id: Field,
    span_id: Field,
    flags: Field,
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    Some(Box::new(Trace::read(fields)?))
}

impl Trace {
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Trace> {
        let mut part = |key: &str, default: &str| {
            fields.section_or_default(key, "A part of the trace context.", |fields| {
                read_source(fields, Some(default), "The field with the hexadecimal text.")
            })
        };
        let trace_id = part("trace_id", "body.trace_id");
        let span_id = part("span_id", "body.span_id");
        let flags = part("trace_flags", "body.trace_flags");
        Some(Trace { trace_id: trace_id?, span_id: span_id?, flags: flags? })
    }

    /// Parts without a field are cleared, as in the Collector; one that is wrong changes nothing.
    pub(super) fn set(&self, record: &mut Record) -> Result<(), String> {
        let trace_id = bytes_at::<16>(&self.trace_id, record)?;
        let span_id = bytes_at::<8>(&self.span_id, record)?;
        let flags = bytes_at::<1>(&self.flags, record)?;
        record.trace_id = trace_id;
        record.span_id = span_id;
        record.trace_flags = flags;
        Ok(())
    }
}

impl Transform for Trace {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        self.set(record)
    }
}

/// The bytes of a hexadecimal text, cut or filled with zeros to their number; none without a field.
fn bytes_at<const LEN: usize>(field: &Field, record: &Record) -> Result<Vec<u8>, String> {
    let Some(value) = field.get(record) else { return Ok(Vec::new()) };
    let number;
    let text = match value {
        AnyValue::String(text) => text.as_str(),
        AnyValue::Int(value) => {
            number = value.to_string();
            &number
        }
        AnyValue::Double(value) => {
            number = value.to_string();
            &number
        }
        _ => return Err(format!("`{field}` is {}, not hexadecimal", kind_of(value))),
    };
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    let mut bytes =
        bytes.ok_or_else(|| format!("`{field}` is {}, not hexadecimal", excerpt(text)))?;
    if !bytes.is_empty() {
        bytes.resize(LEN, 0);
    }
    Ok(bytes)
}
