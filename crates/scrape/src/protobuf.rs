//! Pages of protobuf: delimited messages of `io.prometheus.client.MetricFamily`.

use sluice_otlp::wire::write_varint;

use crate::labels::{Labels, NAME};
use crate::message::{Message, Result, zigzag};
use crate::metadata::Kind;
use crate::native::{Native, Side, Span};
use crate::number::format_float;
use crate::scraper::{Found, Reading, Value};

/// No page of text starts a series with it.
const KEY_MARK: u8 = 0;

/// The scales that Prometheus has or may get.
const SCHEMAS: std::ops::RangeInclusive<i32> = -9..=52;

/// Takes all samples of a page.
pub(crate) fn read(page: &[u8], reading: &mut Reading<'_, '_>) -> Result<()> {
    let mut at = 0;
    let mut key = Vec::new();
    while at < page.len() {
        let (mut len, mut shift) = (0_u64, 0);
        let start = at;
        loop {
            let Some(byte) = page.get(at).filter(|_| shift < 64) else {
                return Message { page, start, end: start }.fail("a length is expected");
            };
            len |= u64::from(byte & 0x7f) << shift;
            (at, shift) = (at + 1, shift + 7);
            if *byte < 0x80 {
                break;
            }
        }
        if len > (page.len() - at) as u64 {
            let message = Message { page, start, end: start };
            return message.fail("a length runs past the end of the page");
        }
        let end = at + len as usize;
        family(Message { page, start: at, end }, reading, &mut key)?;
        at = end;
    }
    Ok(())
}

struct Family<'p> {
    name: &'p str,
    is_histogram: bool,
    is_summary: bool,
    /// The field of a metric's value.
    field: u32,
}

fn family(message: Message<'_>, reading: &mut Reading<'_, '_>, key: &mut Vec<u8>) -> Result<()> {
    let (mut name, mut help, mut unit, mut kind, mut metrics) = ("", "", "", 0, 0_u32);
    message.read(|field| {
        match field.number() {
            1 => name = field.inner().text()?,
            2 => help = field.inner().text()?,
            3 => kind = field.int(),
            4 => metrics += 1,
            5 => unit = field.inner().text()?,
            _ => {}
        }
        Ok(())
    })?;
    if metrics == 0 {
        return Ok(());
    }
    if name.is_empty() {
        return message.fail("a metric has no name");
    }
    let (kind, field) = match kind {
        0 => (Kind::Counter, 3),
        1 => (Kind::Gauge, 2),
        2 => (Kind::Summary, 4),
        3 => (Kind::Unknown, 5),
        4 => (Kind::Histogram, 7),
        5 => (Kind::GaugeHistogram, 7),
        _ => return message.fail("the type of a metric is not a known one"),
    };
    let metadata = reading.metadata();
    metadata.set_help(name, help);
    metadata.set_kind(name, kind);
    metadata.set_unit(name, unit);
    let family =
        Family { name, is_histogram: field == 7, is_summary: kind == Kind::Summary, field };
    message.read(|field| match field.number() {
        4 => metric(field.inner(), &family, reading, key),
        _ => Ok(()),
    })
}

/// A metric's labels and time, and the samples that are read from it.
struct Samples<'k, 'p, 'r, 's, 't> {
    family: &'k Family<'p>,
    labels: Vec<Message<'p>>,
    time_ms: Option<i64>,
    /// Name and labels, to which each sample adds what it is.
    key: &'k mut Vec<u8>,
    reading: &'r mut Reading<'s, 't>,
}

#[derive(Clone, Copy)]
enum Part {
    Value,
    Count,
    Sum,
    Bucket(f64),
    Quantile(f64),
    Native,
}

fn metric(
    message: Message<'_>,
    family: &Family<'_>,
    reading: &mut Reading<'_, '_>,
    key: &mut Vec<u8>,
) -> Result<()> {
    key.clear();
    key.push(KEY_MARK);
    write_varint(key, family.name.len() as u64);
    key.extend_from_slice(family.name.as_bytes());
    let mut labels = Vec::new();
    let mut time_ms = None;
    let mut value = Message { start: message.end, ..message };
    message.read(|field| {
        match field.number() {
            1 => {
                let label = field.inner();
                write_varint(key, label.bytes().len() as u64);
                key.extend_from_slice(label.bytes());
                labels.push(label);
            }
            6 => time_ms = Some(field.int() as i64).filter(|time| *time != 0),
            number if number == family.field => value = field.inner(),
            _ => {}
        }
        Ok(())
    })?;
    let mut samples = Samples { family, labels, time_ms, key, reading };
    if family.is_histogram {
        histogram(value, &mut samples)
    } else if family.is_summary {
        summary(value, &mut samples)
    } else {
        number(value, &mut samples)
    }
}

impl<'p> Samples<'_, 'p, '_, '_, '_> {
    /// Takes one sample; answers its point and its time if it is in the request.
    fn take(&mut self, part: Part, value: Value) -> Result<Option<(u32, i64)>> {
        let len = self.key.len();
        let (tag, boundary) = match part {
            Part::Value => (0, 0.0),
            Part::Count => (1, 0.0),
            Part::Sum => (2, 0.0),
            Part::Bucket(bound) => (3, bound),
            Part::Quantile(quantile) => (4, quantile),
            Part::Native => (5, 0.0),
        };
        self.key.push(tag);
        self.key.extend(boundary.to_bits().to_le_bytes());
        let is_expected = self.reading.expected() == self.key.as_slice();
        let found = Found { raw: self.key.as_slice(), is_expected, value, time_ms: self.time_ms };
        let (family, labels) = (self.family, &self.labels);
        let taken = self.reading.sample(found, || read_labels(family, labels, part));
        self.key.truncate(len);
        taken
    }

    fn exemplar(&mut self, taken: Option<(u32, i64)>, exemplar: Option<Exemplar<'_>>) {
        if let (Some((group, time_ms)), Some(exemplar)) = (taken, exemplar) {
            let time_ms = exemplar.time_ms.unwrap_or(time_ms);
            let labels = exemplar.labels;
            self.reading.points().add_exemplar(group, time_ms, exemplar.value, |label| {
                labels.iter().for_each(|(name, value)| label(name, value));
            });
        }
    }

    fn start(&mut self, taken: Option<(u32, i64)>, start_ns: u64) {
        if let Some((group, _)) = taken.filter(|_| start_ns > 0) {
            self.reading.points().set_start(group, start_ns);
        }
    }
}

fn read_labels<'p>(
    family: &Family<'p>,
    messages: &[Message<'p>],
    part: Part,
) -> Result<Labels<'p>> {
    let mut labels = Labels::default();
    let suffix = match part {
        Part::Value | Part::Quantile(_) | Part::Native => "",
        Part::Count => "_count",
        Part::Sum => "_sum",
        Part::Bucket(_) => "_bucket",
    };
    match suffix {
        "" => labels.push(NAME.into(), family.name.into()),
        suffix => labels.push(NAME.into(), (family.name.to_owned() + suffix).into()),
    }
    for message in messages {
        let (name, value) = label(*message)?;
        labels.push(name.into(), value.into());
    }
    match part {
        Part::Bucket(bound) => labels.push("le".into(), format_float(bound).into()),
        Part::Quantile(quantile) => labels.push("quantile".into(), format_float(quantile).into()),
        Part::Value | Part::Count | Part::Sum | Part::Native => {}
    }
    Ok(labels)
}

fn label<'p>(message: Message<'p>) -> Result<(&'p str, &'p str)> {
    let (mut name, mut value) = ("", "");
    message.read(|field| {
        match field.number() {
            1 => name = field.inner().text()?,
            2 => value = field.inner().text()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((name, value))
}

struct Exemplar<'p> {
    labels: Vec<(&'p str, &'p str)>,
    value: f64,
    time_ms: Option<i64>,
}

fn exemplar(message: Message<'_>) -> Result<Exemplar<'_>> {
    let mut exemplar = Exemplar { labels: Vec::new(), value: 0.0, time_ms: None };
    message.read(|field| {
        match field.number() {
            1 => exemplar.labels.push(label(field.inner())?),
            2 => exemplar.value = field.double(),
            3 => exemplar.time_ms = Some(time(field.inner())?.0),
            _ => {}
        }
        Ok(())
    })?;
    Ok(exemplar)
}

/// Milliseconds since 1970, and the same in nanoseconds, zero before that.
fn time(message: Message<'_>) -> Result<(i64, u64)> {
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    message.read(|field| {
        match field.number() {
            1 => seconds = field.int() as i64,
            2 => nanos = field.int() as i32,
            _ => {}
        }
        Ok(())
    })?;
    let millis = seconds.saturating_mul(1000).saturating_add(i64::from(nanos / 1_000_000));
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Ok((millis, u64::try_from(total.max(0)).unwrap_or(u64::MAX)))
}

/// A counter, a gauge, or one of unknown type.
fn number(message: Message<'_>, samples: &mut Samples<'_, '_, '_, '_, '_>) -> Result<()> {
    let (mut value, mut found, mut start_ns) = (0.0, None, 0);
    let is_counter = samples.family.field == 3;
    message.read(|field| {
        match field.number() {
            1 => value = field.double(),
            2 if is_counter => found = Some(field.inner()),
            3 if is_counter => start_ns = time(field.inner())?.1,
            _ => {}
        }
        Ok(())
    })?;
    let found = found.map(exemplar).transpose()?;
    let taken = samples.take(Part::Value, Value::Number(value))?;
    samples.start(taken, start_ns);
    samples.exemplar(taken, found);
    Ok(())
}

fn summary(message: Message<'_>, samples: &mut Samples<'_, '_, '_, '_, '_>) -> Result<()> {
    let (mut count, mut sum, mut start_ns) = (0, 0.0, 0);
    let mut quantiles = Vec::new();
    message.read(|field| {
        match field.number() {
            1 => count = field.int(),
            2 => sum = field.double(),
            3 => {
                let (mut quantile, mut value) = (0.0, 0.0);
                field.inner().read(|field| {
                    match field.number() {
                        1 => quantile = field.double(),
                        2 => value = field.double(),
                        _ => {}
                    }
                    Ok(())
                })?;
                quantiles.push((quantile, value));
            }
            4 => start_ns = time(field.inner())?.1,
            _ => {}
        }
        Ok(())
    })?;
    let taken = samples.take(Part::Count, Value::Number(count as f64))?;
    samples.start(taken, start_ns);
    samples.take(Part::Sum, Value::Number(sum))?;
    for (quantile, value) in quantiles {
        samples.take(Part::Quantile(quantile), Value::Number(value))?;
    }
    Ok(())
}

/// A histogram as the page has it.
#[derive(Default)]
struct Histogram<'p> {
    count: u64,
    count_float: f64,
    sum: f64,
    buckets: Vec<(f64, f64, Option<Message<'p>>)>,
    start_ns: u64,
    schema: i32,
    zero_threshold: f64,
    zero_count: u64,
    zero_count_float: f64,
    negative: NativeSide,
    positive: NativeSide,
    exemplars: Vec<Message<'p>>,
}

#[derive(Default)]
struct NativeSide {
    spans: Vec<Span>,
    deltas: Vec<u64>,
    counts: Vec<f64>,
}

fn histogram(message: Message<'_>, samples: &mut Samples<'_, '_, '_, '_, '_>) -> Result<()> {
    let mut found = Histogram::default();
    message.read(|field| {
        match field.number() {
            1 => found.count = field.int(),
            2 => found.sum = field.double(),
            3 => found.buckets.push(bucket(field.inner())?),
            4 => found.count_float = field.double(),
            5 => found.schema = zigzag(field.int()) as i32,
            6 => found.zero_threshold = field.double(),
            7 => found.zero_count = field.int(),
            8 => found.zero_count_float = field.double(),
            9 => found.negative.spans.push(span(field.inner())?),
            10 => field.ints(&mut found.negative.deltas)?,
            11 => field.doubles(&mut found.negative.counts),
            12 => found.positive.spans.push(span(field.inner())?),
            13 => field.ints(&mut found.positive.deltas)?,
            14 => field.doubles(&mut found.positive.counts),
            15 => found.start_ns = time(field.inner())?.1,
            16 => found.exemplars.push(field.inner()),
            _ => {}
        }
        Ok(())
    })?;
    let is_native = samples.reading.target().native_histograms
        && (!found.positive.spans.is_empty()
            || !found.negative.spans.is_empty()
            || found.zero_threshold > 0.0
            || found.zero_count > 0);
    if is_native {
        native(message, &found, samples)?;
        if !samples.reading.target().always_classic_histograms || found.buckets.is_empty() {
            return Ok(());
        }
    }
    classic(&found, samples)
}

fn bucket<'p>(message: Message<'p>) -> Result<(f64, f64, Option<Message<'p>>)> {
    let (mut count, mut count_float, mut bound, mut exemplar) = (0, 0.0, 0.0, None);
    message.read(|field| {
        match field.number() {
            1 => count = field.int(),
            2 => bound = field.double(),
            3 => exemplar = Some(field.inner()),
            4 => count_float = field.double(),
            _ => {}
        }
        Ok(())
    })?;
    Ok((bound, one_of(count, count_float), exemplar))
}

/// A count that may be fractional.
fn one_of(count: u64, float: f64) -> f64 {
    if float == 0.0 { count as f64 } else { float }
}

fn span(message: Message<'_>) -> Result<Span> {
    let mut span = Span::default();
    message.read(|field| {
        match field.number() {
            1 => span.offset = zigzag(field.int()) as i32,
            2 => span.length = field.int() as u32,
            _ => {}
        }
        Ok(())
    })?;
    Ok(span)
}

fn classic(found: &Histogram<'_>, samples: &mut Samples<'_, '_, '_, '_, '_>) -> Result<()> {
    let count = one_of(found.count, found.count_float);
    let taken = samples.take(Part::Count, Value::Number(count))?;
    samples.start(taken, found.start_ns);
    samples.take(Part::Sum, Value::Number(found.sum))?;
    let all = [(f64::INFINITY, count, None)];
    for (bound, count, exemplified) in found.buckets.iter().chain(&all) {
        let exemplified = exemplified.map(exemplar).transpose()?;
        let taken = samples.take(Part::Bucket(*bound), Value::Number(*count))?;
        samples.exemplar(taken, exemplified);
        if *bound == f64::INFINITY {
            break;
        }
    }
    Ok(())
}

fn native(
    message: Message<'_>,
    found: &Histogram<'_>,
    samples: &mut Samples<'_, '_, '_, '_, '_>,
) -> Result<()> {
    if !SCHEMAS.contains(&found.schema) {
        return message.fail("a native histogram has a schema that is not a known one");
    }
    let is_float = found.count_float > 0.0 || found.zero_count_float > 0.0;
    let side = |side: &NativeSide| {
        let read = if is_float {
            Side::read(&side.spans, side.counts.iter().map(|count| *count as u64))
        } else {
            let mut count = 0_i64;
            let counts = side.deltas.iter().map(|delta| {
                count = count.wrapping_add(zigzag(*delta));
                count.max(0) as u64
            });
            Side::read(&side.spans, counts)
        };
        read.or_else(|reason| message.fail(reason))
    };
    let float_or = |float: f64, count| if is_float { float as u64 } else { count };
    let native = Native {
        schema: found.schema,
        count: float_or(found.count_float, found.count),
        sum: found.sum,
        zero_threshold: found.zero_threshold,
        zero_count: float_or(found.zero_count_float, found.zero_count),
        positive: side(&found.positive)?,
        negative: side(&found.negative)?,
    };
    let taken = samples.take(Part::Native, Value::Native(native))?;
    samples.start(taken, found.start_ns);
    // Those of the classic buckets stand in for own ones. Without a time, neither counts.
    let of_buckets = found.buckets.iter().filter_map(|(.., exemplar)| *exemplar);
    let exemplars: Vec<Message<'_>> = match found.exemplars.as_slice() {
        [] => of_buckets.collect(),
        own => own.to_vec(),
    };
    for message in exemplars {
        let found = exemplar(message)?;
        if found.time_ms.is_some() {
            samples.exemplar(taken, Some(found));
        }
    }
    Ok(())
}
