//! Messages as log records: through the operators, and encoded.
//!
//! Connections share a few chains of operators: neither the records that these hold nor the memory
//! of their patterns grow with the number of connections. Each connection is a stream of its own.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_flow::source::{Ingress, Permit};
use sluice_operators::{Chain, ChainConfig, Counts, Origin, Record, encode};
use sluice_otlp::AnyValue;
use sluice_tail::Charset;

use super::attributes::Attributes;
use super::counters::Counters;
use crate::splitting::decoded;

/// Failures of operators are told at most this often; all of them are counted.
const TELL_INTERVAL: Duration = Duration::from_secs(10);
/// Chains at most.
const CHAINS_MAX: usize = 4;
/// Memory of a record beside its text and attributes, about.
const RECORD_BYTES: usize = 128;

pub(super) struct Records {
    charset: Charset,
    resource: Attributes,
    /// None without operators.
    chains: Vec<Mutex<Shared>>,
    began: Instant,
    ingress: Arc<dyn Ingress>,
    counters: Arc<Counters>,
}

struct Shared {
    chain: Chain,
    counts: Counts,
    told: Option<Instant>,
    /// Memory of the records that it holds.
    held: Option<Permit>,
}

/// A request in the making.
pub(super) struct Made {
    pub payload: Bytes,
    pub items: u32,
}

/// The records of one stream that came together.
pub(super) struct Batch {
    stream: u64,
    observed_ns: i64,
    records: Vec<Record>,
    /// Bytes that they take, about.
    pub bytes: usize,
}

impl Batch {
    pub(super) fn new(stream: u64) -> Batch {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Batch { stream, observed_ns: since.as_nanos() as i64, records: Vec::new(), bytes: 0 }
    }

    pub(super) fn items(&self) -> usize {
        self.records.len()
    }
}

/// Memory of attributes of a record, about.
fn weight(attributes: &Attributes) -> usize {
    let value = |value: &AnyValue| match value {
        AnyValue::String(text) => text.len(),
        _ => 0,
    };
    attributes.iter().map(|(key, of)| key.len() + value(of) + 16).sum()
}

impl Records {
    pub(super) fn new(
        charset: Charset,
        resource: Attributes,
        operators: &ChainConfig,
        ingress: Arc<dyn Ingress>,
        counters: Arc<Counters>,
    ) -> Records {
        let number = available_parallelism().map_or(1, usize::from).min(CHAINS_MAX);
        let number = if operators.is_empty() { 0 } else { number };
        let shared = |_| {
            let (counts, chain) = (Counts::default(), operators.build());
            Mutex::new(Shared { chain, counts, told: None, held: None })
        };
        let chains = (0..number).map(shared).collect();
        Records { charset, resource, chains, began: Instant::now(), ingress, counters }
    }

    /// Makes a record of a message.
    pub(super) fn push(&self, batch: &mut Batch, text: &[u8], attributes: &Attributes) {
        let body = match decoded(self.charset, text) {
            Ok(text) => AnyValue::String(text.into_owned()),
            Err(bytes) => AnyValue::Bytes(bytes),
        };
        let place = batch.records.len() as u64;
        let origin = Origin { stream: batch.stream, range: place..place + 1 };
        batch.bytes += RECORD_BYTES + weight(attributes);
        batch.bytes += match &body {
            AnyValue::String(text) => text.len(),
            AnyValue::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        let mut record = Record::new(body, batch.observed_ns, origin);
        record.attributes.clone_from(attributes);
        record.resource.clone_from(&self.resource);
        batch.records.push(record);
    }

    /// The request of the records that come out of the operators now. CPU work only.
    pub(super) fn make(&self, batch: Batch) -> Made {
        let Batch { stream, records, .. } = batch;
        let Some(place) = (stream as usize).checked_rem(self.chains.len()) else {
            return made(&records);
        };
        let mut out = Vec::with_capacity(records.len());
        let mut shared = self.chains[place].lock();
        for record in records {
            shared.chain.process(record, &mut out);
        }
        self.settle(&mut shared, &mut out);
        drop(shared);
        made(&out)
    }

    /// Lets go what operators have held for their time; at the end all of it.
    pub(super) fn flush(&self, is_end: bool) -> Vec<Made> {
        let now = if is_end { Duration::MAX } else { self.began.elapsed() };
        let mut all = Vec::new();
        for shared in &self.chains {
            let (mut shared, mut out) = (shared.lock(), Vec::new());
            if shared.chain.held_bytes() > 0 {
                shared.chain.flush(now, &mut out);
                self.settle(&mut shared, &mut out);
            }
            if !out.is_empty() {
                all.push(made(&out));
            }
        }
        all
    }

    /// Counts what operators have met with, and charges what they hold. If there is no memory for
    /// that, they let it go.
    fn settle(&self, shared: &mut Shared, out: &mut Vec<Record>) {
        let bytes = shared.chain.held_bytes();
        let fits = match &mut shared.held {
            Some(held) => {
                held.shrink_to(bytes);
                held.grow_to(bytes).is_ok()
            }
            None if bytes > 0 => {
                shared.held = Permit::take(self.ingress.waiting(true), bytes).ok();
                shared.held.is_some()
            }
            None => true,
        };
        if !fits {
            shared.chain.flush(Duration::MAX, out);
        }
        if shared.chain.held_bytes() == 0 {
            shared.held = None;
        }
        let counts = shared.chain.counts();
        self.counters.count_operators(counts, shared.counts);
        shared.counts = counts;
        let (Some(failure), now) = (shared.chain.take_failure(), Instant::now()) else { return };
        if shared.told.is_none_or(|told| now.duration_since(told) >= TELL_INTERVAL) {
            shared.told = Some(now);
            tracing::warn!(
                operator = failure.operator,
                reason = failure.reason,
                "an operator failed on a record; `on_error` says what becomes of it"
            );
        }
    }
}

fn made(records: &[Record]) -> Made {
    let mut out = Vec::new();
    let items = if records.is_empty() { 0 } else { encode(records, &mut out).items };
    if out.capacity() > out.len() * 2 {
        out.shrink_to_fit();
    }
    Made { payload: out.into(), items }
}
