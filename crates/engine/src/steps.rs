//! Chains of processors, and the rest of a chain for a frame.

mod last;
mod slices;

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use sluice_flow::source::is_large_work;
use sluice_flow::{Metadata, Payload};
use sluice_net::compress::decompress;
use sluice_otlp::{Beyond, Encoding, Signal, SplitLimits, count};
use sluice_processors::Processor;

use crate::shared_work::Processed;
pub(crate) use last::last_step;
pub(crate) use slices::{Unprocessed, next_slice};

pub(crate) struct Step {
    pub id: String,
    /// Its place in the configuration: `gateway.yaml:3`.
    pub place: String,
    /// Hash of kind and configuration: two steps with the same fingerprint do the same.
    pub fingerprint: u64,
    pub processor: Box<dyn Processor>,
    /// A reload hands them on to the step of this name in the new plan.
    pub counters: ArcSwap<StepCounters>,
}

impl Step {
    fn failed(&self, error: impl Display) -> Failure {
        Failure::Step(format!("processor {}: {error}", self.id))
    }
}

/// Items, each time that a step ran.
#[derive(Default)]
pub(crate) struct StepCounters {
    pub incoming: AtomicU64,
    pub outgoing: AtomicU64,
}

/// The processors between a receiver and a delivery, in order.
#[derive(Clone)]
pub(crate) struct Chain {
    pub steps: Arc<[Arc<Step>]>,
    /// Number of deliveries that need exactly this result.
    pub sharers: usize,
}

impl Chain {
    /// The steps that did not run before the log, perhaps under an older configuration: steps that
    /// already ran are left out, wherever they are in the chain. So are those that remember: they
    /// run once for a request, before the log, or not at all.
    pub(crate) fn remaining(&self, prepared: &[u64]) -> Vec<Arc<Step>> {
        self.left(prepared).cloned().collect()
    }

    /// Nothing remains of it.
    pub(crate) fn has_run(&self, prepared: &[u64]) -> bool {
        self.left(prepared).next().is_none()
    }

    fn left(&self, prepared: &[u64]) -> impl Iterator<Item = &Arc<Step>> {
        let is_prefix = prepared.len() <= self.steps.len()
            && prepared.iter().zip(self.steps.iter()).all(|(done, step)| *done == step.fingerprint);
        let behind = if is_prefix { prepared.len() } else { 0 };
        let is_left = move |step: &&Arc<Step>| is_prefix || !prepared.contains(&step.fingerprint);
        let forgets = |step: &&Arc<Step>| step.processor.series().is_none();
        self.steps[behind..].iter().filter(is_left).filter(forgets)
    }
}

/// The uncompressed request. It was valid on receipt: only a fault of ours can make this fail.
pub(crate) fn inflated(payload: &Payload) -> Result<Bytes, String> {
    if payload.encoding == Encoding::Identity {
        return Ok(payload.bytes.clone());
    }
    decompress(payload.encoding, &payload.bytes, payload.uncompressed_len_bytes)
        .map_err(|error| format!("cannot inflate a frame that was valid on receipt: {error}"))
}

/// The identity of a list of steps, by their fingerprints.
pub(crate) fn identity(steps: &[Arc<Step>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for step in steps {
        step.fingerprint.hash(&mut hasher);
    }
    hasher.finish()
}

/// The same steps make the same of a request each time.
pub(crate) fn are_repeatable(steps: &[Arc<Step>]) -> bool {
    steps.iter().all(|step| step.processor.is_repeatable())
}

pub(crate) fn common_prefix(chains: &[Vec<Arc<Step>>]) -> Vec<Arc<Step>> {
    let mut prefix = chains.first().cloned().unwrap_or_default();
    for chain in chains {
        let pairs = prefix.iter().zip(chain);
        let common = pairs.take_while(|(one, other)| one.fingerprint == other.fingerprint).count();
        prefix.truncate(common);
    }
    prefix
}

/// Runs `work` while no other request passes the steps that remember. It says whether what they
/// have noted is kept: if not, they are as they were before.
pub(crate) fn in_turn<R>(steps: &[Arc<Step>], work: impl FnOnce() -> (bool, R)) -> R {
    let mut series: Vec<_> = steps.iter().filter_map(|step| step.processor.series()).collect();
    // All requests wait for their turns in the same order.
    series.sort_by_key(|it| Arc::as_ptr(it).cast::<()>());
    series.dedup_by(|one, other| Arc::ptr_eq(one, other));
    let _turns: Vec<_> = series.iter().map(|series| series.turn()).collect();
    let (is_kept, result) = work();
    for series in &series {
        if is_kept { series.keep() } else { series.undo_to(0) }
    }
    result
}

/// Why steps have no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Which processor failed, and why.
    Step(String),
    /// The request would take more memory than it may, in changes and results, or is to be cut
    /// before: it goes through the steps in slices.
    Grows,
}

/// Memory that the steps may take beyond what is in proportion to the request.
const GROWTH_BYTES: usize = 1 << 20;
/// The same for one item, which cannot be cut.
const ITEM_GROWTH_BYTES: usize = 4 << 20;

/// Memory that one step may take for a request of this size, for its changes and its result. A
/// large request that can be cut may grow less: [`crate::large_work`] counts with that.
fn allowance(len_bytes: usize, items: u32) -> usize {
    let (times, growth_bytes) = match items > 1 {
        true if is_large_work(len_bytes, items as usize) => (2, GROWTH_BYTES),
        true => (3, GROWTH_BYTES),
        false => (3, ITEM_GROWTH_BYTES),
    };
    len_bytes.saturating_mul(times).saturating_add(growth_bytes)
}

fn apply(
    step: &Step,
    signal: Signal,
    bytes: &Bytes,
    metadata: &Metadata,
    limit_bytes: usize,
) -> Result<Option<Bytes>, Failure> {
    let edited = step.processor.process(signal, bytes, metadata, limit_bytes);
    edited.map_err(|error| step.failed(error))?.map_err(|Beyond| Failure::Grows)
}

/// Makes the result of steps again, as [`run`] did. Nothing is counted twice. A step that makes
/// something else this time, and more than it may, is passed over.
pub(crate) fn run_again(
    steps: &[Arc<Step>],
    signal: Signal,
    mut bytes: Bytes,
    items: u32,
    metadata: &Metadata,
) -> Result<Bytes, String> {
    let limit_bytes = allowance(bytes.len(), items);
    for step in steps {
        let edited = match apply(step, signal, &bytes, metadata, limit_bytes) {
            Ok(edited) => edited,
            Err(Failure::Grows) if !step.processor.is_repeatable() => None,
            Err(Failure::Step(reason)) => return Err(reason),
            Err(Failure::Grows) => {
                return Err(format!("processor {} makes more than the last time", step.id));
            }
        };
        bytes = edited.unwrap_or(bytes);
    }
    Ok(bytes)
}

/// Runs steps over an uncompressed request. With zero items there is nothing left to send. Steps
/// that fail remember nothing of it.
pub(crate) fn run(
    steps: &[Arc<Step>],
    signal: Signal,
    bytes: Bytes,
    items: u32,
    metadata: &Metadata,
) -> Result<Processed, Failure> {
    run_within(None, steps, signal, bytes, items, metadata)
}

/// The same. A result of several items that is beyond the limits is [`Failure::Grows`].
pub(crate) fn run_within(
    limits: Option<SplitLimits>,
    steps: &[Arc<Step>],
    signal: Signal,
    bytes: Bytes,
    items: u32,
    metadata: &Metadata,
) -> Result<Processed, Failure> {
    let series = steps.iter().filter_map(|step| step.processor.series());
    let marks: Vec<_> = series.map(|series| (series.mark(), series)).collect();
    let processed = run_all(limits, steps, signal, bytes, items, metadata);
    if processed.is_err() {
        marks.iter().for_each(|(mark, series)| series.undo_to(*mark));
    }
    processed
}

/// A request of several items that is beyond the limits, if there are any, goes in slices.
pub(crate) fn check_size(
    limits: Option<SplitLimits>,
    len_bytes: usize,
    items: u32,
) -> Result<(), Failure> {
    match limits {
        Some(limits) if items > 1 && !limits.allow(len_bytes, items) => Err(Failure::Grows),
        _ => Ok(()),
    }
}

fn run_all(
    limits: Option<SplitLimits>,
    steps: &[Arc<Step>],
    signal: Signal,
    mut bytes: Bytes,
    mut items: u32,
    metadata: &Metadata,
) -> Result<Processed, Failure> {
    let mut passed = Vec::with_capacity(steps.len());
    let limit_bytes = allowance(bytes.len(), items);
    for step in steps {
        let before = items;
        if let Some(edited) = apply(step, signal, &bytes, metadata, limit_bytes)? {
            items = count(signal, &edited).map_err(|error| step.failed(error))?;
            bytes = edited;
        }
        passed.push((before, items));
    }
    check_size(limits, bytes.len(), items)?;
    // A request that grows too much goes through them again, in slices.
    for (step, (before, after)) in steps.iter().zip(passed) {
        let counters = step.counters.load();
        counters.incoming.fetch_add(u64::from(before), Ordering::Relaxed);
        counters.outgoing.fetch_add(u64::from(after), Ordering::Relaxed);
    }
    Ok(Processed { payload: Payload::identity(bytes), items, charged: None })
}

#[cfg(test)]
mod tests {
    use sluice_otlp::{
        AnyValue, Attributes, Halving, ItemEditor, NewValue, View, edit_items_within,
    };
    use sluice_processors::Edited;

    use super::*;

    /// Adds an attribute of 128 bytes to each item.
    struct Adds;

    impl ItemEditor for Adds {
        fn item(&mut self, _: View<'_>, attributes: &mut Attributes<'_>) {
            let value = AnyValue::String("v".repeat(128)).encoded();
            attributes.add(b"k", NewValue::Encoded(&value));
        }
    }

    impl Processor for Adds {
        fn process(&self, signal: Signal, request: &Bytes, _: &Metadata, limit: usize) -> Edited {
            edit_items_within(signal, request, limit, &mut Adds)
        }

        fn fingerprint(&self) -> u64 {
            9
        }
    }

    /// Scenario: a request of empty records becomes sixty times as large. Guarantee: no step takes
    /// more than its allowance; in slices, all records come out, and are counted once.
    #[test]
    fn a_request_that_grows_goes_through_its_steps_in_slices() {
        const RECORDS: u32 = 65_536;
        let records = [0x12, 0].repeat(RECORDS as usize);
        // The lengths of 131,072 and 131,076 bytes as varints.
        let head = [0x0a, 0x84, 0x80, 0x08, 0x12, 0x80, 0x80, 0x08];
        let request = Bytes::from([&head[..], &records].concat());
        assert_eq!(count(Signal::Logs, &request), Ok(RECORDS));
        let (id, processor) = ("adds".to_owned(), Box::new(Adds));
        let place = String::new();
        let step = Step { id, place, fingerprint: 9, processor, counters: ArcSwap::default() };
        let (steps, metadata) = (vec![Arc::new(step)], Metadata::default());
        let whole = run(&steps, Signal::Logs, request.clone(), RECORDS, &metadata);
        assert!(matches!(whole, Err(Failure::Grows)));
        let mut slices =
            Halving::new(Signal::Logs, &request, SplitLimits::half_of(RECORDS)).expect("is valid");
        let (mut items, mut bytes) = (0, 0);
        while let Some(slice) = next_slice(&mut slices, None, &steps, Signal::Logs, &metadata) {
            let Ok((_, Processed { payload, items: own, .. })) = slice else {
                panic!("has a result")
            };
            assert_eq!(count(Signal::Logs, &payload.bytes), Ok(own));
            assert!(payload.bytes.len() <= allowance(request.len(), 2));
            (items, bytes) = (items + own, bytes + payload.bytes.len());
        }
        assert_eq!(items, RECORDS);
        assert!(bytes > 128 * RECORDS as usize && slices.is_over());
        let counters = steps[0].counters.load();
        assert_eq!(counters.outgoing.load(Ordering::Relaxed), u64::from(RECORDS));
    }

    /// A cumulative point of the series at 1 s, with this time and value.
    fn request(time: u8, value: u8) -> Bytes {
        let fixed =
            |number: u8, value: u64| [&[number << 3 | 1][..], &value.to_le_bytes()].concat();
        let second = |time: u8| u64::from(time) * 1_000_000_000;
        let point = [fixed(2, second(1)), fixed(3, second(time)), fixed(6, value.into())].concat();
        let nested = |number: u8, content: &[u8]| {
            [&[number << 3 | 2, content.len() as u8][..], content].concat()
        };
        let sum = [nested(1, &point), vec![0x10, 2, 0x18, 1]].concat();
        let metric = [nested(1, b"m"), nested(7, &sum)].concat();
        nested(1, &nested(2, &nested(2, &metric))).into()
    }

    fn remembers() -> Arc<Step> {
        let read = |fields: &mut sluice_config::Fields<'_>| {
            sluice_processors::PROCESSORS.read("cumulative_to_delta", fields)
        };
        let (settings, _) = sluice_config::read_text("p", "{}", read);
        let Some(sluice_processors::ProcessorConfig::Edits(build)) = settings else {
            panic!("edits")
        };
        let processor = build(Signal::Metrics).expect("fits metrics").processor;
        let (id, counters) = ("remembers".to_owned(), ArcSwap::default());
        let place = String::new();
        Arc::new(Step { id, place, fingerprint: processor.fingerprint(), processor, counters })
    }

    /// Grows beyond any limit.
    struct Fails;

    impl Processor for Fails {
        fn process(&self, _: Signal, _: &Bytes, _: &Metadata, _: usize) -> Edited {
            Ok(Err(Beyond))
        }

        fn fingerprint(&self) -> u64 {
            10
        }
    }

    /// Scenario: a request passes a step that remembers and is refused afterwards, or a later step
    /// fails; then it comes again. Guarantee: it is converted as if it had come once.
    #[test]
    fn a_step_remembers_nothing_of_a_refused_request() {
        let remembers = remembers();
        let fails = Step {
            id: "fails".to_owned(),
            place: String::new(),
            fingerprint: 10,
            processor: Box::new(Fails),
            counters: ArcSwap::default(),
        };
        let steps = [remembers.clone()];
        let metadata = Metadata::default();
        let pass = |steps: &[Arc<Step>], time, value, is_kept| {
            in_turn(steps, || {
                let done = run(steps, Signal::Metrics, request(time, value), 1, &metadata);
                (is_kept, done.map(|done| (done.items, done.payload.bytes)))
            })
        };
        assert!(matches!(pass(&steps, 2, 10, true), Ok((0, _))), "the first point is dropped");
        let refused = pass(&steps, 3, 15, false).expect("is converted");
        let failing = [remembers, Arc::new(fails)];
        assert!(matches!(pass(&failing, 3, 15, true), Err(Failure::Grows)));
        let again = pass(&steps, 3, 15, true).expect("is converted");
        assert_eq!(again, refused);
        assert_eq!(again.0, 1);
        let delta = [0x31, 5, 0, 0, 0, 0, 0, 0, 0];
        assert!(again.1.windows(9).any(|bytes| bytes == delta), "{:?}", again.1);
        let next = pass(&steps, 4, 15, true).expect("is converted");
        assert!(next.1.windows(9).any(|bytes| bytes == [0x31, 0, 0, 0, 0, 0, 0, 0, 0]));
    }

    /// Guarantee: behind the log no step runs that remembers, whatever ran before it.
    #[test]
    fn behind_the_log_no_step_remembers() {
        let adds = || {
            let (id, processor) = ("adds".to_owned(), Box::new(Adds));
            let (place, counters) = (String::new(), ArcSwap::default());
            Arc::new(Step { id, place, fingerprint: 9, processor, counters })
        };
        let remembers = remembers();
        let chain = Chain { steps: [remembers.clone(), adds()].into(), sharers: 1 };
        for prepared in [vec![remembers.fingerprint], vec![], vec![77]] {
            let left: Vec<_> = chain.remaining(&prepared).iter().map(|it| it.id.clone()).collect();
            assert_eq!(left, ["adds"], "{prepared:?}");
        }
    }
}
