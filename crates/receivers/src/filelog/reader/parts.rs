//! Submits records that have left operators. A request that is refused for good is halved, and its
//! halves are, until records at fault are alone: those are left out. Nothing is read again for it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use sluice_flow::Payload;
use sluice_flow::source::{IngressRoute, Permit, Position, Receipt, Refusal, Request};
use sluice_operators::Origin;
use sluice_otlp::{Halving, Malformed, Signal, SplitLimits};
use sluice_tail::FileId;

use super::{Counters, Reader, final_reason, submit};
use crate::filelog::operators::Left;

/// The outcome of a request.
pub(super) enum Submitted {
    Accepted(Receipt),
    /// It has one record, and is refused for good, for this reason.
    LeftOut(String),
    /// It has more than one record, and is refused for good.
    TooMuch,
}

impl Reader {
    /// Submits records whose ranges have these positions. `named`: the range of which they are all
    /// records, if it may have a name. Returns whether deliveries made it wait, and the number of
    /// records that were accepted.
    pub(super) async fn submit_in_parts(
        &mut self,
        route: &Arc<dyn IngressRoute>,
        permit: Permit,
        left: Left,
        positions: Vec<Position>,
        named: Option<(FileId, Range<u64>)>,
    ) -> Result<(bool, u32), Refusal> {
        let Left { bytes, items, origins } = left;
        if items == 0 {
            positions.iter().for_each(Position::resolve);
            return Ok((false, 0));
        }
        let fetched = named.and_then(|(id, range)| {
            self.progress.name(&mut self.tail, id, &range, items, &self.counters)
        });
        let whole = Request { fetched, ..Self::request(&bytes, items, &positions) };
        let (mut waits, mut accepted) = (false, 0);
        match self.submit_whole(route, whole, &positions, Ok(permit))? {
            Submitted::Accepted(receipt) => {
                positions.iter().for_each(Position::resolve);
                return Ok((self.paced(receipt).await, items));
            }
            Submitted::LeftOut(reason) => self.tell_left_out(place_of(origins.first()), &reason),
            Submitted::TooMuch => {
                let half = SplitLimits::half_of(items);
                let mut parts = Halving::new(Signal::Logs, &bytes, half).map_err(unreadable)?;
                let mut place = 0;
                while let Some(part) = parts.next() {
                    let part = part.map_err(unreadable)?;
                    let (bytes, items) = (part.bytes(), part.sizes.items);
                    let permit = self.admitted(&**route, bytes.len()).await;
                    let request = Self::request(&bytes, items, &positions);
                    match self.submit_whole(route, request, &positions, permit)? {
                        Submitted::Accepted(receipt) => {
                            accepted += items;
                            waits |= self.paced(receipt).await;
                        }
                        Submitted::LeftOut(reason) => {
                            self.tell_left_out(place_of(origins.get(place)), &reason);
                        }
                        Submitted::TooMuch => {
                            parts.halve(&part);
                            continue;
                        }
                    }
                    place += items as usize;
                }
            }
        }
        positions.iter().for_each(Position::resolve);
        Ok((waits, accepted))
    }

    /// A request that shares these positions.
    pub(super) fn request(bytes: &Bytes, items: u32, positions: &[Position]) -> Request {
        let position = Position::of_all(positions.iter().map(Position::share).collect());
        Request { position, ..Request::new(Payload::identity(bytes.clone()), items) }
    }

    /// Submits a request that shares these positions.
    pub(super) fn submit_whole(
        &self,
        route: &Arc<dyn IngressRoute>,
        request: Request,
        positions: &[Position],
        permit: Result<Permit, Refusal>,
    ) -> Result<Submitted, Refusal> {
        let items = request.items;
        let refusal = match submit(Arc::clone(route), request, permit) {
            Ok(receipt) => {
                Counters::add(&self.counters.accepted_records, u64::from(items));
                return Ok(Submitted::Accepted(receipt));
            }
            Err(refusal) if final_reason(&refusal).is_none() => return Err(refusal),
            Err(refusal) => refusal,
        };
        positions.iter().for_each(Position::resolve_dropped);
        Counters::add(&self.counters.refused_requests, 1);
        if items > 1 {
            return Ok(Submitted::TooMuch);
        }
        Counters::add(&self.counters.skipped_records, 1);
        Ok(Submitted::LeftOut(final_reason(&refusal).unwrap_or_default().to_owned()))
    }
}

/// The file of a record, and the offset of its line.
fn place_of(origin: Option<&Origin>) -> Option<(FileId, u64)> {
    origin.map(|origin| (FileId(origin.stream), origin.range.start))
}

/// The request is of this receiver's own making.
fn unreadable(error: Malformed) -> Refusal {
    Refusal::Failed { reason: error.to_string() }
}
