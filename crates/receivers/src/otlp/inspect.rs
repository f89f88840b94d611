//! Step 5: inflating (never more than was admitted), validating and counting.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use sluice_flow::source::{IngressRoute, Permit, is_large_work};
use sluice_flow::{Payload, fitted};
use sluice_net::compress::{self, Ask, InflateError, Packing};
use sluice_otlp::{Encoding, Malformed, Signal};
use sluice_prometheus::Version;
use sluice_prometheus::inward::{self, Memory, READING_FACTOR, Read, ReadError};

use super::ingest::{Form, Format, Told};
use super::refusal::{Refused, RefusedReason};
use crate::large_work::{LargeWork, Turn};

/// Larger bodies take milliseconds: they are inspected beside the threads that serve connections.
const INLINE_BYTES: usize = 1 << 20;
/// On such a thread inspecting may use this much: the inflated body, and its translation or window.
const INLINE_HELD_BYTES: usize = 2 * INLINE_BYTES;
/// A translation that is longer than expected is tried again with this many times the memory.
const TRANSLATED_GROWTH: usize = 4;
/// The first attempt gets at least this much.
const TRANSLATED_LEAST_BYTES: usize = 1024;
/// Remote write of 2.0 becomes about so many times as long: its labels are numbers.
const REMOTE_GROWTH: usize = 2;

/// A request that is known to be valid.
pub(super) struct Inspected {
    pub items: u32,
    /// It is passed on.
    pub payload: Payload,
    /// Strings in it that were not UTF-8.
    pub repaired_strings: u64,
    /// For senders of remote write. Boxed: few requests have it.
    pub told: Option<Box<Told>>,
}

impl Inspected {
    fn is_large(&self) -> bool {
        is_large_work(self.payload.uncompressed_len_bytes, self.items as usize)
    }
}

/// Inspects bodies of one receiver. Clones share the bound on large ones at a time.
#[derive(Clone)]
pub(crate) struct Inspector {
    large: LargeWork,
    /// Of remote write.
    memory: Arc<Memory>,
}

/// A body that has to be inspected.
pub(super) struct Work {
    signal: Signal,
    form: Form,
    packing: Packing,
    pub body: Bytes,
    limit_bytes: usize,
    /// The encoding in which it may travel on, compressed as it is.
    kept: Option<Encoding>,
    /// Its inflated size, if it tells one.
    claimed: Option<usize>,
}

/// Why a body was not inspected to its end.
enum Stop {
    Refused(Refused),
    /// It takes too long for a thread that serves connections.
    Large,
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Stop::Refused(refused)
    }
}

impl From<InflateError<Stop>> for Stop {
    fn from(error: InflateError<Stop>) -> Self {
        match error {
            InflateError::Failed(error) => Stop::Refused(error.into()),
            InflateError::Refused(stop) => stop,
        }
    }
}

/// The permit of a request while it is inspected.
struct Ledger<'a> {
    permit: &'a mut Permit,
    /// Memory of the body and the metadata.
    base_bytes: usize,
    /// It is inspected on a thread that serves connections.
    is_inline: bool,
}

impl Ledger<'_> {
    fn ask(&mut self, ask: Ask) -> Result<(), Stop> {
        match ask {
            Ask::Measure if self.is_inline => Err(Stop::Large),
            Ask::Measure => Ok(()),
            Ask::Hold { bytes } => self.hold(bytes),
        }
    }

    /// Charges this many bytes beside the body, before they are allocated.
    fn hold(&mut self, bytes: usize) -> Result<(), Stop> {
        if self.is_inline && bytes > INLINE_HELD_BYTES {
            return Err(Stop::Large);
        }
        self.permit.shrink_to(self.base_bytes + bytes);
        Ok(self.permit.grow_to(self.base_bytes + bytes).map_err(Refused::from)?)
    }
}

impl Inspector {
    pub(crate) fn new() -> Self {
        Inspector { large: LargeWork::new(), memory: Arc::default() }
    }

    /// The permit that comes back covers the memory of the payload. A request that takes long to
    /// process brings its turn along, to be kept until it is submitted: as many at a time as there
    /// are threads. Each may take memory that is charged only when its size is known.
    pub(super) async fn inspect(
        &self,
        work: Work,
        mut permit: Permit,
    ) -> Result<(Inspected, Permit, Option<Turn>), Refused> {
        let base_bytes = permit.bytes();
        let mut inline = None;
        if work.is_small() {
            match work.run(&mut permit, &self.memory, true) {
                Ok(inspected) if inspected.is_large() => inline = Some(Box::new(inspected)),
                Ok(inspected) => return Ok((inspected, permit, None)),
                Err(Stop::Refused(refused)) => return Err(refused),
                // The memory that was used until then is freed.
                Err(Stop::Large) => permit.shrink_to(base_bytes),
            }
        }
        let broken =
            || Refused::new(RefusedReason::Overloaded, "the request could not be inspected");
        let turn = self.large.turn().await.ok_or_else(broken)?;
        if let Some(inspected) = inline {
            return Ok((*inspected, permit, Some(turn)));
        }
        let memory = Arc::clone(&self.memory);
        let inspecting = tokio::task::spawn_blocking(move || {
            let inspected = work.run(&mut permit, &memory, false)?;
            // A second turn would come behind those of requests that are not inspected yet.
            let turn = Some(turn).filter(|_| inspected.is_large());
            Ok((inspected, permit, turn))
        });
        match inspecting.await {
            Ok(Ok(inspected)) => Ok(inspected),
            Ok(Err(Stop::Refused(refused))) => Err(refused),
            Ok(Err(Stop::Large)) | Err(_) => Err(broken()),
        }
    }
}

impl Work {
    pub(super) fn new(
        route: &dyn IngressRoute,
        signal: Signal,
        form: Form,
        packing: Packing,
        body: Bytes,
        limit_bytes: usize,
    ) -> Self {
        let claimed = compress::claimed_len_bytes(packing, &body);
        let kept = match (form, packing) {
            (
                Form::Otlp(Format::Protobuf),
                Packing::Known(encoding @ (Encoding::Gzip | Encoding::Zstd)),
            ) => claimed.filter(|it| route.keeps_compressed(encoding, *it)).map(|_| encoding),
            _ => None,
        };
        Work { signal, form, packing, body, limit_bytes, kept, claimed }
    }

    /// As far as its lengths tell.
    fn is_small(&self) -> bool {
        self.claimed.unwrap_or(0).max(self.body.len()) <= INLINE_BYTES
    }

    /// CPU work only.
    fn run(
        &self,
        permit: &mut Permit,
        memory: &Memory,
        is_inline: bool,
    ) -> Result<Inspected, Stop> {
        let base_bytes = permit.bytes();
        let mut ledger = Ledger { permit, base_bytes, is_inline };
        if let Some(encoding) = self.kept {
            return self.inspect_compressed(encoding, ledger);
        }
        let plain = match self.packing {
            Packing::Known(Encoding::Identity) => self.body.clone(),
            packing => {
                let mut ask = |ask| ledger.ask(ask);
                compress::decompress_admitted(packing, &self.body, self.limit_bytes, &mut ask)?
            }
        };
        let mut told = None;
        let protobuf = match self.form {
            Form::Otlp(Format::Protobuf) => plain,
            Form::Otlp(Format::Json) => self.translate_json(&plain, &mut ledger)?,
            Form::RemoteWrite(version) => {
                let read = self.translate_remote(version, &plain, memory, &mut ledger)?;
                let Read { request, written, invalid, reason } = read;
                told = Some(Box::new(Told { written, invalid, reason }));
                fitted(request)
            }
        };
        match self.count(&protobuf) {
            Ok(items) => {
                let (payload, repaired_strings) = (Payload::identity(protobuf), 0);
                Ok(Inspected { items, payload, repaired_strings, told })
            }
            Err(malformed) if malformed.is_text() => {
                let held = ledger.permit.bytes() - ledger.base_bytes;
                ledger.hold(held + protobuf.len())?;
                let repaired = self.repair(&protobuf)?;
                drop(protobuf);
                ledger.hold(held)?;
                Ok(Inspected { told, ..repaired })
            }
            Err(malformed) => Err(self.invalid(malformed).into()),
        }
    }

    /// A copy, of the same length, with all text in UTF-8: one wrong string must not cost the
    /// other items of its request.
    fn repair(&self, plain: &[u8]) -> Result<Inspected, Refused> {
        let mut request = plain.to_vec();
        let repaired_strings = sluice_otlp::repair_strings(self.signal, &mut request);
        let items = self.count(&request).map_err(|malformed| self.invalid(malformed))?;
        let payload = Payload::identity(request.into());
        Ok(Inspected { items, payload, repaired_strings, told: None })
    }

    /// A payload that travels on compressed is only looked at, in memory that is used again.
    fn inspect_compressed(&self, kept: Encoding, ledger: Ledger<'_>) -> Result<Inspected, Stop> {
        let ledger = RefCell::new(ledger);
        let hold = |bytes| ledger.borrow_mut().hold(bytes);
        let inspect = |plain: compress::Unpacked<'_>| {
            let uncompressed_len_bytes = plain.bytes.len();
            let items = match self.count(plain.bytes) {
                Ok(items) => items,
                Err(malformed) if malformed.is_text() => {
                    hold(2 * uncompressed_len_bytes)?;
                    return Ok(self.repair(plain.bytes)?);
                }
                Err(malformed) => return Err(self.invalid(malformed).into()),
            };
            if plain.is_passable {
                let (bytes, encoding) = (self.body.clone(), kept);
                let payload = Payload { bytes, encoding, uncompressed_len_bytes };
                return Ok(Inspected { items, payload, repaired_strings: 0, told: None });
            }
            hold(2 * uncompressed_len_bytes)?;
            let payload = Payload::identity(Bytes::copy_from_slice(plain.bytes));
            Ok::<_, Stop>(Inspected { items, payload, repaired_strings: 0, told: None })
        };
        let inspected = compress::with_decompressed_admitted(
            self.packing,
            &self.body,
            self.limit_bytes,
            &mut |ask| ledger.borrow_mut().ask(ask),
            inspect,
        )??;
        let payload = &inspected.payload;
        hold(if payload.encoding == kept { 0 } else { payload.bytes.len() })?;
        Ok(inspected)
    }

    /// JSON as protobuf, which hardly ever is longer.
    fn translate_json(&self, json: &[u8], ledger: &mut Ledger<'_>) -> Result<Bytes, Stop> {
        self.translate(json.len(), 0, ledger, |at_most| {
            match sluice_otlp::json::from_json(self.signal, json, at_most) {
                Ok(protobuf) => Ok(Some(fitted(protobuf))),
                Err(error) if error.is_too_large() => Ok(None),
                Err(error) => Err(Refused::invalid(error.to_string())),
            }
        })
    }

    fn translate_remote(
        &self,
        version: Version,
        message: &[u8],
        memory: &Memory,
        ledger: &mut Ledger<'_>,
    ) -> Result<Read, Stop> {
        let reading_bytes = message.len().saturating_mul(READING_FACTOR);
        let at_first = message.len().saturating_mul(REMOTE_GROWTH);
        self.translate(at_first, reading_bytes, ledger, |at_most| {
            match inward::read(version, message, memory, at_most) {
                Ok(read) => Ok(Some(read)),
                Err(ReadError::TooLarge { .. }) => Ok(None),
                Err(error) => Err(Refused::invalid(error.to_string())),
            }
        })
    }

    /// Translates into memory that is charged before it is used: at first so many bytes, and more
    /// if they do not do. `beside_bytes`: memory that translating takes beside the result.
    fn translate<T>(
        &self,
        at_first: usize,
        beside_bytes: usize,
        ledger: &mut Ledger<'_>,
        translate: impl Fn(usize) -> Result<Option<T>, Refused>,
    ) -> Result<T, Stop> {
        let inflated = ledger.permit.bytes() - ledger.base_bytes;
        let mut at_most = at_first.max(TRANSLATED_LEAST_BYTES).min(self.limit_bytes);
        loop {
            ledger.hold(inflated + beside_bytes + at_most)?;
            match translate(at_most)? {
                Some(translated) => {
                    if beside_bytes > 0 {
                        ledger.hold(inflated + at_most)?;
                    }
                    return Ok(translated);
                }
                None if at_most < self.limit_bytes => {
                    at_most = (TRANSLATED_GROWTH * at_most).min(self.limit_bytes);
                }
                None => return Err(Refused::too_large(self.limit_bytes).into()),
            }
        }
    }

    fn count(&self, plain: &[u8]) -> Result<u32, Malformed> {
        sluice_otlp::scan(self.signal, plain)
    }

    fn invalid(&self, malformed: Malformed) -> Refused {
        let signal = self.signal;
        Refused::invalid(format!("not a valid OTLP request of {signal}: {malformed}"))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use sluice_flow::Refusal;
    use sluice_flow::source::MemoryPool;
    use sluice_otlp::wire::write_len_field;

    use super::*;

    struct Endless;

    impl MemoryPool for Endless {
        fn take(&self, _: usize, _: usize) -> Result<(), Refusal> {
            Ok(())
        }

        fn give_back(&self, _: usize) {}
    }

    async fn inspect_as(
        inspector: &Inspector,
        (signal, form): (Signal, Form),
        body: Bytes,
    ) -> (Inspected, Permit, Option<Turn>) {
        let packing = Packing::Known(Encoding::Identity);
        let limit_bytes = 4 << 20;
        let work = Work { signal, form, packing, body, limit_bytes, kept: None, claimed: None };
        let permit = Permit::take(Arc::new(Endless), limit_bytes).expect("there is memory");
        let inspected = inspector.inspect(work, permit).await;
        inspected.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// A body of empty resources.
    async fn inspect(inspector: &Inspector, len_bytes: usize) -> Option<Turn> {
        let body = Bytes::from([0x0a, 0].repeat(len_bytes / 2));
        inspect_as(inspector, (Signal::Logs, Form::Otlp(Format::Protobuf)), body).await.2
    }

    /// Scenario: JSON with much blank space, and remote write. Guarantee: a payload occupies little
    /// more than its length, which is what it is charged while it is kept.
    #[tokio::test]
    async fn a_translated_payload_keeps_no_room_that_is_not_charged() {
        let json = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityNumber":9}]}]}]}"#;
        let blanks = Bytes::from(json.to_owned() + &" ".repeat(1 << 20));
        let (mut label, mut series, mut metric) = (Vec::new(), Vec::new(), Vec::new());
        write_len_field(&mut label, 1, b"__name__");
        write_len_field(&mut label, 2, b"up");
        write_len_field(&mut series, 1, &label);
        write_len_field(&mut series, 2, &[0x10, 5]);
        (0..70).for_each(|_| write_len_field(&mut metric, 1, &series));
        for (of, body) in [
            ((Signal::Logs, Form::Otlp(Format::Json)), blanks),
            ((Signal::Metrics, Form::RemoteWrite(Version::V1)), metric.into()),
        ] {
            let (inspected, _permit, _) = inspect_as(&Inspector::new(), of, body).await;
            assert!(inspected.items > 0, "{of:?}");
            let bytes = inspected.payload.bytes;
            let (len, capacity) = (bytes.len(), Vec::from(bytes).capacity());
            assert!(capacity <= len + len / 8, "{of:?}: {capacity} for {len}");
        }
    }

    /// Guarantee: as many large requests as there are threads are on their way from inspection to
    /// the log at a time. An inspected one does not wait behind those that come after it, and small
    /// ones do not wait.
    #[tokio::test]
    async fn a_large_request_keeps_its_turn_until_it_is_submitted() {
        const LARGE_BYTES: usize = 2 << 20;
        let inspector = Inspector { large: LargeWork::of(2), ..Inspector::new() };
        let first = inspect(&inspector, LARGE_BYTES).await.expect("a turn");
        let _second = inspect(&inspector, LARGE_BYTES).await.expect("a turn");
        let mut third = std::pin::pin!(inspect(&inspector, LARGE_BYTES));
        assert!(third.as_mut().now_or_never().is_none(), "it waits");
        assert!(inspect(&inspector, 100).await.is_none(), "it needs no turn");
        drop(first);
        assert!(third.await.is_some());
    }
}
