//! The labels of points with the same attribute keys: their names, in order, and where each value
//! comes from.

use std::collections::HashMap;

use sluice_otlp::wire::{write_len_field, write_varint};

use crate::labels::{Attribute, Fixed, Rank};
use crate::names::{Strategy, label_name};

/// Layouts are forgotten beyond this many labels in all of them.
const LABELS_KEPT: usize = 16 * 1024;

const METRIC_NAME: &str = "__name__";

/// The label that series of a metric have beside their own ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    None,
    /// `le` of a bucket.
    Bound,
    /// `quantile` of a summary.
    Quantile,
}

impl Extra {
    pub(crate) fn name(self) -> &'static str {
        ["", "le", "quantile"][self as usize]
    }
}

/// Where a label's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The index of a label of the resource or the scope.
    Fixed(usize),
    /// The index of an attribute of the point.
    Point(usize),
    /// Attributes whose names became the same one.
    Merged(Vec<Source>),
}

pub(crate) struct Entry {
    pub(crate) name: String,
    /// The name as remote write 1.0 has it, up to the tag of the value.
    pub(crate) prefix: Vec<u8>,
    pub(crate) source: Source,
    /// Numbers in the table of remote write 2.0: of the name, and of the last value.
    pub(crate) symbols: Option<(u32, u32)>,
}

#[derive(Default)]
pub(crate) struct Layout {
    /// Sorted by name.
    pub(crate) entries: Vec<Entry>,
    /// The index of the first entry behind the metric's name.
    pub(crate) name_at: usize,
    /// The index of the first entry behind the extra label.
    pub(crate) extra_at: usize,
}

/// The layouts of one set of fixed labels.
#[derive(Default)]
pub(crate) struct Layouts {
    layouts: Vec<Layout>,
    by_keys: HashMap<Box<[u8]>, usize>,
    /// Keys of the point before, and its layout.
    last: (Vec<u8>, usize),
    keys: Vec<u8>,
    labels: usize,
}

impl Layouts {
    pub(crate) fn clear(&mut self) {
        *self = Layouts::default();
    }

    /// The layout of a point with these attributes.
    pub(crate) fn of(
        &mut self,
        strategy: Strategy,
        fixed: &[Fixed],
        attributes: &[Attribute<'_>],
        extra: Extra,
    ) -> &mut Layout {
        self.keys.clear();
        self.keys.push(extra as u8);
        for attribute in attributes {
            // An attribute without a value is no label, so that it makes another layout.
            let is_empty = u64::from(attribute.value.is_empty());
            write_varint(&mut self.keys, (attribute.key.len() as u64) << 1 | is_empty);
            self.keys.extend_from_slice(attribute.key);
        }
        if self.layouts.is_empty() || self.last.0 != self.keys {
            let index = match self.by_keys.get(&*self.keys) {
                Some(index) => *index,
                None => self.add(build(strategy, fixed, attributes, extra)),
            };
            self.last.1 = index;
            std::mem::swap(&mut self.last.0, &mut self.keys);
        }
        &mut self.layouts[self.last.1]
    }

    fn add(&mut self, layout: Layout) -> usize {
        if self.labels > LABELS_KEPT {
            self.layouts.clear();
            self.by_keys.clear();
            self.labels = 0;
        }
        let index = self.layouts.len();
        self.labels += layout.entries.len() + 1;
        self.layouts.push(layout);
        self.by_keys.insert(self.keys.as_slice().into(), index);
        index
    }
}

struct Candidate<'a> {
    name: String,
    rank: Rank,
    /// Of an attribute.
    key: &'a [u8],
    source: Source,
}

fn build(
    strategy: Strategy,
    fixed: &[Fixed],
    attributes: &[Attribute<'_>],
    extra: Extra,
) -> Layout {
    let mut candidates: Vec<Candidate<'_>> = Vec::with_capacity(fixed.len() + attributes.len());
    candidates.extend(fixed.iter().enumerate().map(|(index, label)| Candidate {
        name: label.name.clone(),
        rank: label.rank,
        key: &label.key,
        source: Source::Fixed(index),
    }));
    for (index, attribute) in attributes.iter().enumerate() {
        // An attribute of the resource takes the place of the point's of the same key.
        let is_fixed = |label: &Fixed| label.rank == Rank::Attribute && label.key == attribute.key;
        if attribute.value.is_empty() || fixed.iter().any(is_fixed) {
            continue;
        }
        let key = String::from_utf8_lossy(attribute.key);
        let Some(name) = label_name(strategy, &key) else { continue };
        let (rank, source) = (Rank::Attribute, Source::Point(index));
        candidates.push(Candidate { name, rank, key: attribute.key, source });
    }
    candidates.retain(|it| it.name != METRIC_NAME && it.name != extra.name());
    candidates.sort_by(|left, right| {
        let rank = right.rank.cmp(&left.rank);
        left.name.cmp(&right.name).then(rank).then(left.key.cmp(right.key))
    });
    let mut layout = Layout::default();
    for same in candidates.chunk_by(|left, right| left.name == right.name) {
        let first = &same[0];
        let all = same.iter().take_while(|other| other.rank == first.rank);
        let all: Vec<Source> = match first.rank {
            Rank::Attribute => all.map(|it| it.source.clone()).collect(),
            _ => vec![first.source.clone()],
        };
        let source = match <[Source; 1]>::try_from(all) {
            Ok([single]) => single,
            Err(several) => Source::Merged(several),
        };
        layout.name_at += usize::from(*first.name < *METRIC_NAME);
        layout.extra_at += usize::from(*first.name < *extra.name());
        let mut prefix = Vec::with_capacity(first.name.len() + 4);
        write_len_field(&mut prefix, 1, first.name.as_bytes());
        prefix.push(2 << 3 | 2);
        layout.entries.push(Entry { name: first.name.clone(), prefix, source, symbols: None });
    }
    layout.extra_at = layout.extra_at.max(layout.name_at);
    layout
}
