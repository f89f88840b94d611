//! `google.rpc.Status`, `google.protobuf.Any`, `google.rpc.RetryInfo` and
//! `google.protobuf.Duration` on the wire.

use crate::grpc::answer::{Fields, Value};
use std::time::Duration;

use super::{Code, RETRY_INFO_TYPE, Status, cut, cut_str};

/// google.rpc.Status: code = 1 (int32), message = 2 (string), details = 3 (repeated Any).
pub(super) fn encode(status: &Status) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 + status.message.len());
    if status.code != Code::Ok {
        bytes.extend_from_slice(&[0x08, status.code.number()]);
    }
    let message = cut_str(&status.message);
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
                status.message = cut(String::from_utf8_lossy(message).into_owned())
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

/// The delay, if this detail is a RetryInfo. The outer `None` means malformed.
fn decode_any(bytes: &[u8]) -> Option<Option<Duration>> {
    let (mut type_url, mut value) = (&b""[..], &b""[..]);
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(bytes)) => type_url = bytes,
            (2, Value::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    // Only the last segment of the URL names the type.
    if !type_url.ends_with(b"/google.rpc.RetryInfo") {
        return Some(None);
    }
    let mut delay = Duration::ZERO;
    let mut fields = Fields::new(value);
    while let Some(field) = fields.next()? {
        if let (1, Value::Bytes(duration)) = field {
            delay = decode_duration(duration)?;
        }
    }
    Some(Some(delay))
}

/// Negative durations count as zero.
fn decode_duration(bytes: &[u8]) -> Option<Duration> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Number(number)) => seconds = number as i64,
            (2, Value::Number(number)) => nanos = number as i64,
            _ => {}
        }
    }
    let nanos = u32::try_from(nanos.clamp(0, 999_999_999)).ok()?;
    Some(u64::try_from(seconds).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanos)))
}
