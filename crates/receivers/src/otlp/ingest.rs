//! The steps of a request that both transports share, from its credentials to its acceptance.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use sluice_flow::Metadata;
use sluice_flow::hop::{self, Ranges};
use sluice_flow::source::{Ingress, IngressRoute, Permit, Request};
use sluice_net::auth::server::{AuthError, ServerAuth};
use sluice_net::compress::Packing;
use sluice_net::headers;
use sluice_net::server::{BodyReader, ReadScheduler, RequestBody};
use sluice_otlp::Signal;
use sluice_prometheus::Version;
use sluice_prometheus::inward::WrittenCounts;

use super::config::SharedConfig;
use super::counters::{Counters, SignalCounters, Transport};
use super::inspect::{Inspected, Inspector, Work};
use super::refusal::Refused;
use super::senders::Sender;
use super::waiting::{Body, Waits};

const RANGE: HeaderName = HeaderName::from_static(hop::HEADER);

/// The format of a request's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Protobuf,
    Json,
}

/// The protocol of a request's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Otlp(Format),
    RemoteWrite(Version),
}

/// The result of a request that a sender of remote write is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub written: WrittenCounts,
    /// Series, samples and histograms that were left out, with the first reason.
    pub invalid: u64,
    pub reason: Option<&'static str>,
}

pub(crate) struct Ingest {
    /// The receiver's id.
    pub receiver: Arc<str>,
    pub ingress: Arc<dyn Ingress>,
    pub authenticator: Option<Arc<dyn ServerAuth>>,
    pub counters: Arc<Counters>,
    pub config: SharedConfig,
    pub scheduler: Arc<ReadScheduler>,
    pub inspector: Inspector,
}

/// A request whose path and format are known.
pub(crate) struct Incoming<'a> {
    pub transport: Transport,
    pub signal: Signal,
    pub form: Form,
    pub sender: &'a Sender,
    pub request: http::Request<RequestBody>,
}

/// A request that was read, by the route that it began with.
struct ReadRequest {
    route: Arc<dyn IngressRoute>,
    metadata: Arc<Metadata>,
    ranges: Option<Ranges>,
    work: Work,
    permit: Permit,
}

/// The request's content type. `None`: it has none, or several that differ.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers::sole(headers, &CONTENT_TYPE).ok()??;
    value.as_bytes().split(|byte| *byte == b';').next().map(<[u8]>::trim_ascii)
}

/// The ranges that another Sluice names. Those that this release does not understand are ignored.
fn ranges_of(headers: &HeaderMap) -> Option<Ranges> {
    let value = headers::sole(headers, &RANGE).ok()??;
    Ranges::parse(value.to_str().ok()?).ok()
}

impl Ingest {
    /// Steps 1 and 2: whether this sender may send this signal here, and its route.
    async fn let_in(
        &self,
        signal: Signal,
        headers: &HeaderMap,
        body: &mut Body,
    ) -> Result<Arc<dyn IngressRoute>, Refused> {
        if let Some(authenticator) = &self.authenticator {
            let pool = || self.ingress.waiting(false);
            let check = authenticator.authenticate(headers);
            let verdict = body.read_while(check, pool, Waits::ForCheck).await?;
            verdict.unwrap_or(Err(AuthError::Busy))?;
        }
        self.ingress.route(signal).ok_or_else(|| Refused::unrouted(signal))
    }

    /// A request whose path is known. h2 leaves path and authority in the buffer that they came in,
    /// which may be a frame of the longest kind: only what metadata may need is kept.
    fn parts_of(&self, request: http::Request<RequestBody>) -> (Parts, Body) {
        let (mut head, body) = request.into_parts();
        let authority = head.uri.authority().filter(|_| self.config.include_metadata);
        head.uri = authority.and_then(|it| it.as_str().parse().ok()).unwrap_or_default();
        (head, Body::new(BodyReader::new(body, self.config.body_timeouts)))
    }

    /// All steps but the answer. Counts the result. `packing_of`: the packing of the body, from its
    /// headers. The future is most of the memory of a request that waits, so it stores the request
    /// once and lends it to the steps.
    pub(crate) fn receive(
        &self,
        incoming: Incoming<'_>,
        packing_of: impl Fn(&HeaderMap) -> Result<Packing, Refused>,
    ) -> impl Future<Output = Result<Option<Box<Told>>, Refused>> + Send {
        let Incoming { transport, signal, form, sender, request } = incoming;
        let (head, mut body) = self.parts_of(request);
        let packing = packing_of(&head.headers);
        async move {
            let read = async {
                let route = self.let_in(signal, &head.headers, &mut body).await?;
                let (bytes, packing, mut permit) = match transport {
                    Transport::Grpc => self.read_message(&*route, &mut body, packing?).await?,
                    Transport::Http => {
                        let packing = packing?;
                        let (bytes, permit) = self.read_body(&*route, &mut body).await?;
                        (bytes, packing, permit)
                    }
                };
                let keys = if self.config.include_metadata { route.metadata_keys() } else { &[] };
                let metadata = sender.metadata(&head, keys, &mut permit)?;
                let limit_bytes = self.config.limit_bytes;
                let work = Work::new(&*route, signal, form, packing, bytes, limit_bytes);
                // Of OTLP alone: no document of another protocol knows the header.
                let is_otlp = matches!(form, Form::Otlp(_));
                let ranges = ranges_of(&head.headers).filter(|_| is_otlp);
                ranges.iter().try_for_each(|it| permit.grow(it.memory_bytes()))?;
                Ok(ReadRequest { route, metadata, ranges, work, permit })
            };
            let read = read.await;
            drop((head, body));
            let submitted = match read {
                Ok(arrived) => self.submit(arrived, self.counters.of(signal, transport)).await,
                Err(refused) => Err((refused, 0)),
            };
            match submitted {
                Ok((items, len_bytes, told)) => {
                    self.counters.of(signal, transport).count_accepted(items, len_bytes);
                    Ok(told)
                }
                Err((refused, items)) => {
                    self.refuse(Some(sender), signal, transport, &refused, items);
                    Err(refused)
                }
            }
        }
    }

    /// Counts a refusal, and logs it if it is the first for some time.
    pub(crate) fn refuse(
        &self,
        sender: Option<&Sender>,
        signal: Signal,
        transport: Transport,
        refused: &Refused,
        items: u32,
    ) {
        let from = (&*self.receiver, sender.and_then(Sender::peer));
        self.counters.refuse(from, (signal, transport), refused, items);
    }

    pub(crate) fn refuse_unknown(&self, sender: &Sender, what: &str) {
        self.counters.refuse_unknown(&self.receiver, sender.peer(), what);
    }

    /// Returns the items accepted, the length of the body as sent, and what to tell; with an error,
    /// the items refused as far as they were counted.
    async fn submit(
        &self,
        arrived: ReadRequest,
        counters: &SignalCounters,
    ) -> Result<(u32, usize, Option<Box<Told>>), (Refused, u32)> {
        let ReadRequest { route, metadata, ranges, work, permit } = arrived;
        let len_bytes = work.body.len();
        let inspected = self.inspector.inspect(work, permit).await;
        let (inspected, permit, turn) = inspected.map_err(|refused| (refused, 0))?;
        let Inspected { items, payload, repaired_strings, told } = inspected;
        counters.repaired_strings.fetch_add(repaired_strings, Ordering::Relaxed);
        if items == 0 {
            return Ok((0, len_bytes, told));
        }
        if payload.bytes.len() > len_bytes {
            // It was admitted as it came: the backlogs may have no room for what it inflates to.
            route.judge_again(&permit).map_err(|refusal| (refusal.into(), items))?;
        }
        let request = Request { metadata, ranges, ..Request::new(payload, items) };
        let submitted = route.submit(request, permit);
        drop(turn);
        let accepted = match submitted {
            Ok(receipt) => receipt.accepted().await,
            Err(refusal) => Err(refusal),
        };
        accepted.map(|()| (items, len_bytes, told)).map_err(|refusal| (refusal.into(), items))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// Guarantee: what is not understood is stored as if it had no ranges. A request is not refused
    /// for it.
    #[test]
    fn ranges_that_are_not_understood_are_ignored() {
        let text = "1;00000000000000000000000000000001:9+4";
        let other = "1;00000000000000000000000000000001:9+5";
        let of = |values: &[&str]| {
            let values = values.iter().map(|value| HeaderValue::from_str(value).expect("a value"));
            ranges_of(&values.map(|value| (RANGE, value)).collect())
        };
        assert_eq!(of(&[text]).map(|ranges| ranges.to_string()).as_deref(), Some(text));
        for values in [&[][..], &["2;later"], &["bytes=0-9"], &["\u{fc}"], &[text, other]] {
            assert_eq!(of(values), None, "{values:?}");
        }
    }
}
