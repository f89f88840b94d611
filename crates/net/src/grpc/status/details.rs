//! `google.rpc.Status`, `google.protobuf.Any`, `google.rpc.RetryInfo` and
//! `google.protobuf.Duration` on the wire.

use crate::grpc::answer::{Fields, Value};
use std::time::Duration;

use super::{Code, RETRY_INFO_TYPE, Status};
use crate::text::cut;

/// google.rpc.Status: code = 1 (int32), message = 2 (string), details = 3 (repeated Any).
pub(super) fn encode(status: &Status) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 + status.message.len());
    if status.code != Code::Ok {
        bytes.extend_from_slice(&[0x08, status.code.number()]);
    }
    let message = cut(&status.message);
    if !message.is_empty() {
        put_bytes(&mut bytes, 2, message.as_bytes());
    }
    if let Some(delay) = status.retry_delay {
        let mut any = Vec::with_capacity(64);
        put_bytes(&mut any, 1, RETRY_INFO_TYPE.as_bytes());
        put_bytes(&mut any, 2, &encode_retry_info(delay));
        put_bytes(&mut bytes, 3, &any);
    }
    bytes
}

/// RetryInfo: retry_delay = 1 (Duration: seconds = 1, nanos = 2).
fn encode_retry_info(delay: Duration) -> Vec<u8> {
    let mut duration = Vec::with_capacity(16);
    if delay.as_secs() > 0 {
        duration.push(0x08);
        put_varint(&mut duration, delay.as_secs().min(i64::MAX as u64));
    }
    if delay.subsec_nanos() > 0 {
        duration.push(0x10);
        put_varint(&mut duration, u64::from(delay.subsec_nanos()));
    }
    let mut info = Vec::with_capacity(18);
    put_bytes(&mut info, 1, &duration);
    info
}

fn put_bytes(into: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    into.push(field << 3 | 2);
    put_varint(into, bytes.len() as u64);
    into.extend_from_slice(bytes);
}

fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

pub(super) fn decode(bytes: &[u8]) -> Option<Status> {
    let mut status = Status::ok();
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Number(code)) => status.code = Code::from_number(code),
            (2, Value::Bytes(message)) => {
                status.message = cut(&String::from_utf8_lossy(message)).to_owned();
            }
            (3, Value::Bytes(any)) => status.retry_delay = status.retry_delay.or(decode_any(any)?),
            _ => {}
        }
    }
    Some(status)
}

pub(super) fn decode_retry_delay(bytes: &[u8]) -> Option<Duration> {
    decode(bytes)?.retry_delay
}

/// The delay, if this detail is a RetryInfo. The outer `None` means malformed, here and below.
fn decode_any(any: &[u8]) -> Option<Option<Duration>> {
    // Only the last segment of the URL names the type.
    if !bytes_of(any, 1)?.ends_with(b"/google.rpc.RetryInfo") {
        return Some(None);
    }
    let duration = bytes_of(bytes_of(any, 2)?, 1)?;
    let (seconds, nanos) = (number_of(duration, 1)?, number_of(duration, 2)?);
    let nanos = nanos.clamp(0, 999_999_999) as u32;
    // Negative durations count as zero.
    let delay = u64::try_from(seconds).map_or(Duration::ZERO, |secs| Duration::new(secs, nanos));
    Some(Some(delay))
}

fn bytes_of(message: &[u8], field: u64) -> Option<&[u8]> {
    let value = last(message, field)?;
    Some(if let Some(Value::Bytes(bytes)) = value { bytes } else { &[] })
}

fn number_of(message: &[u8], field: u64) -> Option<i64> {
    let value = last(message, field)?;
    Some(if let Some(Value::Number(number)) = value { number as i64 } else { 0 })
}

/// The last value of a field counts.
fn last(message: &[u8], field: u64) -> Option<Option<Value<'_>>> {
    let (mut fields, mut found) = (Fields::new(message), None);
    while let Some((number, value)) = fields.next()? {
        if number == field {
            found = Some(value);
        }
    }
    Some(found)
}
