//! Submits what has left operators, now or after they held it for a while.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_flow::Payload;
use sluice_flow::source::{IngressRoute, Permit, Position, Receipt, Refusal};
use sluice_otlp::Signal;
use sluice_tail::{FileId, Mark, Tail};

use super::{Counters, PAUSE, Poison, Reader, final_reason, submit};
use crate::filelog::lines::{Lines, REQUEST_BYTES};
use crate::filelog::operators::FLUSH_INTERVAL;

/// Finds the first line of a range of which a record is held.
#[derive(Default)]
pub(super) struct HeldFrom {
    /// Offsets and numbers of lines since the last look.
    lines: Vec<(u64, u64)>,
    pub(super) found: Option<Mark>,
}

impl HeldFrom {
    /// A line has entered the operators, if there are some.
    pub(super) fn note(&mut self, line: (u64, u64), lines: &mut Lines) {
        match lines.operators() {
            Some(operators) if operators.held_bytes() > 0 => self.lines.push(line),
            _ => self.lines.clear(),
        }
    }

    /// Looks which of the lines is the first, while the bytes before it are in memory.
    pub(super) fn find(&mut self, id: FileId, lines: &mut Lines, tail: &Tail) {
        let lowest = lines.operators().and_then(|operators| operators.lowest_held(id));
        self.found = self.found.filter(|found| Some(found.offset) == lowest);
        let first = self.lines.drain(..).find(|(offset, _)| Some(*offset) == lowest);
        if let Some(line) = first {
            self.found = Some(tail.place_before(line));
        }
    }
}

/// The range that was read right before, if one was.
#[derive(Default)]
struct Own {
    begins: Option<(FileId, u64)>,
    positions: Vec<Position>,
}

impl Reader {
    /// Submits what has left operators at the end of a range. Records from `cut` on are held.
    /// Returns whether deliveries made it wait.
    pub(super) async fn submit_left(
        &mut self,
        id: FileId,
        range: Range<u64>,
        cut: Option<u64>,
        route: &Arc<dyn IngressRoute>,
        permit: Permit,
    ) -> Result<bool, Refusal> {
        let cut = cut.unwrap_or(range.end);
        let mut own = Own { begins: Some((id, range.start)), positions: Vec::new() };
        let parts = [range.start..cut, cut..range.end].into_iter().filter(|it| !it.is_empty());
        for part in parts {
            let position = self.progress.begin(id, part.clone());
            if let Some(operators) = self.lines.operators() {
                operators.end_range(id, part, &position);
            }
            own.positions.push(position);
        }
        let before = self.poison.get(&id).map(|poison| poison.most);
        let result = self.submit_parts(route, permit, own, false, before == Some(1)).await;
        self.count_operators();
        match result {
            Ok((waits, items)) => {
                if items > 0 {
                    self.passed(id, &range);
                }
                Ok(waits)
            }
            Err((refusal, items)) => {
                if final_reason(&refusal).is_some() {
                    let most = before.unwrap_or(items).min(items) / 2;
                    let most = most.max(1);
                    self.poison.insert(id, Poison { start: range.start, most, skips: false });
                }
                Err(at_once(refusal))
            }
        }
    }

    /// Submits the records that have left, in one request; in several if some are near one that was
    /// refused for good, or if `each` has its own. Returns whether deliveries made it wait and the
    /// number of records; after a refusal that of the request.
    async fn submit_parts(
        &mut self,
        route: &Arc<dyn IngressRoute>,
        permit: Permit,
        mut own: Own,
        each: bool,
        is_short: bool,
    ) -> Result<(bool, u32), (Refusal, u32)> {
        let (mut permit, mut waits, mut items) = (Some(permit), false, 0);
        loop {
            let part = self.submit_part(route, &mut permit, &mut own, each, is_short)?;
            items += part.items;
            if let Some(receipt) = part.receipt {
                waits |= self.paced(receipt).await;
            }
            if !part.has_more {
                return Ok((waits, items));
            }
        }
    }

    fn submit_part(
        &mut self,
        route: &Arc<dyn IngressRoute>,
        permit: &mut Option<Permit>,
        own: &mut Own,
        each: bool,
        is_short: bool,
    ) -> Result<Submitted, (Refusal, u32)> {
        let Some(operators) = self.lines.operators() else { return Ok(Submitted::default()) };
        let has_more = operators.part(each);
        let mut positions = operators.released(own.begins);
        if has_more {
            positions.extend(own.positions.iter().map(Position::share));
        } else {
            positions.append(&mut own.positions);
        }
        let position = Position::of_all(positions);
        let items = operators.items();
        if items == 0 {
            position.iter().for_each(Position::resolve);
            return Ok(Submitted { has_more, ..Submitted::default() });
        }
        let described = operators.described();
        let payload = Payload::identity(operators.finish());
        let permit = match permit.take() {
            Some(permit) => Ok(permit),
            None => route.admit_at_once(payload.bytes.len()),
        };
        match submit(Arc::clone(route), payload, items, position, permit) {
            Ok(receipt) => {
                Counters::add(&self.counters.accepted_records, u64::from(items));
                Ok(Submitted { receipt: Some(receipt), items, has_more })
            }
            Err(refusal) => {
                operators.drop_left();
                if let Some(reason) = final_reason(&refusal)
                    && (described.sole.is_some() || is_short)
                {
                    let sole = described.sole.clone();
                    let path = sole.as_ref().and_then(|it| self.tail.path(FileId(it.stream)));
                    let path = path.map(|it| it.display().to_string()).unwrap_or_default();
                    if operators.refused(described) {
                        let offset = sole.map(|it| it.range.start);
                        tracing::error!(
                            path,
                            offset,
                            reason,
                            "a log entry is refused for good: it is left out"
                        );
                    }
                }
                Err((refusal, items))
            }
        }
    }

    /// Submits records that operators have held for their time.
    pub(super) async fn flush(&mut self) {
        self.next_flush = Instant::now() + FLUSH_INTERVAL;
        let Some(operators) = self.lines.operators() else { return };
        let bytes = operators.held_bytes();
        let Some(route) = self.ingress.route(Signal::Logs).filter(|_| bytes > 0) else { return };
        let mut admitted = self.admitted(&*route, bytes + REQUEST_BYTES).await;
        // Together they are too large for ever: each on its own.
        let each = admitted.as_ref().is_err_and(|refusal| final_reason(refusal).is_some());
        if each {
            admitted = self.admitted(&*route, REQUEST_BYTES).await;
        }
        let result = match admitted {
            Ok(permit) => {
                if let Some(operators) = self.lines.operators() {
                    operators.flush(false);
                }
                let submitted = self.submit_parts(&route, permit, Own::default(), each, true).await;
                self.count_operators();
                submitted.map_err(|(refusal, _)| {
                    Counters::add(&self.counters.refused_requests, 1);
                    at_once(refusal)
                })
            }
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = result {
            let delay = if let Refusal::Retry { delay, .. } = refusal { delay } else { PAUSE };
            self.pause(tokio::time::sleep(delay)).await;
        }
    }

    /// Lets go all that operators hold, if there is room for it at once; otherwise it is read again
    /// by the receiver that goes on here.
    pub(super) fn flush_at_end(&mut self) {
        let Some(operators) = self.lines.operators() else { return };
        let bytes = operators.held_bytes();
        let Some(route) = self.ingress.route(Signal::Logs).filter(|_| bytes > 0) else { return };
        let Ok(permit) = route.admit_at_once(bytes + REQUEST_BYTES) else { return };
        operators.flush(true);
        let (mut permit, mut own) = (Some(permit), Own::default());
        while let Ok(Submitted { has_more: true, .. }) =
            self.submit_part(&route, &mut permit, &mut own, false, true)
        {}
        self.count_operators();
    }
}

#[derive(Default)]
struct Submitted {
    receipt: Option<Receipt>,
    items: u32,
    has_more: bool,
}

/// Records that are refused for good are known by now: the rest is tried again at once.
fn at_once(refusal: Refusal) -> Refusal {
    match final_reason(&refusal) {
        Some(reason) => Refusal::Retry { delay: Duration::ZERO, reason: reason.to_owned() },
        None => refusal,
    }
}
