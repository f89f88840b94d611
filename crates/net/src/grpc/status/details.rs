//! `google.rpc.Status`, `google.protobuf.Any`, `google.rpc.RetryInfo` and
//! `google.protobuf.Duration` on the wire.

use std::time::Duration;

use sluice_otlp::wire::{Fields, LEN, VARINT, write_len_field, write_varint};

use super::{Code, RETRY_INFO_TYPE, Status};
use crate::text::cut;

impl Status {
    /// The encoded `google.rpc.Status`: also the body of OTLP's HTTP errors. Its fields: code = 1
    /// (int32), message = 2 (string), details = 3 (repeated Any).
    pub fn encode_details(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.message.len());
        if self.code != Code::Ok {
            bytes.extend_from_slice(&[0x08, self.code.number()]);
        }
        let message = cut(&self.message);
        if !message.is_empty() {
            write_len_field(&mut bytes, 2, message.as_bytes());
        }
        if let Some(delay) = self.retry_delay {
            let mut any = Vec::with_capacity(64);
            write_len_field(&mut any, 1, RETRY_INFO_TYPE.as_bytes());
            write_len_field(&mut any, 2, &encode_retry_info(delay));
            write_len_field(&mut bytes, 3, &any);
        }
        bytes
    }

    /// Reads an encoded `google.rpc.Status`, the body of OTLP's HTTP errors. `None`: malformed.
    pub fn decode_details(bytes: &[u8]) -> Option<Status> {
        let mut status = Status::ok();
        let mut fields = Fields::of(bytes);
        while let Some(field) = fields.next_field().ok()? {
            let content = &bytes[field.content()];
            match (field.number, field.wire_type) {
                (1, VARINT) => status.code = Code::from_number(field.varint(bytes)),
                (2, LEN) => status.message = cut(&String::from_utf8_lossy(content)).to_owned(),
                (3, LEN) => status.retry_delay = status.retry_delay.or(decode_any(content)?),
                _ => {}
            }
        }
        Some(status)
    }
}

/// RetryInfo: retry_delay = 1 (Duration: seconds = 1, nanos = 2).
fn encode_retry_info(delay: Duration) -> Vec<u8> {
    let mut duration = Vec::with_capacity(16);
    if delay.as_secs() > 0 {
        duration.push(0x08);
        write_varint(&mut duration, delay.as_secs().min(i64::MAX as u64));
    }
    if delay.subsec_nanos() > 0 {
        duration.push(0x10);
        write_varint(&mut duration, u64::from(delay.subsec_nanos()));
    }
    let mut info = Vec::with_capacity(18);
    write_len_field(&mut info, 1, &duration);
    info
}

/// The delay, if this detail is a RetryInfo. The outer `None` means malformed, here and below.
fn decode_any(any: &[u8]) -> Option<Option<Duration>> {
    let (type_url, _) = last(any, 1)?;
    // Only the last segment of the URL names the type.
    if !type_url.ends_with(b"/google.rpc.RetryInfo") {
        return Some(None);
    }
    let (info, _) = last(any, 2)?;
    let (duration, _) = last(info, 1)?;
    let ((_, seconds), (_, nanos)) = (last(duration, 1)?, last(duration, 2)?);
    let nanos = (nanos as i64).clamp(0, 999_999_999) as u32;
    // Negative durations count as zero.
    let delay = i64::try_from(seconds).map_or(Duration::ZERO, |_| Duration::new(seconds, nanos));
    Some(Some(delay))
}

/// The last value of a field counts: its content, and its number if it is one.
fn last(message: &[u8], number: u32) -> Option<(&[u8], u64)> {
    let (mut fields, mut found) = (Fields::of(message), (&[][..], 0));
    while let Some(field) = fields.next_field().ok()? {
        if field.number == number {
            let content = if field.wire_type == LEN { &message[field.content()] } else { &[] };
            found = (content, field.varint(message));
        }
    }
    Some(found)
}
