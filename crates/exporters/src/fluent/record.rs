//! One record: its fields, where they lie in the request.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_otlp::wire::{FIXED64, Fields as WireFields, LEN, VARINT};
use sluice_otlp::{AnyValue, Malformed, Value};

use super::layout::{Written, write_key};
use super::notation::{Notation, Parts, RECORD_DEPTH, key_and_value, write_value};
use super::{Stop, check_fields};

/// Fields of a record that are neither in its body nor its attributes, at most.
const OWN_FIELDS: usize = 8;

/// The value of a field.
#[derive(Clone, Copy)]
enum Content<'a> {
    /// An encoded `AnyValue`.
    Encoded(&'a [u8]),
    Number(i64),
    Text(&'a [u8]),
    /// Written in hexadecimal digits.
    Id(&'a [u8]),
    /// As it is written.
    Written(&'a [u8]),
}

/// A list of fields, whose memory is used again for the next record.
#[derive(Default)]
pub(super) struct List<'a>(Vec<(&'a [u8], Content<'a>)>);

/// One record.
pub(crate) struct Record<'l, 'a> {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Each key occurs once.
    fields: &'l [(&'a [u8], Content<'a>)],
}

impl<'a> List<'a> {
    /// Reads an encoded `LogRecord`. `common`: the fields of its resource.
    pub(super) fn read(
        &mut self,
        record: &'a [u8],
        common: &'a [Written],
        limit_bytes: usize,
    ) -> Result<Record<'_, 'a>, Stop> {
        let (mut time_ns, mut observed_ns) = (0, 0);
        let (mut body, mut attributes) = (&[][..], 0);
        let mut own: [Option<(&str, Content<'_>)>; 5] = [None; 5];
        let mut fields = WireFields::of(record);
        while let Some(field) = fields.next_field()? {
            let content = &record[field.content()];
            let filled = Some(content).filter(|content| !content.is_empty());
            match (field.number, field.wire_type) {
                (1, FIXED64) => time_ns = content.try_into().map_or(0, u64::from_le_bytes),
                (11, FIXED64) => observed_ns = content.try_into().map_or(0, u64::from_le_bytes),
                (2, VARINT) => {
                    let number = Content::Number(field.varint(record) as i64);
                    own[0] = Some(("severity_number", number));
                }
                (3, LEN) => own[1] = filled.map(|it| ("severity_text", Content::Text(it))),
                (9, LEN) => own[2] = filled.map(|it| ("trace_id", Content::Id(it))),
                (10, LEN) => own[3] = filled.map(|it| ("span_id", Content::Id(it))),
                (12, LEN) => own[4] = filled.map(|it| ("event_name", Content::Text(it))),
                (5, LEN) => body = content,
                (6, LEN) => attributes += 1,
                _ => {}
            }
        }
        self.0.clear();
        let parts = Parts::of(body)?;
        let in_body = if parts.is_map { parts.len()? } else { 1 };
        let most = in_body + attributes + OWN_FIELDS;
        check_fields(most, limit_bytes)?;
        self.0.reserve_exact(most);
        if parts.is_map {
            parts.each::<Malformed>(|pair| {
                let (key, value) = key_and_value(pair)?;
                self.0.push((key, Content::Encoded(value)));
                Ok(())
            })?;
        } else if Value::read(body) != Value::Empty {
            self.0.push((b"log", Content::Encoded(body)));
        }
        let mut fields = WireFields::of(record);
        while let Some(field) = fields.next_message(6)? {
            let (key, value) = key_and_value(&record[field.content()])?;
            self.0.push((key, Content::Encoded(value)));
        }
        let own = own.into_iter().flatten().map(|(key, value)| (key.as_bytes(), value));
        self.0.extend(own);
        let common = common.iter().map(|(key, text)| (key.as_bytes(), Content::Written(text)));
        self.0.extend(common);
        unique(&mut self.0);
        let time_ns = [time_ns, observed_ns].into_iter().find(|time| *time > 0).unwrap_or_else(now);
        Ok(Record { time_ns, fields: &self.0 })
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Leaves the last value of each key, at the place of the first.
pub(super) fn unique<K: Hash + Eq + Clone, V: Clone>(pairs: &mut Vec<(K, V)>) {
    let mut places: HashMap<K, usize> = HashMap::new();
    let mut kept = 0;
    for index in 0..pairs.len() {
        match places.entry(pairs[index].0.clone()) {
            Entry::Occupied(place) => pairs[*place.get()].1 = pairs[index].1.clone(),
            Entry::Vacant(place) => {
                place.insert(kept);
                pairs.swap(kept, index);
                kept += 1;
            }
        }
    }
    pairs.truncate(kept);
}

impl Record<'_, '_> {
    /// The text of a field. `None`: no field with this name has a text.
    pub(crate) fn text(&self, name: &str) -> Option<&[u8]> {
        let (_, content) = self.fields.iter().find(|(key, _)| *key == name.as_bytes())?;
        match content {
            Content::Text(text) => Some(text),
            Content::Encoded(encoded) => match Value::read(encoded) {
                Value::String(text) => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// Writes the fields as a map. `first`: a field that stands before the others. `without`: the
    /// name of one that is left out.
    ///
    /// # Errors
    /// [`Stop`] if `out` becomes larger than the limit, by at most one value.
    pub(crate) fn write<N: Notation>(
        &self,
        out: &mut Vec<u8>,
        first: Option<(&str, &AnyValue)>,
        without: Option<&str>,
        limit_bytes: usize,
    ) -> Result<(), Stop> {
        let is_left_out = |key: &[u8]| without.is_some_and(|without| without.as_bytes() == key);
        let left_out = self.fields.iter().filter(|(key, _)| is_left_out(key)).count();
        let mut index = 0;
        N::begin_map(out, self.fields.len() - left_out + usize::from(first.is_some()));
        if let Some((key, value)) = first {
            write_key::<N>(out, key.as_bytes(), &mut index);
            write_value::<N>(out, &value.encoded(), RECORD_DEPTH)?;
        }
        for (key, content) in self.fields.iter().filter(|(key, _)| !is_left_out(key)) {
            write_key::<N>(out, key, &mut index);
            match content {
                Content::Encoded(encoded) => write_value::<N>(out, encoded, RECORD_DEPTH)?,
                Content::Number(number) => N::integer(out, *number),
                Content::Text(text) => N::text(out, text),
                Content::Id(id) => {
                    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
                    N::text(out, digits.as_bytes());
                }
                Content::Written(written) => out.extend_from_slice(written),
            }
            if out.len() > limit_bytes {
                break;
            }
        }
        N::end_map(out);
        if out.len() > limit_bytes { Err(Stop::TooLarge { limit_bytes }) } else { Ok(()) }
    }
}
