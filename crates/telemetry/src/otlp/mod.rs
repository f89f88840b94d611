//! Own telemetry as OTLP requests.

pub mod logs;
pub mod metrics;

use sluice_otlp::AnyValue;
use sluice_otlp::wire::{write_len_field, write_varint};

/// The name of the instrumentation scope.
const SCOPE: &str = "sluice";

/// The process as OTLP names it, encoded once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The fields of a `ResourceMetrics` or a `ResourceLogs` before its content.
    head: Vec<u8>,
    /// Those after it.
    tail: Vec<u8>,
    /// The encoded scope.
    scope: Vec<u8>,
}

impl Resource {
    /// `version`: of the instrumentation scope.
    pub fn new(
        attributes: &[(String, AnyValue)],
        schema_url: Option<&str>,
        version: &str,
    ) -> Resource {
        let mut resource = Vec::new();
        attributes.iter().for_each(|(name, value)| write_attribute(&mut resource, 1, name, value));
        let (mut head, mut tail, mut scope) = (Vec::new(), Vec::new(), Vec::new());
        write_len_field(&mut head, 1, &resource);
        if let Some(url) = schema_url {
            write_len_field(&mut tail, 3, url.as_bytes());
        }
        write_len_field(&mut scope, 1, SCOPE.as_bytes());
        write_len_field(&mut scope, 2, version.as_bytes());
        Resource { head, tail, scope }
    }

    /// The request of these encoded items: in all signals, the numbers of the fields are the same.
    fn request<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut of_scope = Vec::new();
        write_len_field(&mut of_scope, 1, &self.scope);
        items.into_iter().for_each(|item| write_len_field(&mut of_scope, 2, item));
        let mut of_resource = self.head.clone();
        write_len_field(&mut of_resource, 2, &of_scope);
        of_resource.extend_from_slice(&self.tail);
        let mut request = Vec::with_capacity(of_resource.len() + 6);
        write_len_field(&mut request, 1, &of_resource);
        request
    }
}

fn write_attribute(out: &mut Vec<u8>, number: u32, name: &str, value: &AnyValue) {
    let mut pair = Vec::new();
    write_len_field(&mut pair, 1, name.as_bytes());
    write_len_field(&mut pair, 2, &value.encoded());
    write_len_field(out, number, &pair);
}

fn write_fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    write_varint(out, u64::from(number << 3 | 1));
    out.extend_from_slice(&value.to_le_bytes());
}

fn write_varint_field(out: &mut Vec<u8>, number: u32, value: u64) {
    write_varint(out, u64::from(number << 3));
    write_varint(out, value);
}

#[cfg(test)]
mod tests;
