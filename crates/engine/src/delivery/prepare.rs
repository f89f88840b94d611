//! From an entry of the log to units that can be sent: the steps that are left, and cuts at the
//! limits. And from the units of a batch to the request that goes over the wire.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_flow::dispatch::{Batch, Unit};
use sluice_flow::{Exporter, Frame, Metadata, PackError, Packed, Payload};
use sluice_otlp::{Encoding, Malformed, PartRef, Parts, Signal, Sizes, SplitLimits, parts};

use super::account::Account;
use super::content::{Content, LetGo, Recipe};
use super::feed::{Feed, Left};
use super::leased::{Fate, Leased};
use super::naming::{Name, Names};
use super::sending::work_of;
use crate::large_work::LargeWork;
use crate::private_memory::{ChargedCopy, ChargedMemory, PrivateMemory};
use crate::shared_work::Processed;
use crate::steps::{Chain, inflated};

/// Units without a name are not sent with those that have one: a repeat could pass for known.
const UNNAMED_GROUP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Units of frames that were found at the start, where the ledger tells these apart.
const FOUND_GROUP: u64 = 0xd1b5_4a32_d192_ed03;

/// The content of a unit: its frame, and the bytes to send.
#[derive(Clone)]
pub(crate) struct Lease {
    pub leased: Arc<Leased>,
    pub content: Content,
    /// Index of the path to this delivery that it took.
    pub(super) path: usize,
    /// The memory of the content, or of all that it is a part of, where it is not the frame's own.
    pub(super) charged: Option<Arc<ChargedCopy>>,
    /// The memory of headers that parts share.
    pub(super) headers: Option<Arc<Mutex<ChargedMemory>>>,
    /// None if no exporter asks for it, or the frame has no identity.
    pub name: Option<Name>,
    /// None if it cannot be made again by itself.
    pub(super) recipe: Option<Arc<Recipe>>,
}

impl Lease {
    /// Makes its payload again.
    fn restore(&mut self) -> Result<Bytes, String> {
        self.charged = self.content.restore()?;
        Ok(self.content.payload()?.bytes)
    }
}

/// A part of a frame that cannot be sent: it becomes a dead letter.
pub(crate) struct Unsendable {
    pub payload: Payload,
    pub items: u32,
    pub reason: String,
}

impl Unsendable {
    pub(super) fn whole(frame: &Frame, reason: String) -> Self {
        Unsendable { payload: frame.payload.clone(), items: frame.items, reason }
    }
}

/// The limits at the time at which units are made.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub units: SplitLimits,
    /// For the input of steps that may make something else the next time.
    pub steps: SplitLimits,
}

pub(crate) struct Preparer {
    pub names: Names,
    pub exporter: Arc<dyn Exporter>,
    pub account: Arc<Account>,
    /// Memory that units take beside their frames.
    pub memory: Arc<PrivateMemory>,
    pub large_work: Arc<LargeWork>,
    /// Metadata by which units are told apart: for the exporter, and `batch.metadata_keys`.
    pub metadata_keys: Vec<String>,
    /// By receiver: the paths from it to this delivery (several where a connector joins pipelines).
    pub chains: HashMap<u16, Vec<Chain>>,
    /// Indices of receivers by their ids, for frames that were read from disk.
    pub receivers: HashMap<String, u16>,
    /// For frames whose receiver does not lead here any more: the steps of the own pipeline.
    pub orphans: [Chain; 1],
}

impl Preparer {
    /// The next unit of a frame; nothing at its end.
    pub(crate) fn next(
        &self,
        feed: &mut Feed,
        limits: Limits,
    ) -> Option<Result<Unit<Lease>, Unsendable>> {
        let next = self.make_next(feed, limits)?;
        feed.begin();
        // After its last unit, only the units keep a frame unresolved.
        if feed.slices.as_ref().is_some_and(|(_, slices)| slices.is_over()) {
            feed.slices = None;
        }
        Some(next)
    }

    fn make_next(
        &self,
        feed: &mut Feed,
        limits: Limits,
    ) -> Option<Result<Unit<Lease>, Unsendable>> {
        let leased = feed.leased.clone();
        let frame = &leased.entry.frame;
        let whole = |reason| Unsendable::whole(frame, reason);
        if !feed.has_begun
            && let Some(reason) = self.exporter.refuses(&frame.metadata)
        {
            feed.end();
            return Some(Err(whole(reason)));
        }
        let (bytes, items) = (frame.payload.uncompressed_len_bytes, frame.items as usize);
        loop {
            if feed.is_let_go()
                && let Err(reason) = self.large_work.on(bytes, items, || self.restore(feed))
            {
                feed.end();
                (feed.cutting, feed.slices) = (None, None);
                return Some(Err(whole(reason)));
            }
            if let Some((lease, Left::Here(parts))) = &mut feed.cutting {
                let SplitLimits { max_bytes, max_items } = limits.units;
                let (bytes, items) = (bytes.min(max_bytes), items.min(max_items));
                match self.large_work.on(bytes, items, || parts.next()) {
                    Some(Ok(part)) => {
                        let (lease, before) = (lease.clone(), feed.pass_items(part.sizes.items));
                        return Some(Ok(self.part(&lease, part, before)));
                    }
                    Some(Err(error)) => return Some(Err(whole(cannot_cut(&error)))),
                    None => feed.cutting = None,
                }
            }
            match self.large_work.on(bytes, items, || self.next_cut(feed, limits)) {
                Ok(None) => return None,
                Ok(Some(Cut::Unit(unit))) => return Some(Ok(unit)),
                Ok(Some(Cut::Parts(lease, parts))) => {
                    feed.cutting = Some((lease, Left::Here(parts)));
                }
                Err(unsendable) => return Some(Err(unsendable)),
            }
        }
    }

    /// Makes again what the next unit is cut from.
    fn restore(&self, feed: &mut Feed) -> Result<(), String> {
        let cannot_cut = |error: Malformed| cannot_cut(&error);
        if let Some((lease, left)) = &mut feed.cutting {
            if let Left::LetGo(parts) = left {
                let parts = parts.attached(&lease.restore()?).map_err(cannot_cut)?;
                let headers = self.memory.charge(parts.header_bytes());
                lease.headers = Some(Arc::new(Mutex::new(headers)));
                *left = Left::Here(parts);
            }
        } else if let Some((lease, left)) = &mut feed.slices
            && let Left::LetGo(slices) = left
        {
            let slices = slices.attached(&lease.restore()?).map_err(cannot_cut)?;
            *left = Left::Here(slices);
        }
        Ok(())
    }

    /// The next result of the steps, cut where it has to be. None after the last path.
    fn next_cut(&self, feed: &mut Feed, limits: Limits) -> Result<Option<Cut>, Unsendable> {
        let leased = feed.leased.clone();
        let frame = &leased.entry.frame;
        while let Some(made) = self.next_made(feed, limits.steps).transpose()? {
            let (Processed { payload, items, charged }, slice) = made;
            if items == 0 && frame.items > 0 {
                continue;
            }
            let (path, content) = (feed.next_path - 1, Content::Whole(payload));
            let (leased, name) = (leased.clone(), self.name(&leased, path));
            let is_slice = slice.is_some();
            let recipe = self.recipe(&leased, path, slice);
            let lease = Lease { leased, content, path, charged, headers: None, name, recipe };
            let cut = self.cut(lease, items, limits.units);
            let mut cut = cut.map_err(|reason| Unsendable::whole(frame, reason))?;
            if let Cut::Unit(unit) = &mut cut {
                let before = feed.pass_items(items);
                if is_slice {
                    // Each slice is a part of what the steps make of the frame.
                    unit.lease.name = name.map(|name| name.part(before));
                }
            }
            return Ok(Some(cut));
        }
        Ok(None)
    }

    /// True if nothing more is to be made of a frame.
    pub(crate) fn is_over(&self, feed: &Feed) -> bool {
        feed.next_path >= self.paths_of(&feed.leased.entry).len()
            && feed.slices.is_none()
            && feed.cutting.as_ref().is_none_or(|(_, parts)| parts.is_over())
    }

    fn name(&self, leased: &Leased, path: usize) -> Option<Name> {
        let steps = self.exporter.names_ranges().then(|| self.steps_of(&leased.entry, path))?;
        self.names.of_whole(leased, path, steps)
    }

    fn cut(&self, mut lease: Lease, items: u32, limits: SplitLimits) -> Result<Cut, String> {
        let payload = lease.content.payload()?;
        // Parts of what could not be made again in the same way have to be kept.
        let stays_whole = items <= 1 && lease.recipe.as_ref().is_some_and(|it| !it.is_exact());
        let fits = stays_whole || limits.allow(payload.uncompressed_len_bytes, items);
        let verbatim = payload.encoding != Encoding::Identity
            && self.exporter.passes_through() == Some(payload.encoding)
            && payload.bytes.len() <= self.exporter.pass_through_limit_bytes();
        let alone = fits && verbatim;
        if !alone {
            self.inflate(&mut lease)?;
        }
        Ok(match fits {
            true => Cut::Unit(self.unit(lease, items, payload.uncompressed_len_bytes, alone)),
            false => {
                let parts = self.parts(&mut lease, limits)?;
                Cut::Parts(lease, parts)
            }
        })
    }

    /// Inflates the payload of a lease. It is charged once, whatever the number of deliveries.
    pub(super) fn inflate(&self, lease: &mut Lease) -> Result<(), String> {
        if let Content::Whole(payload) = &lease.content
            && payload.encoding != Encoding::Identity
        {
            let inflate = || inflated(payload);
            let copy = match &lease.leased.entry.shared {
                Some(shared) => shared.inflated(&self.memory, inflate)?,
                None => ChargedCopy::new(inflate()?, &self.memory),
            };
            lease.content = Content::Whole(Payload::identity(copy.bytes.clone()));
            lease.charged = Some(copy);
        }
        Ok(())
    }

    /// Lets go of the memory that a lease has beside its frame: what is sent of it is made again.
    /// False if it has none, or shares it.
    pub(crate) fn let_go(&self, lease: &mut Lease) -> bool {
        let recipe = lease.recipe.as_ref().filter(|_| lease.charged.is_some());
        let gone = recipe.and_then(|recipe| LetGo::new(&lease.content, recipe));
        let Some(gone) = gone else { return false };
        lease.content = Content::LetGo(Arc::new(gone));
        (lease.charged, lease.headers) = (None, None);
        true
    }

    /// The same for what is still to be made of a frame.
    pub(crate) fn let_go_of_feed(&self, feed: &mut Feed) {
        if let Some((lease, left)) = &mut feed.cutting
            && let Left::Here(parts) = left
            && self.let_go(lease)
        {
            *left = Left::LetGo(parts.detached());
        }
        if let Some((lease, left)) = &mut feed.slices
            && let Left::Here(slices) = left
            && self.let_go(lease)
        {
            *left = Left::LetGo(slices.detached());
        }
    }

    fn unit(&self, mut lease: Lease, items: u32, bytes: usize, alone: bool) -> Unit<Lease> {
        self.charge(&mut lease);
        let mut group = group(&self.metadata_keys, &lease.leased.entry.frame.metadata);
        if lease.name.is_none() && self.exporter.names_ranges() {
            group ^= UNNAMED_GROUP;
        }
        if self.account.is_found(lease.leased.offset) && self.exporter.item_names().is_some() {
            group ^= FOUND_GROUP;
        }
        Unit { items, bytes, alone, group, lease }
    }

    /// Charges the payload of a lease, unless the frame or another lease has it too.
    fn charge(&self, lease: &mut Lease) {
        if let Content::Whole(payload) = &lease.content {
            let is_stored = is_part(&lease.leased.entry.frame.payload.bytes, &payload.bytes);
            let charged = lease.charged.take().filter(|copy| is_part(&copy.bytes, &payload.bytes));
            let own = || ChargedCopy::new(payload.bytes.clone(), &self.memory);
            lease.charged = if is_stored { None } else { Some(charged.unwrap_or_else(own)) };
            if let (None, Some(copy)) = (&lease.recipe, &lease.charged) {
                copy.keep();
            }
        }
    }

    /// The parts of an uncompressed payload, or of a part.
    fn parts(&self, lease: &mut Lease, limits: SplitLimits) -> Result<Parts, String> {
        // They could not be found again in what is made another time.
        lease.recipe = lease.recipe.take().filter(|recipe| recipe.is_exact());
        self.charge(lease);
        lease.headers.get_or_insert_with(|| Arc::new(Mutex::new(self.memory.charge(0))));
        match &lease.content {
            Content::Part(part) => Ok(part.parts(limits)),
            other => {
                let (signal, payload) = (lease.leased.entry.frame.signal, other.payload()?);
                parts(signal, &payload.bytes, limits).map_err(|error| cannot_cut(&error))
            }
        }
    }

    /// A part of a lease, which begins behind this many of its items.
    fn part(&self, lease: &Lease, part: PartRef, behind_items: u32) -> Unit<Lease> {
        let Sizes { items, len_bytes, copied_bytes } = part.sizes;
        if let Some(headers) = lease.headers.as_ref().filter(|_| copied_bytes > 0) {
            let mut headers = headers.lock();
            let all_bytes = headers.bytes() + copied_bytes;
            headers.set(all_bytes);
        }
        let name = lease.name.map(|name| name.part(behind_items));
        let content = Content::Part(Arc::new(part));
        let lease = Lease { content, name, ..lease.clone() };
        self.unit(lease, items, len_bytes, false)
    }

    /// Cuts a unit that the backend found too large or refused.
    pub(crate) fn divide(
        &self,
        unit: Unit<Lease>,
        limits: SplitLimits,
    ) -> Result<Vec<Unit<Lease>>, String> {
        let [bytes, items] = work_of(std::slice::from_ref(&unit));
        let mut lease = unit.lease;
        let units = self.large_work.on(bytes, items, || {
            if lease.content.is_let_go() {
                lease.restore()?;
            }
            self.inflate(&mut lease)?;
            let parts = self.parts(&mut lease, limits)?;
            let mut before = 0;
            let units = parts.map(|part| {
                part.map(|part| {
                    let behind = before;
                    before += part.sizes.items;
                    self.part(&lease, part, behind)
                })
            });
            units.collect::<Result<Vec<_>, _>>().map_err(|error| cannot_cut(&error))
        })?;
        // It is none any more itself.
        lease.leased.add_parts(units.len());
        lease.leased.resolve_part(Fate::Taken);
        Ok(units)
    }
}

/// The length of the headers that the items of a unit share if they are nearly all of it: where the
/// unit is too large, its parts would be so too, and each would repeat the headers.
pub(super) fn dominant_header_bytes(unit: &Unit<Lease>) -> Option<usize> {
    unit.lease.content.dominant_header_bytes()
}

/// A payload as a unit, or what it is cut into.
enum Cut {
    Unit(Unit<Lease>),
    Parts(Lease, Parts),
}

fn cannot_cut(error: &Malformed) -> String {
    format!("cannot cut a frame that was valid on receipt: {error}")
}

pub(super) fn contents(batch: &Batch<Lease>) -> Vec<Content> {
    batch.units.iter().map(|unit| unit.lease.content.clone()).collect()
}

/// The request that goes over the wire.
pub(super) fn pack(
    exporter: &dyn Exporter,
    signal: Signal,
    items: u32,
    sources: Vec<Content>,
    metadata: Arc<Metadata>,
) -> Result<Packed, PackError> {
    let sources: Vec<_> = sources.iter().map(Content::payload).collect::<Result<_, _>>()?;
    if let [Payload { bytes, encoding, .. }] = sources.as_slice()
        && *encoding != Encoding::Identity
        && exporter.passes_through() == Some(*encoding)
    {
        let chunks = vec![bytes.clone()];
        return Ok(Packed::new(signal, items, chunks, *encoding, metadata));
    }
    // A source that is a copy must not be referred to twice: it would not count as one.
    let chunks = sources.into_iter().map(|it| inflated(&it)).collect::<Result<_, String>>()?;
    let (chunks, encoding) = exporter.pack(signal, chunks)?;
    Ok(Packed::new(signal, items, chunks, encoding, metadata))
}

/// True if `part` lies within `whole`, so that it costs nothing.
fn is_part(whole: &Bytes, part: &Bytes) -> bool {
    let (whole, part) = (whole.as_ptr_range(), part.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}

/// Units that differ in the metadata that their exporter reads are of different groups.
fn group(keys: &[String], metadata: &Metadata) -> u64 {
    if keys.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    for key in keys {
        let values = metadata.headers.iter().filter(|(name, _)| name == key);
        values.for_each(|header| header.hash(&mut hasher));
    }
    hasher.finish()
}
