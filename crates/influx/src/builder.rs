//! Lines to a request of OTLP metrics.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use memchr::memchr_iter;
use sluice_otlp::wire::{FIXED64, varint_len, write_len_field, write_varint};

use crate::escape::{Part, unescape};
use crate::k6::K6_COUNTERS;
use crate::line::{Line, ValueAt, tags_of};
use crate::metadata::{Kind, UNSIGNED, VALUE, attribute, metadata};

/// Bytes that a measurement or a metric takes beside what it is named by, about.
const ENTRY_BYTES: usize = 256;

/// Measurements and metrics that are remembered from one request to the next, in bytes.
const REMEMBERED_BYTES: usize = 1 << 20;

/// Bytes of a tag as an attribute, for each of the tag's bytes: the shortest tag has three.
const TAG_GROWTH: usize = 4;

/// Bytes of a metric that is new, and of a number of a point, beside what they are named by.
const FIELD_BYTES: usize = ENTRY_BYTES + 256;

/// Copies of a field's key: five in a new metric. That of a string is in four of a metric and its
/// point, and in two lists of the builder.
const KEY_COPIES: usize = 6;

/// Copies of a string: in its point, and with the builder's attributes of the line.
const STRING_COPIES: usize = 2;

/// Bytes of a string in a point and in its metric beside these.
const STRING_BYTES: usize = 32;

/// Fields of a line whose metric is guessed from the line before.
const GUESSED: usize = 256;

const ATTRIBUTES: u8 = 7;

/// Choices of the mapping.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Measurements whose field `value` is an increment, so that it becomes a sum of deltas.
    pub sums: HashSet<String>,
}

/// The counters of k6 are sums.
impl Default for Settings {
    fn default() -> Settings {
        Settings { sums: K6_COUNTERS.iter().map(|name| (*name).to_owned()).collect() }
    }
}

struct Measurement {
    raw: Box<[u8]>,
    name: Arc<[u8]>,
    /// The metrics of the fields of its last line, in their order.
    guesses: Vec<u32>,
    /// The measurement of the line behind it, the last time.
    follower: u32,
}

struct Metric {
    /// The key of its field, as it stands in lines.
    field: Box<[u8]>,
    /// The keys of the strings of its points, as they stand in lines, each with a comma behind it.
    strings: Box<[u8]>,
    kind: Kind,
    name: Vec<u8>,
    is_sum: bool,
    /// Encoded.
    metadata: Vec<u8>,
    points: Vec<u8>,
    measurement: u32,
    /// The number of its points.
    count: u32,
}

/// The sum of deltas, which is monotonic.
const DELTA: [u8; 4] = [2 << 3, 1, 3 << 3, 1];

impl Metric {
    fn data_len(&self) -> usize {
        self.points.len() + if self.is_sum { DELTA.len() } else { 0 }
    }

    /// Length of its content.
    fn len(&self) -> usize {
        let name = 1 + varint_len(self.name.len()) + self.name.len();
        name + 1 + varint_len(self.data_len()) + self.data_len() + self.metadata.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_len_field(out, 1, &self.name);
        let field = if self.is_sum { 7 } else { 5 };
        header(out, field, self.data_len());
        out.extend_from_slice(&self.points);
        if self.is_sum {
            out.extend_from_slice(&DELTA);
        }
        out.extend_from_slice(&self.metadata);
    }
}

fn header(out: &mut Vec<u8>, field: u8, len: usize) {
    out.push(field << 3 | 2);
    write_varint(out, len as u64);
}

/// Makes requests of lines. Memory: [`Builder::held_bytes`], which the caller bounds by taking the
/// request, and a megabyte.
pub struct Builder {
    sums: HashSet<String>,
    measurements: Vec<Measurement>,
    measurement_ids: HashMap<Box<[u8]>, u32>,
    metrics: Vec<Metric>,
    metric_ids: HashMap<Box<[u8]>, u32>,
    /// The measurement of the last line.
    last: u32,
    /// The tags of the last line that had others than the one before, and encoded as attributes.
    tags: Vec<u8>,
    tag_attributes: Vec<u8>,
    /// The keys of the strings of the last line, as in [`Metric::strings`], and their attributes.
    string_keys: Vec<u8>,
    string_attributes: Vec<u8>,
    points: u32,
    held_bytes: usize,
    key: Vec<u8>,
}

impl Builder {
    pub fn new(settings: &Settings) -> Builder {
        Builder {
            sums: settings.sums.clone(),
            measurements: Vec::new(),
            measurement_ids: HashMap::new(),
            metrics: Vec::new(),
            metric_ids: HashMap::new(),
            last: 0,
            tags: Vec::new(),
            tag_attributes: Vec::new(),
            string_keys: Vec::new(),
            string_attributes: Vec::new(),
            points: 0,
            held_bytes: 0,
            key: Vec::new(),
        }
    }

    /// Data points of the request so far.
    pub fn points(&self) -> u32 {
        self.points
    }

    /// Bytes that the builder takes, about; not less than the length of the request. Its buffers
    /// may have as much again in room.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The most by which [`Builder::held_bytes`] grows with a line, and the builder's copies of its
    /// tags and strings.
    pub fn growth_bytes(&self, line: &Line<'_>) -> usize {
        let tags = line.raw_tags();
        let tag_bytes =
            if self.tags == tags { self.tag_attributes.len() } else { most_attribute_bytes(tags) };
        let (mut numbers, mut texts) = (0_usize, 0);
        for field in line.fields {
            texts += KEY_COPIES * (field.key.end - field.key.start);
            match field.value {
                ValueAt::String(at) => texts += STRING_COPIES * (at.end - at.start) + STRING_BYTES,
                _ => numbers += 1,
            }
        }
        let measurement = line.raw_measurement().len();
        let each = tag_bytes + FIELD_BYTES + measurement;
        // Strings alone have one point.
        numbers.max(1) * each + tag_bytes + texts + 3 * measurement + ENTRY_BYTES
    }

    /// From now on the field `value` of this measurement is an increment: see [`Settings::sums`].
    pub fn note_sum(&mut self, measurement: &str) {
        if self.sums.insert(measurement.to_owned()) {
            // Its metric may be known as a gauge. Points that were added stay what they are.
            self.metric_ids.clear();
            self.measurements.iter_mut().for_each(|it| it.guesses.clear());
        }
    }

    /// Forgets all of it: measurements, metrics, and points that were not taken.
    pub fn forget(&mut self) {
        let sums = std::mem::take(&mut self.sums);
        *self = Builder { sums, ..Builder::new(&Settings { sums: HashSet::new() }) };
    }

    /// Adds a line. `arrival_ns`: the time of a line without one, in nanoseconds since 1970.
    pub fn add(&mut self, line: &Line<'_>, arrival_ns: i64) {
        self.read_tags(line.raw_tags());
        self.read_strings(line);
        let has_tags = line.tags.start < line.tags.end;
        let measurement = self.measurement(line.raw_measurement());
        let time_ns = line.time_ns.unwrap_or(arrival_ns);
        let mut place = 0;
        for field in line.fields {
            let (kind, bits) = match field.value {
                ValueAt::Float(value) => (Kind::Float, value.to_bits()),
                ValueAt::Integer(value) => (Kind::Integer, value as u64),
                ValueAt::Boolean(value) => (Kind::Boolean, u64::from(value)),
                ValueAt::Unsigned(value) if i64::try_from(value).is_ok() => (Kind::Unsigned, value),
                ValueAt::Unsigned(value) => (Kind::LargeUnsigned, value),
                ValueAt::String(_) => continue,
            };
            let key = field.key.of(line.bytes);
            let metric = self.metric(measurement, place, key, kind);
            self.point(metric, kind, bits, time_ns, place == 0, has_tags);
            place += 1;
        }
        if place == 0 {
            let metric = self.metric(measurement, 0, VALUE.as_bytes(), Kind::String);
            self.point(metric, Kind::String, 1, time_ns, true, has_tags);
        }
    }

    #[inline(always)]
    fn read_tags(&mut self, tags: &[u8]) {
        if !tags.is_empty() && self.tags != tags {
            self.tags.clear();
            self.tags.extend_from_slice(tags);
            self.tag_attributes.clear();
            for (key, value) in tags_of(tags) {
                let (key, value) = (unescape(key, Part::Key), unescape(value, Part::Key));
                attribute(&mut self.tag_attributes, ATTRIBUTES, &key, &value);
            }
        }
    }

    #[inline(always)]
    fn read_strings(&mut self, line: &Line<'_>) {
        self.string_keys.clear();
        self.string_attributes.clear();
        for field in line.fields {
            if let ValueAt::String(value) = field.value {
                let key = field.key.of(line.bytes);
                self.string_keys.extend_from_slice(key);
                self.string_keys.push(b',');
                let value = unescape(value.of(line.bytes), Part::String);
                let key = unescape(key, Part::Key);
                attribute(&mut self.string_attributes, ATTRIBUTES, &key, &value);
            }
        }
    }

    #[inline(always)]
    fn measurement(&mut self, raw: &[u8]) -> u32 {
        if let Some(last) = self.measurements.get(self.last as usize) {
            let guess = last.follower;
            if *self.measurements[guess as usize].raw == *raw {
                self.last = guess;
                return guess;
            }
        }
        self.find_measurement(raw)
    }

    #[cold]
    fn find_measurement(&mut self, raw: &[u8]) -> u32 {
        let id = match self.measurement_ids.get(raw) {
            Some(id) => *id,
            None => {
                let id = self.measurements.len() as u32;
                let name = unescape(raw, Part::Measurement).into_owned().into();
                let guesses = Vec::new();
                self.measurements.push(Measurement {
                    raw: raw.into(),
                    name,
                    guesses,
                    follower: id,
                });
                self.measurement_ids.insert(raw.into(), id);
                self.held_bytes += 3 * raw.len() + ENTRY_BYTES;
                id
            }
        };
        self.measurements[self.last as usize].follower = id;
        self.last = id;
        id
    }

    /// The metric of a field, which is the line's `place`-th that is no string.
    #[inline(always)]
    fn metric(&mut self, measurement: u32, place: usize, key: &[u8], kind: Kind) -> u32 {
        let strings = if place == 0 { &self.string_keys[..] } else { &[] };
        let guesses = &self.measurements[measurement as usize].guesses;
        if let Some(guess) = guesses.get(place) {
            let metric = &self.metrics[*guess as usize];
            if metric.kind == kind && *metric.field == *key && *metric.strings == *strings {
                return *guess;
            }
        }
        self.find_metric(measurement, place, key, kind)
    }

    #[cold]
    fn find_metric(&mut self, measurement: u32, place: usize, field: &[u8], kind: Kind) -> u32 {
        let strings = if place == 0 { &self.string_keys[..] } else { &[] };
        self.key.clear();
        self.key.extend(measurement.to_le_bytes());
        self.key.push(kind as u8);
        // Keys have no equals sign that nothing escapes, so that the two do not mingle.
        self.key.extend_from_slice(field);
        self.key.push(b'=');
        self.key.extend_from_slice(strings);
        let id = match self.metric_ids.get(&*self.key) {
            Some(id) => *id,
            None => {
                let id = self.metrics.len() as u32;
                let metric = self.new_metric(measurement, field, strings, kind);
                let len = metric.len() + metric.field.len() + 2 * self.key.len();
                self.held_bytes += len + ENTRY_BYTES;
                self.metrics.push(metric);
                self.metric_ids.insert(self.key.as_slice().into(), id);
                id
            }
        };
        let guesses = &mut self.measurements[measurement as usize].guesses;
        if place < guesses.len() {
            guesses[place] = id;
        } else if place < GUESSED {
            guesses.push(id);
        }
        id
    }

    fn new_metric(&self, measurement: u32, field: &[u8], strings: &[u8], kind: Kind) -> Metric {
        let mut name = self.measurements[measurement as usize].name.to_vec();
        let text = unescape(field, Part::Key);
        let is_value = *text == *VALUE.as_bytes();
        let is_number = matches!(kind, Kind::Float | Kind::Integer);
        let is_sum = is_value
            && is_number
            && std::str::from_utf8(&name).is_ok_and(|name| self.sums.contains(name));
        if !is_value {
            name.push(b'_');
            name.extend_from_slice(&text);
        }
        let keys: Vec<_> = keys_of(strings).map(|key| unescape(key, Part::Key)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        Metric {
            field: field.into(),
            strings: strings.into(),
            kind,
            name,
            is_sum,
            metadata: metadata(&text, kind, &keys),
            points: Vec::new(),
            measurement,
            count: 0,
        }
    }

    #[inline(always)]
    fn point(
        &mut self,
        metric: u32,
        kind: Kind,
        bits: u64,
        time_ns: i64,
        is_first: bool,
        has_tags: bool,
    ) {
        let (mut tag, mut bits) = (6 << 3 | FIXED64, bits);
        let mut digits = Vec::new();
        match kind {
            Kind::Float => tag = 4 << 3 | FIXED64,
            Kind::LargeUnsigned => {
                attribute(
                    &mut digits,
                    ATTRIBUTES,
                    UNSIGNED.as_bytes(),
                    bits.to_string().as_bytes(),
                );
                (tag, bits) = (4 << 3 | FIXED64, (bits as f64).to_bits());
            }
            _ => {}
        }
        let strings = if is_first { &self.string_attributes[..] } else { &[] };
        let tags = if has_tags { &self.tag_attributes[..] } else { &[] };
        let mut numbers = [0; 18];
        numbers[0] = 3 << 3 | FIXED64;
        // A time before 1970 becomes one that InfluxDB does not have, and comes back from it.
        numbers[1..9].copy_from_slice(&time_ns.to_le_bytes());
        numbers[9] = tag;
        numbers[10..].copy_from_slice(&bits.to_le_bytes());
        let len = numbers.len() + digits.len() + strings.len() + tags.len();
        let metric = &mut self.metrics[metric as usize];
        metric.count += 1;
        let points = &mut metric.points;
        let before = points.len();
        points.reserve(len + 6);
        header(points, 1, len);
        points.extend_from_slice(&numbers);
        points.extend_from_slice(&digits);
        points.extend_from_slice(strings);
        points.extend_from_slice(tags);
        self.held_bytes += points.len() - before;
        self.points += 1;
    }

    /// Data points of the request so far by measurement, which may come several times.
    pub fn counts(&self) -> Vec<(Arc<[u8]>, u64)> {
        let used = self.metrics.iter().filter(|metric| metric.count > 0);
        let name = |metric: &Metric| self.measurements[metric.measurement as usize].name.clone();
        used.map(|metric| (name(metric), u64::from(metric.count))).collect()
    }

    /// Answers the request, with these attributes of the resource, and starts a new one. Empty
    /// without points.
    pub fn take(&mut self, resource: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        if self.points > 0 {
            let mut attributes = Vec::new();
            for (key, value) in resource {
                attribute(&mut attributes, 1, key.as_bytes(), value.as_bytes());
            }
            let used = || self.metrics.iter().filter(|metric| !metric.points.is_empty());
            let with_header = |len: usize| 1 + varint_len(len) + len;
            let scope: usize = used().map(|metric| with_header(metric.len())).sum();
            let mut whole = with_header(scope);
            if !attributes.is_empty() {
                whole += with_header(attributes.len());
            }
            out.reserve_exact(with_header(whole));
            header(&mut out, 1, whole);
            if !attributes.is_empty() {
                write_len_field(&mut out, 1, &attributes);
            }
            header(&mut out, 2, scope);
            for metric in used() {
                header(&mut out, 2, metric.len());
                metric.write(&mut out);
            }
        }
        self.reset();
        out
    }

    fn reset(&mut self) {
        for metric in &mut self.metrics {
            self.held_bytes -= metric.points.len();
            metric.points = Vec::new();
            metric.count = 0;
        }
        self.points = 0;
        if self.held_bytes > REMEMBERED_BYTES {
            self.measurements.clear();
            self.measurement_ids.clear();
            self.metrics.clear();
            self.metric_ids.clear();
            (self.last, self.held_bytes) = (0, 0);
        }
    }
}

/// The most bytes of tags as attributes. An attribute has four field numbers and four lengths in
/// place of two separators.
fn most_attribute_bytes(tags: &[u8]) -> usize {
    // Of which some may be escaped.
    let commas = memchr_iter(b',', tags).count();
    let each = 2 + 4 * varint_len(tags.len() + 12);
    (TAG_GROWTH * tags.len()).min(tags.len() + (commas + 1) * each + 1)
}

/// The keys of strings, each of which has a comma behind it.
fn keys_of(strings: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    let ends = (0..strings.len())
        .filter(move |at| strings[*at] == b',' && (*at == 0 || strings[*at - 1] != b'\\'));
    ends.map(move |end| {
        let key = &strings[start..end];
        start = end + 1;
        key
    })
}
