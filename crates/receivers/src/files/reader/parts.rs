//! Submits records, of lines as they are or as they have left operators. A request that is refused
//! for good is halved, and its halves are, until records at fault are alone: those are left out.
//! Nothing is read again for it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use sluice_flow::Payload;
use sluice_flow::source::{IngressRoute, Permit, Position, Receipt, Refusal, Request};
use sluice_operators::Origin;
use sluice_otlp::{Halving, Malformed, SplitLimits};
use sluice_tail::FileId;

use super::{Counters, PAUSE, Reader, final_reason, submit};
use crate::files::operators::Left;

/// The outcome of a request.
pub(super) enum Submitted {
    Accepted(Receipt),
    /// It has one record, and is refused for good, for this reason.
    LeftOut(String),
    /// It has more than one record, and is refused for good.
    TooMuch,
}

/// A range that may have a name, of which a request has all records.
pub(super) struct Named {
    pub(super) id: FileId,
    pub(super) range: Range<u64>,
    /// Their number, or a sum over them.
    pub(super) made: u32,
}

impl Reader {
    /// Submits records whose ranges have these positions. `named`: they are all records of it.
    /// Returns whether that took time, and the number of records that were accepted.
    pub(super) async fn submit_in_parts(
        &mut self,
        route: &Arc<dyn IngressRoute>,
        permit: Permit,
        left: Left,
        positions: Vec<Position>,
        named: Option<Named>,
    ) -> Result<(bool, u32), Refusal> {
        let Left { bytes, items, origins } = left;
        if items == 0 {
            positions.iter().for_each(Position::resolve);
            return Ok((false, 0));
        }
        let fetched = named.and_then(|Named { id, range, made }| {
            self.progress.name(&mut self.tail, id, &range, made, &self.counters)
        });
        let whole = Request { fetched, ..Self::request(&bytes, items, &positions) };
        let (mut waits, mut accepted) = (false, 0);
        match self.submit_whole(route, whole, &positions, Ok(permit))? {
            Submitted::Accepted(receipt) => {
                positions.iter().for_each(Position::resolve);
                return Ok((self.paced(receipt).await, items));
            }
            Submitted::LeftOut(reason) => self.tell_left_out(self.place_of(&origins, 0), &reason),
            Submitted::TooMuch => {
                // Files may have changed meanwhile.
                waits = true;
                let half = SplitLimits::half_of(items);
                let mut parts =
                    Halving::new(self.records.signal(), &bytes, half).map_err(unreadable)?;
                let mut place = 0;
                while let Some(part) = parts.next() {
                    let part = part.map_err(unreadable)?;
                    let (bytes, items) = (part.bytes(), part.sizes.items);
                    match self.submit_part(&bytes, items, &positions).await? {
                        Submitted::Accepted(receipt) => {
                            accepted += items;
                            self.paced(receipt).await;
                        }
                        Submitted::LeftOut(reason) => {
                            self.tell_left_out(self.place_of(&origins, place), &reason);
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

    /// Submits a part until it is accepted or refused for good: to read all of it again would
    /// double the parts before it each time. An error only if the receiver ends.
    async fn submit_part(
        &mut self,
        bytes: &Bytes,
        items: u32,
        positions: &[Position],
    ) -> Result<Submitted, Refusal> {
        loop {
            let delay = match self.ingress.route(self.records.signal()) {
                // A reload exchanges routes.
                Some(route) => {
                    let permit = self.admitted(&*route, bytes.len()).await;
                    let request = Self::request(bytes, items, positions);
                    match self.submit_whole(&route, request, positions, permit) {
                        Err(refusal) if self.stop.is_cancelled() => return Err(refusal),
                        Err(Refusal::Retry { delay, .. }) => delay,
                        Err(_) => PAUSE,
                        Ok(submitted) => return Ok(submitted),
                    }
                }
                None => PAUSE,
            };
            // It is not read again for that.
            positions.iter().for_each(Position::resolve_dropped);
            Counters::add(&self.counters.refused_requests, 1);
            let ended = || Refusal::Retry { delay, reason: "the receiver ends".to_owned() };
            self.pause(self.clock.sleep(delay)).await.ok_or_else(ended)?;
        }
    }

    /// The file of a record, and the offset of its line.
    fn place_of(&self, origins: &[Origin], index: usize) -> Option<(FileId, u64)> {
        let of_operators = origins.get(index).map(|it| (FileId(it.stream), it.range.start));
        of_operators.or_else(|| self.records.place_of(index))
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
        let (items, bytes) = (request.items, request.payload.bytes.clone());
        let refusal = match submit(Arc::clone(route), request, permit) {
            Ok(receipt) => {
                Counters::add(&self.counters.accepted_records, u64::from(items));
                self.records.note_taken(&bytes);
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

/// The request is of this receiver's own making.
fn unreadable(error: Malformed) -> Refusal {
    Refusal::Failed { reason: error.to_string() }
}
