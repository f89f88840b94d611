//! The attributes of one message, read in place and changed by splicing.

use std::ops::Range;

use super::splices::Splices;
use crate::value::Value;
use crate::wire::{Fields, Result, len_tag, malformed, varint_len, write_len_field, write_varint};

/// A message may have this many attributes and still be edited. Each costs some hundred bytes of
/// memory while its message is edited, but only two in the request.
pub(super) const ATTRIBUTES_LIMIT: usize = 1 << 18;

/// Bytes of the request, or of the table's own buffer.
#[derive(Clone)]
enum Stored<'a> {
    Wire(&'a [u8]),
    Own(Range<usize>),
}

struct Entry<'a> {
    /// The range of the whole field in the request; nothing for an attribute that was added.
    field: Option<Range<usize>>,
    key: Stored<'a>,
    /// The encoded fields of the `KeyValue` besides its value: the key, and unknown ones.
    header: Stored<'a>,
    /// The encoded `AnyValue`.
    value: Stored<'a>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Kept,
    Changed,
    Removed,
}

/// The attributes of a resource or item, as a map that keeps its order and may have a key more than
/// once (the first is meant, as in the Collector). The request changes when the editor returns.
///
/// Attributes are addressed by index; indices stay as they are when attributes are removed.
#[derive(Default)]
pub struct Attributes<'a> {
    entries: Vec<Entry<'a>>,
    /// Content that does not lie in the request in one piece.
    own: Vec<u8>,
    changed: bool,
}

/// The new value of an attribute.
#[derive(Clone, Copy, Debug)]
pub enum NewValue<'v> {
    /// An encoded `AnyValue`: see [`crate::AnyValue::encoded`].
    Encoded(&'v [u8]),
    /// The value of the attribute at this index.
    CopyOf(usize),
}

impl<'a> Attributes<'a> {
    /// Index of the first attribute with this key.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        self.entries
            .iter()
            .position(|entry| self.bytes(&entry.key) == key && entry.state != State::Removed)
    }

    /// The value of the first attribute with this key.
    pub fn get(&self, key: &[u8]) -> Option<Value<'_>> {
        self.find(key).map(|index| self.value(index))
    }

    /// # Panics
    /// If there was never an attribute at `index`, as in all methods that take one.
    pub fn value(&self, index: usize) -> Value<'_> {
        Value::read(self.bytes(&self.entries[index].value))
    }

    /// Indices and keys of all attributes, in order.
    pub fn keys(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let present =
            self.entries.iter().enumerate().filter(|(_, entry)| entry.state != State::Removed);
        present.map(|(index, entry)| (index, self.bytes(&entry.key)))
    }

    /// Sets the value of the attribute at `index`. Setting the value that it has changes nothing.
    pub fn set(&mut self, index: usize, value: NewValue<'_>) {
        if let Some(value) = self.store(value, Some(index)) {
            let entry = &mut self.entries[index];
            entry.value = value;
            entry.state = State::Changed;
            self.changed = true;
        }
    }

    /// Adds an attribute at the end.
    pub fn add(&mut self, key: &[u8], value: NewValue<'_>) {
        let Some(value) = self.store(value, None) else { return };
        let start = self.own.len();
        write_len_field(&mut self.own, 1, key);
        let header = start..self.own.len();
        let key = header.end - key.len()..header.end;
        let (key, header) = (Stored::Own(key), Stored::Own(header));
        self.entries.push(Entry { field: None, key, header, value, state: State::Changed });
        self.changed = true;
    }

    pub fn remove(&mut self, index: usize) {
        self.entries[index].state = State::Removed;
        self.changed = true;
    }

    fn bytes<'s>(&'s self, stored: &Stored<'a>) -> &'s [u8] {
        match stored {
            Stored::Wire(bytes) => bytes,
            Stored::Own(range) => &self.own[range.clone()],
        }
    }

    /// Keeps a new value; nothing if the attribute at `current` has it already.
    fn store(&mut self, value: NewValue<'_>, current: Option<usize>) -> Option<Stored<'a>> {
        let encoded = match value {
            NewValue::Encoded(bytes) => bytes,
            NewValue::CopyOf(index) => self.bytes(&self.entries[index].value),
        };
        if current.is_some_and(|index| self.bytes(&self.entries[index].value) == encoded) {
            return None;
        }
        Some(match value {
            NewValue::CopyOf(index) => self.entries[index].value.clone(),
            NewValue::Encoded(bytes) => self.keep(bytes),
        })
    }

    fn keep(&mut self, bytes: &[u8]) -> Stored<'a> {
        let start = self.own.len();
        self.own.extend_from_slice(bytes);
        Stored::Own(start..self.own.len())
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.own.clear();
        self.changed = false;
    }

    /// Appends the attributes of the message whose content is `at`, which are its field `number`.
    pub(super) fn read(&mut self, request: &'a [u8], at: Range<usize>, number: u32) -> Result<()> {
        let mut fields = Fields::new(request, at);
        while let Some(field) = fields.next_field()? {
            if field.is_message(number) {
                if self.entries.len() == ATTRIBUTES_LIMIT {
                    let reason = "a message has too many attributes to be edited";
                    return Err(malformed(field.start, reason));
                }
                let entry = self.entry(&request[field.content()], field.whole())?;
                self.entries.push(entry);
            }
        }
        Ok(())
    }

    #[inline]
    fn entry(&mut self, key_value: &'a [u8], field: Range<usize>) -> Result<Entry<'a>> {
        // The usual form: a key of less than 128 bytes, then a value, and nothing else.
        if let [0x0a, key_len @ 0..0x80, rest @ ..] = key_value
            && let Some((key, [0x12, value @ ..])) = rest.split_at_checked(usize::from(*key_len))
            && let Ok((value_len, start)) = crate::wire::read_varint(value, 0)
            && value_len == (value.len() - start) as u64
        {
            let header = &key_value[..2 + key.len()];
            let [key, header, value] = [key, header, &value[start..]].map(Stored::Wire);
            return Ok(Entry { field: Some(field), key, header, value, state: State::Kept });
        }
        self.unusual_entry(key_value, field)
    }

    /// Any `KeyValue`: fields in any order, unknown ones, several keys (the last counts) or values.
    #[inline(never)]
    fn unusual_entry(&mut self, key_value: &'a [u8], field: Range<usize>) -> Result<Entry<'a>> {
        let mut key: &[u8] = &[];
        let (mut header, mut value) = (Vec::new(), Vec::new());
        let mut fields = Fields::of(key_value);
        while let Some(field) = fields.next_field()? {
            let content = &key_value[field.content()];
            if field.is_message(2) {
                value.extend_from_slice(content);
                continue;
            }
            if field.is_message(1) {
                key = content;
            }
            header.extend_from_slice(&key_value[field.whole()]);
        }
        let [header, value] = [header, value].map(|bytes| self.keep(&bytes));
        Ok(Entry { field: Some(field), key: Stored::Wire(key), header, value, state: State::Kept })
    }

    /// Enters the changes of the attributes within `content`, which are field `number`.
    pub(super) fn splice(&self, splices: &mut Splices, content: &Range<usize>, number: u32) {
        if !self.changed {
            return;
        }
        for entry in &self.entries {
            let field = entry.field.clone().filter(|field| content.contains(&field.start));
            let Some(field) = field else { continue };
            match entry.state {
                State::Kept => {}
                State::Removed => splices.remove(field),
                State::Changed => splices.replace(field, |out| self.write(entry, number, out)),
            }
        }
    }

    /// True if [`Attributes::write_added`] has something to write.
    pub(super) fn has_added(&self) -> bool {
        self.changed && self.added().next().is_some()
    }

    /// Enters the added attributes as an insertion at `at`.
    pub(super) fn splice_added(&self, splices: &mut Splices, at: usize, number: u32) {
        if self.has_added() {
            splices.replace(at..at, |out| self.write_added(number, out));
        }
    }

    /// Writes the attributes that were added.
    pub(super) fn write_added(&self, number: u32, out: &mut Vec<u8>) {
        self.added().for_each(|entry| self.write(entry, number, out));
    }

    fn added(&self) -> impl Iterator<Item = &Entry<'a>> {
        let added = self.entries.iter().rev().take_while(|entry| entry.field.is_none());
        let first = self.entries.len() - added.count();
        self.entries[first..].iter().filter(|entry| entry.state != State::Removed)
    }

    fn write(&self, entry: &Entry<'a>, number: u32, out: &mut Vec<u8>) {
        let (header, value) = (self.bytes(&entry.header), self.bytes(&entry.value));
        let len = header.len() + 1 + varint_len(value.len()) + value.len();
        out.push(len_tag(number));
        write_varint(out, len as u64);
        out.extend_from_slice(header);
        write_len_field(out, 2, value);
    }
}
