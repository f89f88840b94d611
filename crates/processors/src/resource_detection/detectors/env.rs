//! The detector `env`: `OTEL_RESOURCE_ATTRIBUTES`, read as the Collector 0.160 reads it.

use std::sync::LazyLock;

use regex::Regex;
use sluice_flow::BoxFuture;
use sluice_otlp::AnyValue;

use super::super::detector::{Detected, Detector, Failure, Resource};
use super::super::surroundings::Surroundings;

/// The second is deprecated, and counts if the first is empty.
pub(in crate::resource_detection) const VARIABLES: [&str; 2] =
    ["OTEL_RESOURCE_ATTRIBUTES", "OTEL_RESOURCE"];

#[derive(Debug)]
pub(super) struct Env;

/// A pair with the comma after it. A key has 1 to 256 ASCII characters, a value at most 256.
static PAIR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let space = r"[\t\n\f\r ]*";
    let pair = r"([\x00-\x7f]{1,256}?)SP=SP([\x00-\x7f]{0,256}?)SP(?:,|$)";
    Regex::new(&format!("SP{pair}").replace("SP", space)).ok()
});

impl Detector for Env {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(std::future::ready(detect(around)))
    }
}

fn detect(around: &Surroundings) -> Detected {
    for variable in VARIABLES {
        // Bytes that are no UTF-8 have become characters that are refused.
        let text = around.variable(variable).unwrap_or_default();
        if !text.trim().is_empty() {
            let message = |error| format!("the environment variable {variable} {error}");
            let pairs = parse(text.trim()).map_err(|error| Failure::Final(message(error)))?;
            let attributes = pairs.into_iter().map(|(key, text)| (key, AnyValue::String(text)));
            return Ok(Resource { attributes: attributes.collect(), ..Resource::default() });
        }
    }
    Ok(Resource::default())
}

/// Keys, each once, and their values. The error continues "the variable ".
fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut attributes: Vec<(String, String)> = Vec::new();
    let mut end = 0;
    for found in PAIR.iter().flat_map(|pair| pair.captures_iter(text)) {
        let (whole, [key, value]) = found.extract();
        let start = found.get_match().start();
        if start != end {
            return Err(unreadable(&text[end..start]));
        }
        end = start + whole.len();
        let value =
            unescape(value).map_err(|error| format!("has {error} in the attribute {whole:?}"))?;
        match attributes.iter_mut().find(|(known, _)| known == key) {
            Some(known) => known.1 = value,
            None => attributes.push((key.to_owned(), value)),
        }
    }
    if end != text.len() { Err(unreadable(&text[end..])) } else { Ok(attributes) }
}

fn unreadable(text: &str) -> String {
    format!("has {text:?}, which is not of the form `key=value,key=value` in ASCII")
}

/// Decodes as in the query of a URL: `%3A`, and `+` for a space.
fn unescape(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digit = |index: usize| bytes.get(index).and_then(|it| char::from(*it).to_digit(16));
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'%', ..) => {
                let escape = String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)]);
                return Err(format!("an invalid escape {escape:?} (a `%` is written `%25`)"));
            }
            (b'+', ..) => decoded.push(b' '),
            (byte, ..) => decoded.push(*byte),
        }
        at += 1;
    }
    String::from_utf8(decoded).map_err(|_| "escapes that are not UTF-8".to_owned())
}
