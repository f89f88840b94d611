//! Paths to a part of a record: `body`, `body.message`, `attributes["log.file.name"]`.

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

    /// A copy of the value here; of whole attributes as a map.
    pub fn copied(&self, record: &Record) -> Option<AnyValue> {
        match (self.root, self.keys.is_empty()) {
            (Root::Attributes, true) => Some(AnyValue::Map(record.attributes.clone())),
            (Root::Resource, true) => Some(AnyValue::Map(record.resource.clone())),
            _ => self.get(record).cloned(),
        }
    }

    /// Puts the value here; a map is merged into a map that is there. Maps on the way are made
    /// where there are none.
    ///
    /// # Errors
    /// The whole attributes or resource can only be a map.
    pub fn set(&self, record: &mut Record, value: AnyValue) -> Result<(), String> {
        let Some((last, way)) = self.keys.split_last() else {
            let root = match self.root {
                Root::Body => {
                    merge(&mut record.body, value);
                    return Ok(());
                }
                Root::Attributes => &mut record.attributes,
                Root::Resource => &mut record.resource,
            };
            let AnyValue::Map(map) = value else {
                return Err("attributes and resource can only be set to a map".to_owned());
            };
            map.into_iter().for_each(|(key, value)| put(root, key, value));
            return Ok(());
        };
        let root = match self.root {
            Root::Body => made_map(&mut record.body),
            Root::Attributes => &mut record.attributes,
            Root::Resource => &mut record.resource,
        };
        let map = way.iter().fold(root, |map, key| made_map(entry(map, key)));
        merge(entry(map, last), value);
        Ok(())
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

/// Replaces the value; of two maps, only the keys that the new one has.
fn merge(place: &mut AnyValue, value: AnyValue) {
    match (place, value) {
        (AnyValue::Map(map), AnyValue::Map(new)) => {
            new.into_iter().for_each(|(key, value)| put(map, key, value));
        }
        (place, value) => *place = value,
    }
}

/// Sets the key's value, whether or not it is there.
pub(crate) fn put(map: &mut Map, key: String, value: AnyValue) {
    match map.iter_mut().find(|(name, _)| *name == key) {
        Some((_, place)) => *place = value,
        None => map.push((key, value)),
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
}
