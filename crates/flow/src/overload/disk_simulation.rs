//! A log in virtual time whose disk is full, slow, fails or hangs, for the tests of rules 7 and 10.
//! The model has what the rules look at: which deliveries wait for a frame, and whether it is on
//! disk. It applies their decisions as the engine does.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::admission::{Arrival, Patience, admit};
use super::isolation::sheds;
use super::*;

pub(super) const TICK: Duration = Duration::from_millis(50);
pub(super) const MINUTE: u64 = 1_200;
pub(super) const HOUR: u64 = 60 * MINUTE;
const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const FRAME_BYTES: u64 = 256 * KIB;
pub(super) const SEGMENT_BYTES: u64 = 16 * FRAME_BYTES;
/// The limit of the pool on disk.
pub(super) const LIMIT_BYTES: u64 = 1 << 30;
const UNWRITTEN_LIMIT_BYTES: u64 = 64 * MIB;
/// Ticks from one look at the disk to the next, as the engine has it.
pub(super) const LOOK: u64 = 4;
/// The disk has refused writes for this long: then senders do not wait for it.
const LASTING: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Writes {
    /// One frame in this many ticks.
    OneIn(u64),
    Hangs,
    Fails,
}

struct Frame {
    /// The deliveries that wait for it, one bit each.
    waits: u32,
    is_taken: bool,
    /// Its segment, once it is on disk.
    segment: Option<u64>,
    sender: usize,
    is_answered: bool,
}

pub(super) struct Reader {
    pub policy: Policy,
    pub is_well: bool,
    health: BackendHealth,
    sheds: Sheds,
    next: u64,
    pub lag_frames: u64,
    unwritten_frames: u64,
    failures: u32,
    pub taken: u64,
    pub dropped: u64,
}

/// Sends a frame each `every` ticks, and waits for memory with patience.
pub(super) struct Sender {
    readers: u32,
    every: u64,
    waits_since: Option<Instant>,
    /// Frames in the log, those answered OK, and those answered by a refusal.
    pub appended: u64,
    pub accepted: u64,
    pub lost: u64,
    /// Requests that were not admitted.
    pub refused: u64,
    pub longest_wait: Duration,
}

pub(super) struct World {
    start: Instant,
    tick: u64,
    frames: VecDeque<Frame>,
    first: u64,
    pub readers: Vec<Reader>,
    pub senders: Vec<Sender>,
    pub writes: Writes,
    /// Everything below is on disk, or was resolved before.
    written_below: u64,
    /// Frames of each segment that some delivery waits for.
    segments: BTreeMap<u64, u64>,
    open: u64,
    /// Frames that the open segment has taken.
    open_frames: u64,
    /// Bytes of the file system that other programs leave.
    pub file_system_bytes: u64,
    unwritten_frames: u64,
    trouble_since: Option<Instant>,
    is_out_of_space: bool,
    pub needed_bytes: u64,
    room_bytes: u64,
    most_unwritten_bytes: u64,
}

impl World {
    /// `routes`: the deliveries of each sender, with whether the backend is well; `every`: ticks
    /// between two requests of each.
    pub(super) fn new(routes: &[&[(Policy, bool)]], every: u64) -> World {
        let mut world = World {
            start: Instant::now(),
            tick: 0,
            frames: VecDeque::new(),
            first: 0,
            readers: Vec::new(),
            senders: Vec::new(),
            writes: Writes::OneIn(1),
            written_below: 0,
            segments: BTreeMap::new(),
            open: 0,
            open_frames: 16,
            file_system_bytes: 4 * LIMIT_BYTES,
            unwritten_frames: 0,
            trouble_since: None,
            is_out_of_space: false,
            needed_bytes: 0,
            room_bytes: u64::MAX,
            most_unwritten_bytes: 0,
        };
        for route in routes {
            let first = world.readers.len();
            world.readers.extend(route.iter().map(|&(policy, is_well)| Reader {
                policy,
                is_well,
                health: BackendHealth::default(),
                sheds: Sheds::Nothing,
                next: 0,
                lag_frames: 0,
                unwritten_frames: 0,
                failures: 0,
                taken: 0,
                dropped: 0,
            }));
            world.senders.push(Sender {
                readers: (first..world.readers.len()).map(|index| 1 << index).sum(),
                every,
                waits_since: None,
                appended: 0,
                accepted: 0,
                lost: 0,
                refused: 0,
                longest_wait: Duration::ZERO,
            });
        }
        world
    }

    fn now(&self) -> Instant {
        self.start + TICK * self.tick as u32
    }

    pub(super) fn run(&mut self, ticks: u64) {
        for _ in 0..ticks {
            (0..self.senders.len()).for_each(|index| self.send(index));
            (0..self.readers.len()).for_each(|index| self.deliver(index));
            self.write();
            if self.tick.is_multiple_of(LOOK) {
                self.look();
            }
            self.most_unwritten_bytes = self.most_unwritten_bytes.max(self.unwritten_bytes());
            self.tick += 1;
        }
    }

    fn state(&self, index: usize) -> DeliveryState {
        let reader = &self.readers[index];
        let lag_bytes = reader.lag_frames * FRAME_BYTES;
        DeliveryState {
            policy: reader.policy,
            is_best_effort: false,
            limit_bytes: LIMIT_BYTES,
            lag_bytes,
            unread_bytes: lag_bytes,
            private_bytes: 0,
            is_far_behind: disk::is_backlog(lag_bytes),
            backend: reader.health.judge(self.now(), false),
        }
    }

    fn route(&self, sender: usize) -> impl Iterator<Item = (usize, DeliveryState)> + Clone {
        let mask = self.senders[sender].readers;
        let of_route = (0..self.readers.len()).filter(move |index| mask >> index & 1 == 1);
        of_route.map(|index| (index, self.state(index)))
    }

    pub(super) fn pool(&self) -> PoolState {
        PoolState {
            limit_bytes: LIMIT_BYTES,
            room_bytes: self.room_bytes.min(LIMIT_BYTES),
            used_bytes: self.needed_bytes,
            firm_bytes: 0,
            deliveries: self.readers.len(),
        }
    }

    /// Bytes that are not on disk and for which some delivery waits.
    fn unwritten_bytes(&self) -> u64 {
        self.unwritten_frames * FRAME_BYTES
    }

    fn update_sheds(&mut self) {
        for sender in 0..self.senders.len() {
            let view = RouteView::of(self.route(sender).map(|(_, state)| state));
            let found: Vec<_> =
                self.route(sender).map(|(index, state)| (index, sheds(&state, &view))).collect();
            found.into_iter().for_each(|(index, sheds)| self.readers[index].sheds = sheds);
        }
    }

    fn send(&mut self, index: usize) {
        let now = self.now();
        let sender = &mut self.senders[index];
        if sender.waits_since.is_none() && !self.tick.is_multiple_of(sender.every) {
            return;
        }
        let since = *sender.waits_since.get_or_insert(now);
        let is_over = Patience::from(since).is_over(now);
        let is_admitted = self.is_admitted(index);
        let sender = &mut self.senders[index];
        sender.longest_wait = sender.longest_wait.max(now - since);
        if is_admitted || is_over {
            sender.waits_since = None;
        }
        if !is_admitted {
            sender.refused += u64::from(is_over);
            return;
        }
        sender.appended += 1;
        let (waits, sender) = (sender.readers, index);
        self.unwritten_frames += 1;
        for (_, reader) in
            self.readers.iter_mut().enumerate().filter(|(index, _)| waits >> index & 1 == 1)
        {
            reader.lag_frames += 1;
            reader.unwritten_frames += 1;
        }
        let (is_taken, segment, is_answered) = (false, None, false);
        self.frames.push_back(Frame { waits, is_taken, segment, sender, is_answered });
    }

    /// The engine's steps for a request: rules 6 to 8, then rule 10.
    fn is_admitted(&mut self, sender: usize) -> bool {
        let arrival = Arrival {
            own_bytes: FRAME_BYTES,
            bytes: FRAME_BYTES,
            route_bytes: FRAME_BYTES,
            beside_bytes: 0,
            is_cpu_bound: false,
            may_be_paced: true,
        };
        if admit(&self.pool(), arrival, self.route(sender)).is_err() {
            return false;
        }
        self.update_sheds();
        if self.trouble_since.is_some_and(|since| self.now() - since >= LASTING) {
            let late: Vec<_> =
                self.route(sender).filter(|(_, state)| disk::is_late(state)).collect();
            late.iter().for_each(|&(index, _)| self.drop_unwritten(index, 0));
            if late.iter().any(|(_, state)| disk::waits_in_vain(state)) {
                return false;
            }
        }
        let limit_bytes = UNWRITTEN_LIMIT_BYTES;
        let unwritten_bytes = self.unwritten_bytes();
        if let Some(keep_bytes) =
            disk::keep_unwritten_bytes(unwritten_bytes, FRAME_BYTES, limit_bytes)
        {
            let of_route: Vec<_> = self.route(sender).map(|(index, _)| index).collect();
            of_route.into_iter().for_each(|index| self.drop_unwritten(index, keep_bytes));
        }
        let unwritten = disk::unwritten(self.unwritten_bytes(), limit_bytes, self.readers.len());
        let of_route = self.route(sender).map(|(index, _)| self.readers[index].unwritten_frames);
        let of_route = of_route.map(|frames| frames * FRAME_BYTES);
        !disk::is_unwritten_full(&unwritten, FRAME_BYTES, of_route)
    }

    fn deliver(&mut self, index: usize) {
        let now = self.now();
        let reader = &mut self.readers[index];
        let end = self.first + self.frames.len() as u64;
        if reader.lag_frames > 0 {
            reader.health.note_begun(now);
        }
        if !reader.is_well {
            reader.failures += u32::from(reader.lag_frames > 0);
            reader.health.note_answer(false, now);
            return reader.health.note_outage(reader.failures >= 32);
        }
        reader.failures = 0;
        reader.health.note_outage(false);
        // A backlog on disk is read back four times as fast as a sender sends.
        let mut left = 4;
        while self.readers[index].next < end && left > 0 {
            let offset = self.readers[index].next.max(self.first);
            self.readers[index].next = offset + 1;
            if offset < end && self.resolve(index, offset, true) {
                self.readers[index].health.note_answer(true, now);
                left -= 1;
            }
        }
        self.readers[index].health.note_idle();
    }

    /// False if the delivery does not wait for the frame.
    fn resolve(&mut self, index: usize, offset: u64, is_taken: bool) -> bool {
        let frame = &mut self.frames[(offset - self.first) as usize];
        if frame.waits >> index & 1 == 0 {
            return false;
        }
        frame.waits &= !(1 << index);
        frame.is_taken |= is_taken;
        let reader = &mut self.readers[index];
        reader.lag_frames -= 1;
        reader.unwritten_frames -= u64::from(frame.segment.is_none());
        (reader.taken, reader.dropped) =
            (reader.taken + u64::from(is_taken), reader.dropped + u64::from(!is_taken));
        if frame.waits == 0 {
            self.unwritten_frames -= u64::from(frame.segment.is_none());
            let is_ok = frame.is_taken;
            if let Some(segment) = frame.segment {
                let left = self.segments.get_mut(&segment).expect("it has a frame that waits");
                *left -= 1;
                if *left == 0 && segment != self.open {
                    self.segments.remove(&segment);
                }
            }
            // Unless it was answered when it came to the disk.
            self.answer(offset, is_ok);
        }
        while self.frames.front().is_some_and(|frame| frame.waits == 0) {
            self.frames.pop_front();
            self.first += 1;
        }
        self.written_below = self.written_below.max(self.first);
        true
    }

    fn answer(&mut self, offset: u64, is_ok: bool) {
        let frame = &mut self.frames[(offset - self.first) as usize];
        if !std::mem::replace(&mut frame.is_answered, true) {
            let sender = &mut self.senders[frame.sender];
            (sender.accepted, sender.lost) =
                (sender.accepted + u64::from(is_ok), sender.lost + u64::from(!is_ok));
        }
    }

    /// Gives up the oldest unwritten frames of a delivery, as far as it may.
    fn drop_unwritten(&mut self, index: usize, keep_bytes: u64) {
        if self.readers[index].sheds == Sheds::Nothing {
            return;
        }
        let keep_frames = keep_bytes / FRAME_BYTES;
        let mut excess = self.readers[index].unwritten_frames.saturating_sub(keep_frames);
        let mut offset = self.written_below;
        while excess > 0 && offset + 1 < self.first + self.frames.len() as u64 {
            if offset >= self.first && self.may_drop(index, offset) {
                excess -= u64::from(self.resolve(index, offset, false));
            }
            offset += 1;
        }
    }

    fn may_drop(&self, index: usize, offset: u64) -> bool {
        let is_taken = self.frames[(offset - self.first) as usize].is_taken;
        match self.readers[index].sheds {
            Sheds::Nothing => false,
            Sheds::Taken => is_taken,
            Sheds::Everything => true,
        }
    }

    fn write(&mut self) {
        let frames = match self.writes {
            Writes::OneIn(ticks) => u64::from(self.tick.is_multiple_of(ticks)),
            Writes::Hangs => return,
            Writes::Fails => {
                self.trouble_since.get_or_insert(self.now());
                return;
            }
        };
        let mut left = frames;
        while left > 0 && self.written_below < self.first + self.frames.len() as u64 {
            let index = (self.written_below - self.first) as usize;
            if self.frames[index].waits != 0 {
                if self.open_frames == 16 && !self.open_segment() {
                    return;
                }
                let frame = &mut self.frames[index];
                frame.segment = Some(self.open);
                self.unwritten_frames -= 1;
                for (_, reader) in (self.readers.iter_mut().enumerate())
                    .filter(|(index, _)| frame.waits >> index & 1 == 1)
                {
                    reader.unwritten_frames -= 1;
                }
                *self.segments.entry(self.open).or_default() += 1;
                self.open_frames += 1;
                self.answer(self.written_below, true);
                left -= 1;
            }
            self.written_below += 1;
        }
        (self.trouble_since, self.is_out_of_space) = (None, false);
    }

    /// False if the file system refuses the space.
    fn open_segment(&mut self) -> bool {
        if self.segments.get(&self.open) == Some(&0) {
            self.segments.remove(&self.open);
        }
        let files_bytes = self.segments.len() as u64 * SEGMENT_BYTES;
        if files_bytes + SEGMENT_BYTES > self.file_system_bytes {
            self.is_out_of_space = true;
            self.trouble_since.get_or_insert(self.now());
            return false;
        }
        (self.open, self.open_frames) = (self.open + 1, 0);
        true
    }

    /// A few times a second: how much disk there is, and which segments go for want of it.
    fn look(&mut self) {
        let files_bytes = self.segments.len() as u64 * SEGMENT_BYTES;
        let free_bytes = self.file_system_bytes.saturating_sub(files_bytes);
        self.needed_bytes = files_bytes;
        self.room_bytes = disk::room_bytes(files_bytes, Some(free_bytes), self.is_out_of_space);
        let mut wanted_bytes = self.pool().to_shed_bytes(0);
        if wanted_bytes == 0 {
            return;
        }
        self.update_sheds();
        if self.readers.iter().all(|reader| reader.sheds == Sheds::Nothing) {
            return;
        }
        let mut waiting = BTreeMap::<u64, Vec<(usize, u64)>>::new();
        for (frame, offset) in self.frames.iter().zip(self.first..self.written_below) {
            let Some(segment) = frame.segment.filter(|&it| it != self.open) else { continue };
            let readers = (0..self.readers.len()).filter(|index| frame.waits >> index & 1 == 1);
            waiting.entry(segment).or_default().extend(readers.map(|index| (index, offset)));
        }
        for of_segment in waiting.into_values().filter(|it| !it.is_empty()) {
            if wanted_bytes > 0 && of_segment.iter().all(|&(index, at)| self.may_drop(index, at)) {
                wanted_bytes = wanted_bytes.saturating_sub(SEGMENT_BYTES);
                for (index, offset) in of_segment {
                    self.resolve(index, offset, false);
                }
            }
        }
    }

    pub(super) fn dropped(&self) -> Vec<u64> {
        self.readers.iter().map(|reader| reader.dropped).collect()
    }

    pub(super) fn refused(&self) -> Vec<u64> {
        self.senders.iter().map(|sender| sender.refused).collect()
    }

    /// Every frame was taken, waits or was dropped, and none was dropped under `backpressure`.
    pub(super) fn assert_accounted(&self) {
        for (index, reader) in self.readers.iter().enumerate() {
            let of_reader = |sender: &&Sender| sender.readers >> index & 1 == 1;
            let appended = self.senders.iter().find(of_reader).map_or(0, |it| it.appended);
            assert_eq!(reader.taken + reader.lag_frames + reader.dropped, appended, "{index}");
            assert!(reader.policy != Policy::Backpressure || reader.dropped == 0, "{index}");
        }
        let sums = self.senders.iter().map(|it| (it.accepted + it.lost, it.appended));
        assert!(sums.into_iter().all(|(answered, appended)| answered <= appended));
        assert!(self.senders.iter().all(|it| it.longest_wait <= Duration::from_secs(1) + TICK));
        assert!(self.most_unwritten_bytes <= UNWRITTEN_LIMIT_BYTES);
    }
}
