//! Messages as log records: through the operators, and encoded.
//!
//! Senders share a few chains of operators: neither the records that these hold nor the memory of
//! their patterns grow with the number of senders. Each sender is a stream of its own, so that what
//! an operator holds of one is not joined with another's. Without operators, records are encoded as
//! they come.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_flow::fitted;
use sluice_flow::source::{Ingress, Permit};
use sluice_operators::{
    Chain, ChainConfig, Counts, Encoder, Origin, Place, Record, TextRecord, encode,
    encode_attributes,
};
use sluice_otlp::AnyValue;
use sluice_tail::Charset;

use super::attributes::Attributes;
use super::counters::Counters;
use super::cutter::with_own_length;
use crate::splitting::decoded;

/// Failures of operators are told at most this often; all of them are counted.
const TELL_INTERVAL: Duration = Duration::from_secs(10);
/// Chains at most.
const CHAINS_MAX: usize = 4;
/// Memory of a record beside its text and attributes, about.
const RECORD_BYTES: usize = 128;

pub(super) struct Records {
    charset: Charset,
    /// Messages have their lengths before them.
    counts_octets: bool,
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

/// A sender, and the attributes of its records.
pub(super) struct Sender {
    stream: u64,
    attributes: Attributes,
    /// The same as fields of a record.
    encoded: Vec<u8>,
    /// Memory of a record beside its text, about.
    record_bytes: usize,
}

impl Sender {
    pub(super) fn new(stream: u64, attributes: Attributes) -> Sender {
        let encoded = encode_attributes(&attributes);
        let record_bytes = RECORD_BYTES + weight(&attributes);
        Sender { stream, attributes, encoded, record_bytes }
    }
}

/// The records that came together.
pub(super) struct Batch {
    /// The number of the chain that they go through, by which those of a sender keep their order.
    chain: u64,
    observed_ns: i64,
    records: Vec<Record>,
    /// Of the records, without operators.
    encoder: Encoder,
    place: Option<Place>,
    /// Bytes that they take, about.
    pub bytes: usize,
}

impl Batch {
    pub(super) fn new(chain: u64) -> Batch {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (encoder, place, records) = (Encoder::default(), None, Vec::new());
        Batch { chain, observed_ns: since.as_nanos() as i64, records, encoder, place, bytes: 0 }
    }

    pub(super) fn items(&self) -> usize {
        self.records.len() + self.encoder.encoded().items as usize
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
    /// Of messages in an encoding, maybe with their lengths before them.
    pub(super) fn new(
        (charset, counts_octets): (Charset, bool),
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
        let began = Instant::now();
        Records { charset, counts_octets, resource, chains, began, ingress, counters }
    }

    /// Makes a record of a message.
    pub(super) fn push(&self, batch: &mut Batch, message: &[u8], sender: &Sender) {
        let text = match decoded(self.charset, message) {
            Ok(text) if self.counts_octets => Ok(with_own_length(text, message)),
            text => text,
        };
        batch.bytes += sender.record_bytes + text.as_ref().map_or(message.len(), |it| it.len());
        if let (Ok(text), true) = (&text, self.chains.is_empty()) {
            return self.write(batch, text, sender);
        }
        let place = batch.records.len() as u64;
        let origin = Origin { stream: sender.stream, range: place..place + 1 };
        let body = text.map_or_else(AnyValue::Bytes, |text| AnyValue::String(text.into_owned()));
        let mut record = Record::new(body, batch.observed_ns, origin);
        record.attributes.clone_from(&sender.attributes);
        record.resource.clone_from(&self.resource);
        if self.chains.is_empty() {
            batch.encoder.push(&record);
        } else {
            batch.records.push(record);
        }
    }

    /// Writes the record of a text that goes through no operators.
    fn write(&self, batch: &mut Batch, text: &str, sender: &Sender) {
        let (observed_ns, attributes) = (batch.observed_ns, [&sender.encoded[..], &[], &[]]);
        let record = TextRecord { observed_ns, body: text, attributes, ..TextRecord::default() };
        batch.encoder.push_text(&mut batch.place, &self.resource, &record);
    }

    /// The request of the records that come out of the operators now. CPU work only.
    pub(super) fn make(&self, batch: Batch) -> Made {
        let Batch { chain, records, mut encoder, .. } = batch;
        let Some(place) = (chain as usize).checked_rem(self.chains.len()) else {
            let items = encoder.encoded().items;
            return Made { payload: encoder.finish(), items };
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
    Made { payload: fitted(out), items }
}
