//! Paths to a part of a record: `body`, `body.message`, `attributes["log.file.name"]`.

use std::collections::HashMap;
use std::fmt;
use std::mem;

use sluice_otlp::AnyValue;

use crate::record::Record;

/// The part of a record in which a [`Field`] begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    Body,
    Attributes,
    Resource,
}

/// A path within a record. Without keys it is the whole root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub root: Root,
    pub keys: Vec<String>,
}

/// Maps within maps to which a path may lead.
const KEYS_LIMIT: usize = 16;

type Map = Vec<(String, AnyValue)>;

impl Field {
    pub fn body() -> Field {
        Field { root: Root::Body, keys: Vec::new() }
    }

    pub fn attributes() -> Field {
        Field { root: Root::Attributes, keys: Vec::new() }
    }

    /// The name, if it is an attribute as a whole.
    pub(crate) fn attribute(&self) -> Option<&str> {
        match (self.root, self.keys.as_slice()) {
            (Root::Attributes, [name]) => Some(name),
            _ => None,
        }
    }

    /// Reads the Collector's spelling: keys behind points, or quoted in brackets.
    ///
    /// # Errors
    /// The reason, in a line.
    pub fn parse(text: &str) -> Result<Field, String> {
        let mut keys = split(text)?.into_iter();
        let root = match keys.next().as_deref() {
            Some("body" | "$body") => Root::Body,
            Some("attributes" | "$attributes") => Root::Attributes,
            Some("resource" | "$resource") => Root::Resource,
            _ => return Err("must begin with `body`, `attributes` or `resource`".to_owned()),
        };
        let keys: Vec<String> = keys.collect();
        if keys.len() > KEYS_LIMIT {
            return Err(format!("has more than {KEYS_LIMIT} keys"));
        }
        Ok(Field { root, keys })
    }

    /// The value here. The whole attributes are no value of their own: see [`Field::copied`].
    pub fn get<'r>(&self, record: &'r Record) -> Option<&'r AnyValue> {
        let Some((first, rest)) = self.keys.split_first() else {
            return (self.root == Root::Body).then_some(&record.body);
        };
        let map = match self.root {
            Root::Body => as_map(&record.body)?,
            Root::Attributes => &record.attributes,
            Root::Resource => &record.resource,
        };
        rest.iter().try_fold(find(map, first)?, |value, key| find(as_map(value)?, key))
    }

    /// The reason of a failure: it is not in the record.
    pub(crate) fn missing(&self) -> String {
        format!("the record has no `{self}`")
    }

    /// A copy of the value here; of whole attributes as a map.
    pub fn copied(&self, record: &Record) -> Option<AnyValue> {
        match (self.root, self.keys.is_empty()) {
            (Root::Attributes, true) => Some(AnyValue::Map(record.attributes.clone())),
            (Root::Resource, true) => Some(AnyValue::Map(record.resource.clone())),
            _ => self.get(record).cloned(),
        }
    }

    /// Puts the value here; a map extends a map that is there. Maps on the way are made where there
    /// are none.
    ///
    /// # Errors
    /// The whole attributes or resource can only be a map.
    pub fn set(&self, record: &mut Record, value: AnyValue) -> Result<(), String> {
        match (value, self.keys.split_last()) {
            (AnyValue::Map(map), _) => self.extend(record, map, false),
            (value, Some((last, way))) => put(self.map(record, way), last, value),
            (value, None) if self.root == Root::Body => record.body = value,
            _ => return Err("attributes and resource can only be set to a map".to_owned()),
        }
        Ok(())
    }

    /// Adds entries to the map here, as [`merge_maps`] does.
    pub(crate) fn extend(&self, record: &mut Record, map: Map, is_deep: bool) {
        merge_maps(self.map(record, &self.keys), map, is_deep);
    }

    /// The map behind these keys, which is made if there is none.
    fn map<'r>(&self, record: &'r mut Record, keys: &[String]) -> &'r mut Map {
        let root = match self.root {
            Root::Body => made_map(&mut record.body),
            Root::Attributes => &mut record.attributes,
            Root::Resource => &mut record.resource,
        };
        keys.iter().fold(root, |map, key| made_map(entry(map, key)))
    }

    /// Takes the value out of the record.
    pub fn take(&self, record: &mut Record) -> Option<AnyValue> {
        let Some((last, way)) = self.keys.split_last() else {
            return match self.root {
                Root::Body => Some(mem::replace(&mut record.body, AnyValue::Empty)),
                Root::Attributes => Some(AnyValue::Map(mem::take(&mut record.attributes))),
                Root::Resource => Some(AnyValue::Map(mem::take(&mut record.resource))),
            };
        };
        let root = match self.root {
            Root::Body => as_map_mut(&mut record.body)?,
            Root::Attributes => &mut record.attributes,
            Root::Resource => &mut record.resource,
        };
        let map = way.iter().try_fold(root, |map, key| {
            as_map_mut(&mut map.iter_mut().find(|(name, _)| name == key)?.1)
        })?;
        let place = map.iter().position(|(name, _)| name == last)?;
        Some(map.remove(place).1)
    }
}

/// As the configuration writes it.
impl fmt::Display for Field {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self.root {
            Root::Body => "body",
            Root::Attributes => "attributes",
            Root::Resource => "resource",
        })?;
        for key in &self.keys {
            if key.contains(['.', '[']) {
                write!(out, "[\"{key}\"]")?;
            } else {
                write!(out, ".{key}")?;
            }
        }
        Ok(())
    }
}

fn as_map(value: &AnyValue) -> Option<&Map> {
    if let AnyValue::Map(map) = value { Some(map) } else { None }
}

fn as_map_mut(value: &mut AnyValue) -> Option<&mut Map> {
    if let AnyValue::Map(map) = value { Some(map) } else { None }
}

/// The map that the value is; it becomes an empty one if it was none.
fn made_map(value: &mut AnyValue) -> &mut Map {
    if !matches!(value, AnyValue::Map(_)) {
        *value = AnyValue::Map(Map::new());
    }
    let AnyValue::Map(map) = value else { unreachable!("it was made") };
    map
}

fn find<'m>(map: &'m Map, key: &str) -> Option<&'m AnyValue> {
    map.iter().find(|(name, _)| name == key).map(|(_, value)| value)
}

fn entry<'m>(map: &'m mut Map, key: &str) -> &'m mut AnyValue {
    let found = map.iter().position(|(name, _)| name == key);
    let place = found.unwrap_or_else(|| {
        map.push((key.to_owned(), AnyValue::Empty));
        map.len() - 1
    });
    &mut map[place].1
}

/// Adds entries. A key that is there gets the new value; if `is_deep`, a map there is extended by a
/// map. Both maps have each key once.
pub(crate) fn merge_maps(into: &mut Map, from: Map, is_deep: bool) {
    /// Comparisons up to which a search costs less than a table of places.
    const FEW: usize = 1024;
    if into.is_empty() {
        *into = from;
        return;
    }
    // Keys of `from` are unique, so that only those that were there can be met again.
    let known = into.len();
    let mut places: HashMap<String, usize> = HashMap::new();
    let has_table = known.saturating_mul(from.len()) > FEW;
    if has_table {
        places = into.iter().enumerate().map(|(place, (key, _))| (key.clone(), place)).collect();
    }
    for (key, value) in from {
        let place = match has_table {
            true => places.get(&key).copied(),
            false => into[..known].iter().position(|(name, _)| *name == key),
        };
        match (place, value) {
            (Some(place), AnyValue::Map(map)) if is_deep => {
                merge_maps(made_map(&mut into[place].1), map, false);
            }
            (Some(place), value) => into[place].1 = value,
            (None, value) => into.push((key, value)),
        }
    }
}

/// Sets the key's value, whether or not it is there.
pub(crate) fn put(map: &mut Map, key: &str, value: AnyValue) {
    match map.iter_mut().find(|(name, _)| name == key) {
        Some((_, place)) => *place = value,
        None => map.push((key.to_owned(), value)),
    }
}

/// Splits at points and brackets: `a.b["c.d"]` is `a`, `b`, `c.d`.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut keys = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(bracketed) = rest.strip_prefix('[') {
            let quote = bracketed.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
            let quote = quote.ok_or("needs quotes behind `[`")?;
            let (key, behind) =
                bracketed[1..].split_once(quote).ok_or("has a quote without its end")?;
            keys.push(key.to_owned());
            rest = behind.strip_prefix(']').ok_or("needs `]` behind the quoted key")?;
            rest = match rest.strip_prefix('.') {
                Some("") => return Err("ends with a point".to_owned()),
                Some(behind) => behind,
                None if rest.is_empty() || rest.starts_with('[') => rest,
                None => return Err("needs a point behind `]`".to_owned()),
            };
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            keys.push(rest[..end].to_owned());
            rest = match rest[end..].strip_prefix('.') {
                Some("") => return Err("ends with a point".to_owned()),
                Some(behind) => behind,
                None => &rest[end..],
            };
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Origin;

    fn keys(text: &str) -> Result<Vec<String>, String> {
        Field::parse(text).map(|field| field.keys)
    }

    #[test]
    fn paths_are_written_with_points_or_brackets() {
        let cases: [(&str, &[&str]); 6] = [
            ("body", &[]),
            ("body.a.b", &["a", "b"]),
            ("attributes[\"a.b\"]", &["a.b"]),
            ("attributes['a.b'].c", &["a.b", "c"]),
            ("resource.a['b'][\"c\"]", &["a", "b", "c"]),
            ("body['it\"s']", &["it\"s"]),
        ];
        for (text, expected) in cases {
            assert_eq!(keys(text).unwrap(), expected, "{text}");
        }
        for text in ["", "bodys", "a.b", "body.", "body[a]", "body['a'", "body['a']b", "body['a"] {
            assert!(keys(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_put_read_and_taken() {
        let origin = Origin { stream: 0, range: 0..1 };
        let mut record = Record::new(AnyValue::String("text".into()), 0, origin);
        let deep = Field::parse("attributes.a['b.c']").unwrap();
        assert_eq!(deep.get(&record), None);
        deep.set(&mut record, AnyValue::Int(1)).unwrap();
        assert_eq!(deep.get(&record), Some(&AnyValue::Int(1)));
        deep.set(&mut record, AnyValue::Int(2)).unwrap();
        assert_eq!(deep.take(&mut record), Some(AnyValue::Int(2)));
        assert_eq!(deep.take(&mut record), None);
        assert!(Field::attributes().set(&mut record, AnyValue::Int(1)).is_err());
        let map = |key: &str| AnyValue::Map(vec![(key.to_owned(), AnyValue::Int(3))]);
        let shallow = Field::parse("attributes.m").unwrap();
        shallow.set(&mut record, map("one")).unwrap();
        shallow.set(&mut record, map("two")).unwrap();
        let AnyValue::Map(merged) = shallow.get(&record).unwrap() else { panic!("a map") };
        assert_eq!(merged.len(), 2);
        assert_eq!(Field::body().take(&mut record), Some(AnyValue::String("text".into())));
    }

    /// Guarantee: many keys are merged as few are, and in a time that does not grow with their
    /// square.
    #[test]
    fn large_maps_are_merged_as_small_ones() {
        let of = |keys: std::ops::Range<usize>, value: i64| -> Map {
            keys.map(|key| (key.to_string(), AnyValue::Int(value))).collect()
        };
        for (known, new) in [(10, 20), (200_000, 300_000)] {
            let mut map = of(0..known, 1);
            merge_maps(&mut map, of(known / 2..new, 2), false);
            assert_eq!(map.len(), new);
            assert_eq!(
                [&map[known / 2 - 1].1, &map[known / 2].1],
                [&AnyValue::Int(1), &AnyValue::Int(2)]
            );
        }
        let nested = |map: Map| vec![("k".to_owned(), AnyValue::Map(map))];
        for (is_deep, len) in [(true, 2), (false, 1)] {
            let mut map = nested(of(0..1, 1));
            merge_maps(&mut map, nested(of(1..2, 1)), is_deep);
            let AnyValue::Map(inner) = &map[0].1 else { panic!("a map") };
            assert_eq!(inner.len(), len);
        }
    }
}
