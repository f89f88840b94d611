//! The last values of series, as pages that a Prometheus scrapes: points and a time in, pages out.
//!
//! `adding` walks through a request, `value` says what a point makes of the one before, `text` and
//! `protobuf` write pages. A series is known by the bytes of its labels as remote write 1.0 has
//! them; a page of protobuf has the same bytes.
//!
//! The mapping is the Collector's (`prometheusexporter`). Differences:
//!
//! - Attributes whose names become the same label stand behind one another, and a label of the
//!   series takes the place of one of `const_labels`; the Collector leaves the series out.
//! - A label without a value is left out: to Prometheus that is the same.
//! - A conflict of types is found when a point comes, not when a page is written, and counted.
//! - Of resources with the same `job` and `instance`, the last one is in `target_info`.
//! - The points behind one that ends its series are not lost.

mod adding;
mod names;
mod protobuf;
mod text;
mod value;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluice_otlp::Malformed;

use self::adding::Adding;
use self::value::Series;
use crate::kind::Kind;
use crate::names::target_name;
use crate::settings::Settings;
use crate::walk;

/// Pages that may be in memory at a time, for the limit.
pub const PAGES: usize = 5;
/// Bytes of a line beside its name and labels: bound, value, time.
const LINE_BYTES: usize = 96;
const EXEMPLAR_BYTES: usize = 160;
/// Of a bucket of a native histogram in protobuf.
const BUCKET_BYTES: usize = 24;
/// A table's share of an entry, and the entry's share while a page is sorted.
const ENTRY_BYTES: usize = 64;

/// The bounds of all series together.
#[derive(Clone, Copy, Debug)]
pub struct ExposedLimits {
    /// A series that got no point for this long is forgotten.
    pub expiration: Duration,
    pub series: usize,
    /// Of the values, and of the pages that are in memory at a time.
    pub bytes: usize,
}

/// The outcome of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    pub points: u64,
    /// Of these, points that are on no page.
    pub refused: u64,
    /// Why the first of them is not.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageFormat {
    Text,
    OpenMetrics,
    Protobuf,
}

/// The form of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Page {
    pub format: PageFormat,
    /// Points have their times.
    pub timestamps: bool,
    /// Characters of names that old readers do not take become underscores.
    pub escapes: bool,
}

/// The last values of all series.
pub struct Exposed {
    settings: Arc<Settings>,
    limits: ExposedLimits,
    /// By name; none is empty.
    families: BTreeMap<String, Family>,
    /// Labels of `target_info` by job and instance.
    targets: HashMap<Vec<u8>, Vec<u8>>,
    room: Room,
}

/// The room that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Room {
    series: usize,
    bytes: usize,
    /// The length of a page of text, at most.
    page_bytes: usize,
}

/// The series of one name.
#[derive(Debug)]
struct Family {
    kind: Kind,
    help: String,
    /// By labels.
    series: HashMap<Vec<u8>, Series>,
}

impl Exposed {
    pub fn new(settings: Settings, limits: ExposedLimits) -> Exposed {
        Exposed {
            settings: Arc::new(settings),
            limits,
            families: BTreeMap::new(),
            targets: HashMap::new(),
            room: Room::default(),
        }
    }

    /// Whether the series are made by these settings, so that another of them may go on.
    pub fn is_of(&self, settings: &Settings) -> bool {
        *self.settings == *settings
    }

    /// Other limits, which may be lower than what is taken: then nothing is added for a while.
    pub fn set_limits(&mut self, limits: ExposedLimits) {
        self.limits = limits;
    }

    /// Adds the points of an encoded request. `now`: since any moment that stays the same.
    ///
    /// # Errors
    /// The request is no valid protobuf. What stands before the mistake is added.
    pub fn add(&mut self, request: &[u8], now: Duration) -> Result<Added, Malformed> {
        let settings = Arc::clone(&self.settings);
        let mut adding = Adding::new(self, now);
        let walked = walk::walk(&settings, request, &mut adding);
        let added = adding.end();
        walked.map(|()| added)
    }

    /// Forgets series that got no point for too long. They take no memory any more.
    pub fn expire(&mut self, now: Duration) {
        let Some(since) = now.checked_sub(self.limits.expiration) else { return };
        let room = &mut self.room;
        self.families.retain(|name, family| {
            family.series.retain(|_, series| {
                let stays = series.updated >= since;
                if !stays {
                    room.give_back(series, name);
                }
                stays
            });
            shrink(&mut family.series);
            if family.series.is_empty() {
                room.close(name, family);
            }
            !family.series.is_empty()
        });
        let name = target_name(&self.settings);
        let family = name.and_then(|name| self.families.get(&name));
        self.targets.retain(|_, labels| family.is_some_and(|it| it.series.contains_key(labels)));
        shrink(&mut self.targets);
    }

    /// The page of this moment, without series that have expired.
    pub fn page(&mut self, page: Page, now: Duration) -> Vec<u8> {
        self.expire(now);
        let is_open = page.format == PageFormat::OpenMetrics;
        if page.format == PageFormat::Protobuf {
            let mut out = Vec::with_capacity(self.room.page_bytes / 2);
            for (name, family) in &self.families {
                protobuf::write_family(&mut out, page, name, family);
            }
            return out;
        }
        let mut text = text::Text::new(page, is_open, self.room.page_bytes);
        self.families.iter().for_each(|(name, family)| text.family(name, family));
        text.end()
    }

    /// Series on a page: one a point.
    pub fn series(&self) -> usize {
        self.room.series
    }

    /// The bytes that they take of [`ExposedLimits::bytes`].
    pub fn bytes(&self) -> usize {
        self.room.bytes
    }
}

fn shrink<K: Eq + std::hash::Hash, V>(map: &mut HashMap<K, V>) {
    if map.len() < map.capacity() / 4 {
        map.shrink_to(map.len() * 2);
    }
}

impl Family {
    fn sorted(&self) -> Vec<(&[u8], &Series)> {
        let mut sorted: Vec<_> = self.series.iter().map(|(labels, it)| (&**labels, it)).collect();
        sorted.sort_unstable_by_key(|(labels, _)| *labels);
        sorted
    }

    /// The bytes of its metadata in memory and on a page.
    fn head_bytes(&self, name: &str) -> (usize, usize) {
        let page = 4 * name.len() + 2 * self.help.len() + LINE_BYTES;
        (name.len() + self.help.len() + size_of::<Family>() + ENTRY_BYTES, page)
    }
}

impl Room {
    /// Sets what a series takes. Returns its bytes on a page.
    fn weigh(series: &mut Series, name: &str, labels: &[u8]) -> usize {
        let page = Room::page_bytes(series, name);
        let memory = series.memory_bytes() + labels.len() + ENTRY_BYTES;
        series.cost_bytes = memory + PAGES * page;
        page
    }

    fn page_bytes(series: &Series, name: &str) -> usize {
        series.lines() * (name.len() + series.labels_bytes + LINE_BYTES)
            + series.exemplars.len() * EXEMPLAR_BYTES
            + series.native_buckets() * BUCKET_BYTES
    }

    fn give_back(&mut self, series: &Series, name: &str) {
        self.series -= 1;
        self.bytes -= series.cost_bytes;
        self.page_bytes -= Room::page_bytes(series, name);
    }

    fn open(&mut self, name: &str, family: &Family) {
        let (memory, page) = family.head_bytes(name);
        self.bytes += memory + PAGES * page;
        self.page_bytes += page;
    }

    fn close(&mut self, name: &str, family: &Family) {
        let (memory, page) = family.head_bytes(name);
        self.bytes -= memory + PAGES * page;
        self.page_bytes -= page;
    }
}
