//! Lines of `--out json`: definitions of metrics, and samples of them.

use std::borrow::Cow;

use memchr::{memchr, memmem};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::samples::{Fault, Read, Sample, Tags};

const NO_JSON: Fault = Fault("is no JSON of k6: want `metric`, `type` and `data`");
const NO_SAMPLE: Fault = Fault("is no sample: want `data` with `time`, `value` and `tags`");

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    metric: Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    data: Data<'a>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    time: Cow<'a, str>,
    value: Option<f64>,
    tags: Option<Map<String, Value>>,
}

/// Reads a line.
pub(super) fn read(line: &[u8]) -> Result<Read<'_>, Fault> {
    if let Some(sample) = quick(line) {
        return Ok(Read::Sample(sample));
    }
    let entry: Entry<'_> = serde_json::from_slice(line).map_err(|_| NO_JSON)?;
    match &*entry.kind {
        "Metric" if entry.data.kind == "counter" => Ok(Read::Counter(entry.metric)),
        "Metric" => Ok(Read::Nothing),
        "Point" => {
            let Some(value) = entry.data.value else { return Err(NO_SAMPLE) };
            let tags = Tags::Read(entry.data.tags.map(pairs_of).unwrap_or_default());
            let (name, time) = (entry.metric, entry.data.time);
            Ok(Read::Sample(Sample { name, time, value, tags }))
        }
        _ => Err(NO_JSON),
    }
}

/// Reads a sample that is written as k6 writes it, but for its tags. `None`: it may be written
/// another way.
fn quick(line: &[u8]) -> Option<Sample<'_>> {
    let rest = line.strip_prefix(br#"{"metric":""#)?;
    let (name, rest) = until_quote(rest)?;
    let rest = rest.strip_prefix(br#","type":"Point","data":{"time":""#)?;
    let (time, rest) = until_quote(rest)?;
    let rest = rest.strip_prefix(br#","value":"#)?;
    let end = memchr(b',', rest)?;
    let value = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    let rest = rest[end..].strip_prefix(br#","tags":"#)?;
    let tags = rest.strip_suffix(b"}}")?;
    // Metadata may follow. A tag may have this text as well, and is read the long way too.
    let is_object = tags.first() == Some(&b'{')
        && tags.last() == Some(&b'}')
        && memmem::find(tags, br#"},""#).is_none();
    is_object.then_some(Sample {
        name: Cow::Borrowed(name),
        time: Cow::Borrowed(time),
        value,
        tags: Tags::Json(tags),
    })
}

/// The text before a quote, if nothing in it is escaped, and what follows the quote.
fn until_quote(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = memchr(b'"', bytes)?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    (!text.contains('\\')).then_some((text, &bytes[end + 1..]))
}

/// Reads the tags that [`quick`] found.
pub(super) fn tags(raw: &[u8]) -> Option<Vec<(String, String)>> {
    serde_json::from_slice(raw).ok().map(pairs_of)
}

fn pairs_of(map: Map<String, Value>) -> Vec<(String, String)> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    map.into_iter().map(|(key, value)| (key, text(value))).collect()
}
