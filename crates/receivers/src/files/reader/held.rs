//! Submits what has left operators, now or after they held it for a while.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::source::{IngressRoute, Permit, Position, Refusal};
use sluice_tail::{FileId, Mark, Tail};

use super::parts::{Named, Submitted};
use super::{Counters, PAUSE, Reader, final_reason};
use crate::files::operators::FLUSH_INTERVAL;
use crate::files::records::{REQUEST_BYTES, Records};

/// Finds the first line of a range of which a record is held.
#[derive(Default)]
pub(super) struct HeldFrom {
    /// Offsets and numbers of lines since the last look.
    lines: Vec<(u64, u64)>,
    pub(super) found: Option<Mark>,
}

impl HeldFrom {
    /// A line has entered the operators, if there are some.
    pub(super) fn note(&mut self, line: (u64, u64), records: &mut dyn Records) {
        match records.operators() {
            Some(operators) if operators.held_bytes() > 0 => self.lines.push(line),
            _ => self.lines.clear(),
        }
    }

    /// Looks which of the lines is the first, while the bytes before it are in memory.
    pub(super) fn find(&mut self, id: FileId, records: &mut dyn Records, tail: &Tail) {
        let lowest = records.operators().and_then(|operators| operators.lowest_held(id));
        self.found = self.found.filter(|found| Some(found.offset) == lowest);
        let first = self.lines.drain(..).find(|(offset, _)| Some(*offset) == lowest);
        if let Some(line) = first {
            self.found = Some(tail.place_before(line));
        }
    }
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
        let mut positions = Vec::new();
        let parts = [range.start..cut, cut..range.end].into_iter().filter(|it| !it.is_empty());
        let Some(operators) = self.records.operators() else { return Ok(false) };
        for part in parts {
            let position = self.progress.begin(id, part.clone());
            operators.end_range(id, part, &position);
            positions.push(position);
        }
        positions.append(&mut operators.released(Some((id, range.start))));
        let is_named = operators.makes_the_same_again();
        let named = is_named.then(|| Named { id, range: range.clone(), made: operators.made() });
        let left = operators.take();
        let result = self.submit_in_parts(route, permit, left, positions, named).await;
        self.count_operators();
        let (waits, accepted) = result?;
        if accepted > 0 {
            Counters::add(&self.counters.read_bytes, range.end - range.start);
        }
        Ok(waits)
    }

    /// Submits records that operators have held for their time.
    pub(super) async fn flush(&mut self) {
        self.next_flush = self.clock.now() + FLUSH_INTERVAL;
        let Some(operators) = self.records.operators() else { return };
        let (now, bytes) = operators.due();
        let Some(route) = self.ingress.route(self.records.signal()).filter(|_| bytes > 0) else {
            return;
        };
        let mut admitted = self.admitted(&*route, bytes + REQUEST_BYTES).await;
        // Together they are too large for ever: they are submitted in parts.
        if admitted.as_ref().is_err_and(|refusal| final_reason(refusal).is_some()) {
            admitted = self.admitted(&*route, REQUEST_BYTES).await;
        }
        let result = match admitted {
            Ok(permit) => self.submit_due(&route, permit, now).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = result {
            let delay = if let Refusal::Retry { delay, .. } = refusal { delay } else { PAUSE };
            self.pause(self.clock.sleep(delay)).await;
        }
    }

    async fn submit_due(
        &mut self,
        route: &Arc<dyn IngressRoute>,
        permit: Permit,
        now: Duration,
    ) -> Result<(), Refusal> {
        let Some(operators) = self.records.operators() else { return Ok(()) };
        operators.flush(now);
        let (positions, left) = (operators.released(None), operators.take());
        let result = self.submit_in_parts(route, permit, left, positions, None).await;
        self.count_operators();
        if result.is_err() {
            Counters::add(&self.counters.refused_requests, 1);
        }
        result.map(|_| ())
    }

    /// Lets go all that operators hold, if there is room for it at once; otherwise it is read again
    /// by the receiver that goes on here.
    pub(super) fn flush_at_end(&mut self) {
        let signal = self.records.signal();
        let Some(operators) = self.records.operators() else { return };
        let bytes = operators.held_bytes();
        let Some(route) = self.ingress.route(signal).filter(|_| bytes > 0) else {
            return;
        };
        let Ok(permit) = route.admit_at_once(bytes + REQUEST_BYTES) else { return };
        operators.flush(Duration::MAX);
        let (positions, left) = (operators.released(None), operators.take());
        let request = Self::request(&left.bytes, left.items, &positions);
        let submitted = self.submit_whole(&route, request, &positions, Ok(permit));
        if matches!(submitted, Ok(Submitted::Accepted(_))) {
            positions.iter().for_each(Position::resolve);
        }
        self.count_operators();
    }
}
