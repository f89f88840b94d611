//! Pages of protobuf: delimited messages of `io.prometheus.client.MetricFamily`.

use sluice_otlp::wire::write_varint;
use sluice_prometheus::native::{Native, Side, Span, width};

use crate::custom::Classic;
use crate::error::TOO_MANY_BUCKETS;
use crate::labels::{Labels, NAME};
use crate::message::{Last, Message, Result, zigzag};
use crate::number::format_float;
use crate::scraper::Reading;
use crate::value::{Found, Value};
use sluice_prometheus::Kind;

/// No page of text starts a series with it.
const KEY_MARK: u8 = 0;

/// The scales that Prometheus has or may get.
const SCHEMAS: std::ops::RangeInclusive<i32> = -9..=52;

/// Takes all samples of a page.
pub(crate) fn read(page: &[u8], reading: &mut Reading<'_, '_>) -> Result<()> {
    let whole = Message { page, start: 0, end: page.len() };
    let (mut at, mut key) = (0, Vec::new());
    while at < page.len() {
        let (len, start) = whole.varint(at)?;
        if len > (page.len() - start) as u64 {
            let message = Message { start, ..whole };
            return message.fail("a length runs past the end of the page");
        }
        at = start + len as usize;
        family(Message { page, start, end: at }, reading, &mut key)?;
    }
    Ok(())
}

struct Family<'p> {
    name: &'p str,
    kind: Kind,
    /// The field of a metric's value.
    field: u32,
}

fn family(message: Message<'_>, reading: &mut Reading<'_, '_>, key: &mut Vec<u8>) -> Result<()> {
    let last = message.last::<6>()?;
    let (name, help, unit) = (last.text(1)?, last.text(2)?, last.text(5)?);
    if last.inner(4).is_none() {
        return Ok(());
    }
    if name.is_empty() {
        return message.fail("a metric has no name");
    }
    let (kind, field) = match last.int(3) {
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
    reading.check_memory()?;
    let family = Family { name, kind, field };
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
    Custom,
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
    match family.kind {
        Kind::Histogram | Kind::GaugeHistogram => histogram(value, &mut samples),
        Kind::Summary => summary(value, &mut samples),
        _ => number(value, &mut samples),
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
            Part::Custom => (6, 0.0),
        };
        self.key.push(tag);
        self.key.extend(boundary.to_bits().to_le_bytes());
        let known = self.reading.series().find(self.key);
        let found = Found { raw: self.key.as_slice(), known, value, time_ms: self.time_ms };
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
        Part::Value | Part::Quantile(_) | Part::Native | Part::Custom => "",
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
        Part::Value | Part::Count | Part::Sum | Part::Native | Part::Custom => {}
    }
    Ok(labels)
}

fn label<'p>(message: Message<'p>) -> Result<(&'p str, &'p str)> {
    let last = message.last::<3>()?;
    Ok((last.text(1)?, last.text(2)?))
}

struct Exemplar<'p> {
    labels: Vec<(&'p str, &'p str)>,
    value: f64,
    time_ms: Option<i64>,
}

fn exemplar(message: Message<'_>) -> Result<Exemplar<'_>> {
    let last = message.last::<4>()?;
    let time_ms = last.inner(3).map(time).transpose()?.map(|(millis, _)| millis);
    let mut exemplar = Exemplar { labels: Vec::new(), value: last.double(2), time_ms };
    message.read(|field| {
        if field.number() == 1 {
            exemplar.labels.push(label(field.inner())?);
        }
        Ok(())
    })?;
    Ok(exemplar)
}

/// Milliseconds since 1970, and the same in nanoseconds, zero before that.
fn time(message: Message<'_>) -> Result<(i64, u64)> {
    let last = message.last::<3>()?;
    let (seconds, nanos) = (last.int(1) as i64, last.int(2) as i32);
    let millis = seconds.saturating_mul(1000).saturating_add(i64::from(nanos / 1_000_000));
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Ok((millis, u64::try_from(total.max(0)).unwrap_or(u64::MAX)))
}

fn start_ns(message: Option<Message<'_>>) -> Result<u64> {
    message.map_or(Ok(0), |message| Ok(time(message)?.1))
}

/// A counter, a gauge, or one of unknown type.
fn number(message: Message<'_>, samples: &mut Samples<'_, '_, '_, '_, '_>) -> Result<()> {
    let last = message.last::<4>()?;
    let exemplar = last.inner(2).map(exemplar).transpose()?;
    let start_ns = start_ns(last.inner(3))?;
    let taken = samples.take(Part::Value, Value::Number(last.double(1)))?;
    samples.start(taken, start_ns);
    samples.exemplar(taken, exemplar);
    Ok(())
}

fn summary(message: Message<'_>, samples: &mut Samples<'_, '_, '_, '_, '_>) -> Result<()> {
    let last = message.last::<5>()?;
    let start_ns = start_ns(last.inner(4))?;
    let taken = samples.take(Part::Count, Value::Number(last.int(1) as f64))?;
    samples.start(taken, start_ns);
    samples.take(Part::Sum, Value::Number(last.double(2)))?;
    message.read(|field| {
        if field.number() == 3 {
            let last = field.inner().last::<3>()?;
            samples.take(Part::Quantile(last.double(1)), Value::Number(last.double(2)))?;
        }
        Ok(())
    })
}

/// The fields of a histogram that occur more than once.
#[derive(Default)]
struct Lists<'p> {
    buckets: Vec<Last<'p, 5>>,
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
    let last = message.last::<16>()?;
    let mut lists = Lists::default();
    message.read(|field| {
        let Lists { buckets, negative, positive, exemplars } = &mut lists;
        match field.number() {
            3 => buckets.push(field.inner().last()?),
            9 => negative.spans.push(span(field.inner())?),
            10 => field.ints(&mut negative.deltas)?,
            11 => field.doubles(&mut negative.counts),
            12 => positive.spans.push(span(field.inner())?),
            13 => field.ints(&mut positive.deltas)?,
            14 => field.doubles(&mut positive.counts),
            16 => exemplars.push(field.inner()),
            _ => {}
        }
        Ok(())
    })?;
    let target = samples.reading.target();
    let is_native = target.native_histograms
        && (!lists.positive.spans.is_empty()
            || !lists.negative.spans.is_empty()
            || last.double(6) > 0.0
            || last.int(7) > 0);
    let is_custom = !is_native && target.custom_histograms;
    let keeps_classic = target.always_classic_histograms;
    let is_classic = match is_native {
        true => keeps_classic && !lists.buckets.is_empty(),
        false => keeps_classic || !is_custom,
    };
    if is_native {
        native(message, &last, &lists, samples)?;
    }
    if is_classic {
        classic(&last, &lists, samples)?;
    }
    if is_custom {
        custom(message, (&last, &lists), is_classic, samples)?;
    }
    Ok(())
}

/// A classic histogram as a native one. With `keeps_classic`, its point has the exemplars already.
fn custom(
    message: Message<'_>,
    (last, lists): (&Last<'_, 16>, &Lists<'_>),
    keeps_classic: bool,
    samples: &mut Samples<'_, '_, '_, '_, '_>,
) -> Result<()> {
    let count = Some(one_of(last.int(1), last.double(4)));
    let bucket = |it: &Last<'_, 5>| (it.double(2), one_of(it.int(1), it.double(4)));
    let buckets: Vec<(f64, f64)> = lists.buckets.iter().map(bucket).collect();
    if buckets.iter().any(|(bound, _)| bound.is_nan()) {
        return message.fail("a bucket of a histogram has no bound");
    }
    let converted = Classic { sum: last.double(2), count, buckets }.convert();
    let converted = converted.or_else(|reason| message.fail(reason))?;
    if !samples.reading.takes_buckets(converted.charged_buckets()) {
        return message.fail(TOO_MANY_BUCKETS);
    }
    let start_ns = start_ns(last.inner(15))?;
    let taken = samples.take(Part::Custom, Value::Custom(converted))?;
    samples.start(taken, start_ns);
    if keeps_classic { Ok(()) } else { exemplars(taken, lists, samples) }
}

/// A count that may be fractional: then the integer does not count.
fn one_of(count: u64, float: f64) -> f64 {
    if float == 0.0 { count as f64 } else { float }
}

fn span(message: Message<'_>) -> Result<Span> {
    let last = message.last::<3>()?;
    Ok(Span { offset: zigzag(last.int(1)) as i32, length: last.int(2) as u32 })
}

fn classic(
    last: &Last<'_, 16>,
    lists: &Lists<'_>,
    samples: &mut Samples<'_, '_, '_, '_, '_>,
) -> Result<()> {
    let count = one_of(last.int(1), last.double(4));
    let start_ns = start_ns(last.inner(15))?;
    let taken = samples.take(Part::Count, Value::Number(count))?;
    samples.start(taken, start_ns);
    samples.take(Part::Sum, Value::Number(last.double(2)))?;
    for bucket in &lists.buckets {
        let (bound, count) = (bucket.double(2), one_of(bucket.int(1), bucket.double(4)));
        let exemplar = bucket.inner(3).map(exemplar).transpose()?;
        let taken = samples.take(Part::Bucket(bound), Value::Number(count))?;
        samples.exemplar(taken, exemplar);
        if bound == f64::INFINITY {
            return Ok(());
        }
    }
    samples.take(Part::Bucket(f64::INFINITY), Value::Number(count))?;
    Ok(())
}

fn native(
    message: Message<'_>,
    last: &Last<'_, 16>,
    lists: &Lists<'_>,
    samples: &mut Samples<'_, '_, '_, '_, '_>,
) -> Result<()> {
    let schema = zigzag(last.int(5)) as i32;
    if !SCHEMAS.contains(&schema) {
        return message.fail("a native histogram has a schema that is not a known one");
    }
    let buckets = width(&lists.positive.spans).saturating_add(width(&lists.negative.spans));
    if !samples.reading.takes_buckets(buckets) {
        return message.fail(TOO_MANY_BUCKETS);
    }
    let is_float = last.double(4) > 0.0 || last.double(8) > 0.0;
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
    let count = |int, float| if is_float { last.double(float) as u64 } else { last.int(int) };
    let native = Native {
        schema,
        count: count(1, 4),
        sum: last.double(2),
        zero_threshold: last.double(6),
        zero_count: count(7, 8),
        positive: side(&lists.positive)?,
        negative: side(&lists.negative)?,
    };
    let start_ns = start_ns(last.inner(15))?;
    let taken = samples.take(Part::Native, Value::Native(native))?;
    samples.start(taken, start_ns);
    exemplars(taken, lists, samples)
}

/// The exemplars of a histogram as a whole.
fn exemplars(
    taken: Option<(u32, i64)>,
    lists: &Lists<'_>,
    samples: &mut Samples<'_, '_, '_, '_, '_>,
) -> Result<()> {
    // Those of the classic buckets stand in for own ones. Without a time, neither counts.
    let of_buckets = lists.buckets.iter().filter_map(|bucket| bucket.inner(3));
    let exemplars: Vec<Message<'_>> = match lists.exemplars.as_slice() {
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
