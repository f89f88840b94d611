//! Series of classic histograms on a page of text, each of which becomes one native histogram with
//! custom buckets. The series of one stand one after the other.

use std::borrow::Cow;

use sluice_otlp::wire::write_varint;
use sluice_prometheus::Kind;

use crate::custom::Classic;
use crate::error::ScrapeError;
use crate::labels::{Labels, NAME};
use crate::number::parse_float;
use crate::scraper::Reading;
use crate::target::Target;
use crate::text::{Exemplar, Reader, Sample};
use crate::value::{Found, Value};

/// No page of any format starts a series with it.
const KEY_MARK: [u8; 2] = [0; 2];

/// The histogram that is read.
#[derive(Default)]
pub(crate) struct Collation<'p> {
    is_wanted: bool,
    /// The series are taken as they are, too.
    keeps_series: bool,
    /// Of the last type, if that is a histogram.
    name: Cow<'p, str>,
    open: Option<Open<'p>>,
}

struct Open<'p> {
    /// Stands for name and labels.
    key: Vec<u8>,
    /// Without bounds.
    labels: Labels<'p>,
    time_ms: Option<i64>,
    classic: Classic,
    exemplars: Vec<Exemplar<'p>>,
}

#[derive(Clone, Copy)]
enum Part {
    Bucket,
    Count,
    Sum,
    Created,
}

impl Part {
    fn of(suffix: &str) -> Option<Part> {
        match suffix {
            "_bucket" => Some(Part::Bucket),
            "_count" => Some(Part::Count),
            "_sum" => Some(Part::Sum),
            "_created" => Some(Part::Created),
            _ => None,
        }
    }
}

/// A series of a histogram.
struct Read<'p> {
    part: Part,
    bound: Option<f64>,
    labels: Labels<'p>,
}

impl<'p> Collation<'p> {
    pub(crate) fn of(target: &Target) -> Collation<'p> {
        let keeps_series = target.always_classic_histograms;
        Collation { is_wanted: target.custom_histograms, keeps_series, ..Collation::default() }
    }

    /// Notes the type of the series that follow.
    pub(crate) fn begin(&mut self, name: Cow<'p, str>, kind: Kind) {
        self.name = match kind {
            Kind::Histogram if self.is_wanted => name,
            _ => Cow::Borrowed(""),
        };
    }

    /// Takes a sample that is a part of a histogram; returns one that is to be taken as it is.
    pub(crate) fn add(
        &mut self,
        reader: &Reader<'p>,
        sample: Sample<'p>,
        reading: &mut Reading<'_, '_>,
    ) -> Result<Option<Sample<'p>>, ScrapeError> {
        if self.name.is_empty() {
            return Ok(Some(sample));
        }
        let Some(Read { part, bound, labels }) = self.read(reader, sample.series) else {
            self.end(reading)?;
            return Ok(Some(sample));
        };
        let (key, time_ms) = (key_of(&labels), sample.time_ms);
        let is_other = |open: &Open<'_>| open.key != key || open.time_ms != time_ms;
        if self.open.as_ref().is_some_and(is_other) {
            self.end(reading)?;
        }
        if matches!((part, bound), (Part::Created, _) | (Part::Bucket, None)) {
            return Ok(Some(sample));
        }
        let (classic, exemplars) = (Classic::default(), Vec::new());
        let new = || Open { key, labels, time_ms, classic, exemplars };
        let open = self.open.get_or_insert_with(new);
        match (part, bound) {
            (Part::Sum, _) => open.classic.sum = sample.value,
            (Part::Count, _) => open.classic.count = Some(sample.value),
            (Part::Bucket, Some(bound)) => open.classic.buckets.push((bound, sample.value)),
            (Part::Bucket, None) | (Part::Created, _) => {}
        }
        if self.keeps_series {
            return Ok(Some(sample));
        }
        open.exemplars.extend(sample.exemplar);
        Ok(None)
    }

    /// The part of a histogram of this name that a series is.
    fn read(&self, reader: &Reader<'p>, series: &'p [u8]) -> Option<Read<'p>> {
        let (mut labels, mut part, mut bound) = (Labels::default(), None, None);
        let read = reader.labels(series, |name, value| match &*name {
            NAME => part = value.strip_prefix(&*self.name).and_then(Part::of),
            "le" => bound = parse_float(value.as_bytes()).filter(|bound| !bound.is_nan()),
            _ => labels.push(name, value),
        });
        read.ok()?;
        labels.push(NAME.into(), self.name.clone());
        labels.sort();
        Some(Read { part: part?, bound, labels })
    }

    /// Takes the histogram whose series were read.
    pub(crate) fn end(&mut self, reading: &mut Reading<'_, '_>) -> Result<(), ScrapeError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let Open { key, labels, time_ms, classic, exemplars } = open;
        let Ok(custom) = classic.convert() else {
            if !self.keeps_series {
                reading.discard();
            }
            return Ok(());
        };
        if !reading.takes_buckets(custom.charged_buckets()) {
            return Err(ScrapeError::PageBuckets);
        }
        let known = reading.series().find(&key);
        let found = Found { raw: &key, known, value: Value::Custom(custom), time_ms };
        let Some((group, _)) = reading.sample(found, || Ok(labels))? else { return Ok(()) };
        // As in native histograms, one without a time does not count.
        for exemplar in exemplars {
            if let Some(time_ms) = exemplar.time_ms {
                reading.points().add_exemplar(group, time_ms, exemplar.value, |label| {
                    exemplar.visit(label);
                });
            }
        }
        Ok(())
    }
}

fn key_of(labels: &Labels<'_>) -> Vec<u8> {
    let mut key = KEY_MARK.to_vec();
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        write_varint(&mut key, text.len() as u64);
        key.extend_from_slice(text.as_bytes());
    }
    key
}
