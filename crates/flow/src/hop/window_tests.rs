//! The window alone, and a model of the hop: a source that sends its frames in any batches, and a
//! receiver that crashes between any two steps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::prelude::*;

use super::*;

fn of(log: u128, frames: Range<u64>) -> Ranges {
    let range = Place::new(frames.start, 0)..Place::new(frames.end, 0);
    Ranges::new([(Source(log), range)])
}

fn new(floor: Option<u64>) -> Found {
    Found::New(floor)
}

#[test]
fn a_repeat_is_known_once_the_first_is_kept_and_new_again_if_it_was_refused() {
    let mut window = Window::new(Limits::default(), 5);
    let (one, two) = (of(1, 0..3), of(1, 3..4));
    assert_eq!(window.arrive(&one, true), new(Some(5)));
    assert_eq!(window.arrive(&one, true), Found::Arriving, "the first is not answered");
    assert_eq!(window.arrive(&of(1, 2..4), true), Found::Arriving);
    assert_eq!(window.arrive(&two, true), new(Some(5)));
    window.keep(&one, Some(5));
    window.forget(&two, Some(5));
    assert_eq!(window.arrive(&one, true), Found::Known);
    assert_eq!(window.arrive(&of(1, 1..2), true), Found::Known, "cut otherwise");
    assert_eq!(window.arrive(&of(1, 2..5), true), Found::Overlaps);
    assert_eq!(window.arrive(&of(2, 0..3), true), new(Some(5)), "another log");
    assert_eq!(window.arrive(&two, true), new(Some(5)), "it was refused");
    assert_eq!(window.totals().repeated_requests, 2);
}

/// Guarantee: under `ack: memory` a repeat is acknowledged as the first was, and a crash forgets
/// it with the frame.
#[test]
fn what_is_answered_from_memory_is_known_and_kept_only_once_it_is_safe() {
    let mut window = Window::new(Limits::default(), 0);
    let one = of(1, 0..1);
    assert_eq!(window.arrive(&one, true), new(Some(0)));
    assert_eq!(window.arrive(&one, true), Found::Arriving, "it may still be refused");
    window.note_appended(0);
    window.answer(&one);
    assert_eq!(window.arrive(&one, true), Found::Known);
    assert_eq!(window.copy(), (Ranges::default(), 0));
    window.keep(&one, Some(0));
    assert_eq!(window.copy(), (one.clone(), 1));
    let two = of(1, 1..2);
    assert_eq!(window.arrive(&two, true), new(Some(1)));
    window.answer(&two);
    window.forget(&two, Some(1));
    assert_eq!(window.arrive(&two, true), new(Some(1)), "its frame was lost");
}

#[test]
fn a_window_is_bounded_and_forgets_what_was_heard_of_longest_ago() {
    let limits = Limits { sources: 3, ranges: 8, ranges_of_source: 4 };
    let mut window = Window::new(limits, 0);
    for log in 0..4 {
        assert_eq!(window.arrive(&of(log, 0..1), false), new(None));
        if log > 0 {
            window.keep(&of(log, 0..1), None);
        }
    }
    assert_eq!(window.totals().sources, 3);
    assert_eq!(window.arrive(&of(1, 0..1), false), new(None), "it was forgotten");
    assert_eq!(window.arrive(&of(0, 0..1), false), Found::Arriving, "it is under way");
    window.forget(&of(1, 0..1), None);
    for at in 1..9 {
        window.recover(&of(3, 2 * at..2 * at + 1));
    }
    assert_eq!(window.arrive(&of(3, 2..3), false), new(None), "the lowest are forgotten");
    assert_eq!(window.arrive(&of(3, 16..17), false), Found::Known);
    assert!(window.totals().ranges <= 8 && window.totals().evicted_ranges >= 5);
}

/// Scenario: requests name a range that is known, or is arriving, and sources that nothing was
/// stored of. Guarantee: they are refused, and leave nothing behind.
#[test]
fn a_request_that_is_not_stored_adds_no_source() {
    let limits = Limits { sources: 3, ranges: 8, ranges_of_source: 4 };
    let mut window = Window::new(limits, 0);
    assert_eq!(window.arrive(&of(1, 0..1), false), new(None));
    window.keep(&of(1, 0..1), None);
    assert_eq!(window.arrive(&of(2, 0..1), false), new(None));
    for (known, found) in [(1, Found::Overlaps), (2, Found::Arriving)] {
        for made_up in 0..100_u128 {
            let all = (100 * made_up..100 * made_up + 100).map(|source| of(10 + source, 0..1));
            let ranges = all.chain([of(known, 0..1)]).flat_map(|it| {
                it.iter().map(|(source, range)| (source, range.clone())).collect::<Vec<_>>()
            });
            assert_eq!(window.arrive(&Ranges::new(ranges), false), found);
            assert_eq!(window.totals().sources, 2);
        }
    }
    assert_eq!(window.arrive(&of(1, 0..1), false), Found::Known);
}

/// An item of the source: its frame and its number in it.
type Item = (u64, u32);

#[derive(Clone, Debug)]
enum Step {
    /// A request of these items of frames, of a random length.
    Send {
        first: usize,
        frames: usize,
        part: Option<(u32, u32)>,
        answer_is_lost: bool,
    },
    /// The oldest frames become durable.
    Sync {
        frames: usize,
    },
    /// A delivery resolves durable frames, and their segment is removed.
    Remove {
        frames: usize,
    },
    Refuse,
    Copy,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let part = prop::option::weighted(0.4, (0u32..3, 1u32..4));
    prop_oneof![
        12 => (any::<usize>(), 1usize..6, part, any::<bool>()).prop_map(
            |(first, frames, part, answer_is_lost)| {
                Step::Send { first, frames, part, answer_is_lost }
            }
        ),
        6 => (1usize..4).prop_map(|frames| Step::Sync { frames }),
        2 => (1usize..4).prop_map(|frames| Step::Remove { frames }),
        1 => Just(Step::Refuse),
        3 => Just(Step::Copy),
        2 => Just(Step::Crash),
    ]
}

/// A frame of the receiver.
struct Stored {
    offset: u64,
    ranges: Ranges,
    items: Vec<Item>,
    floor: Option<u64>,
    is_durable: bool,
}

/// The items of each frame of the source. A delivery cuts them anew at each attempt.
const ITEMS: u32 = 4;
const FRAMES: u64 = 12;

#[derive(Default)]
struct Receiver {
    window: Window,
    frames: Vec<Stored>,
    head: u64,
    /// Items that were delivered, and whose segments are gone.
    removed: Vec<Item>,
    copy: (Ranges, u64),
}

impl Receiver {
    fn take(&mut self, ranges: &Ranges, items: &[Item]) -> Found {
        let found = self.window.arrive(ranges, true);
        if let Found::New(floor) = found {
            let (offset, ranges, items) = (self.head, ranges.clone(), items.to_vec());
            self.head += 1;
            self.window.note_appended(offset);
            self.frames.push(Stored { offset, ranges, items, floor, is_durable: false });
        }
        found
    }

    fn sync(&mut self, frames: usize) {
        for frame in self.frames.iter_mut().filter(|it| !it.is_durable).take(frames) {
            frame.is_durable = true;
            self.window.keep(&frame.ranges, frame.floor);
        }
    }

    fn remove(&mut self, frames: usize) {
        // Cursors and with them the window are written before a segment goes.
        self.copy = self.window.copy();
        let mut gone: Vec<_> =
            self.frames.iter().filter(|it| it.is_durable).map(|it| it.offset).collect();
        gone.truncate(frames);
        let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.frames)
            .into_iter()
            .partition(|frame| gone.contains(&frame.offset));
        self.removed.extend(gone.into_iter().flat_map(|frame| frame.items));
        self.frames = left;
    }

    /// The newest frame is withdrawn, if it is not durable: its sender gets a refusal.
    fn refuse(&mut self) {
        if let Some(frame) = self.frames.pop_if(|frame| !frame.is_durable) {
            self.window.forget(&frame.ranges, frame.floor);
        }
    }

    fn crash(&mut self) {
        self.frames.retain(|frame| frame.is_durable);
        let (known, from) = &self.copy;
        self.window = Window::new(Limits::default(), self.head);
        self.window.recover(known);
        for frame in self.frames.iter().filter(|frame| frame.offset >= *from) {
            self.window.recover(&frame.ranges);
        }
    }
}

/// The requests of a source that sends these frames, or this part of one.
fn request(frames: &[u64], part: Option<(u32, u32)>) -> (Ranges, Vec<Item>) {
    if let Some((from, length)) = part {
        let (frame, to) = (frames[0], (from + length).min(ITEMS));
        let range = Place::new(frame, from)..Place::new(frame, to);
        return (Ranges::new([(Source(9), range)]), (from..to).map(|it| (frame, it)).collect());
    }
    let whole = |frame: &u64| (Source(9), Place::new(*frame, 0)..Place::behind(*frame));
    let items = frames.iter().flat_map(|frame| (0..ITEMS).map(move |item| (*frame, item)));
    (Ranges::new(frames.iter().map(whole)), items.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Scenario: frames are sent in any batches and cuts, again and again, and answers are lost.
    /// The receiver refuses, syncs, removes segments and is killed between any two steps.
    /// Guarantee: it has every item that it has answered OK, and none twice.
    #[test]
    fn an_item_is_stored_once_whatever_happens(steps in prop::collection::vec(step(), 1..120)) {
        let mut receiver = Receiver::default();
        let mut acknowledged = BTreeSet::<Item>::new();
        let mut awaited: Vec<(u64, Vec<Item>)> = Vec::new();
        let finish = FRAMES as usize * ITEMS as usize;
        let ending = (0..finish).flat_map(|at| {
            let (frame, item) = (at / ITEMS as usize, at as u32 % ITEMS);
            let part = Some((item, 1));
            let send = Step::Send { first: frame, frames: 1, part, answer_is_lost: false };
            [send, Step::Sync { frames: 9 }]
        });
        // At last all is sent item by item, as a sender does after refusals.
        for step in steps.into_iter().chain([Step::Sync { frames: 99 }]).chain(ending) {
            match step {
                Step::Send { first, frames, part, answer_is_lost } => {
                    let first = first as u64 % FRAMES;
                    let chosen: Vec<_> =
                        (0..frames as u64).map(|it| (first + it * it) % FRAMES).collect();
                    let (ranges, items) = request(&chosen, part);
                    let items: BTreeSet<_> = items.into_iter().collect();
                    let items: Vec<_> = items.into_iter().collect();
                    match receiver.take(&ranges, &items) {
                        Found::Known if !answer_is_lost => acknowledged.extend(items),
                        Found::New(_) if !answer_is_lost => {
                            awaited.push((receiver.head - 1, items));
                        }
                        _ => {}
                    }
                }
                Step::Sync { frames } => receiver.sync(frames),
                Step::Remove { frames } => receiver.remove(frames),
                Step::Refuse => receiver.refuse(),
                Step::Copy => receiver.copy = receiver.window.copy(),
                Step::Crash => {
                    receiver.crash();
                    awaited.clear();
                }
            }
            let is_durable = |offset: &u64| {
                receiver.frames.iter().any(|it| it.offset == *offset && it.is_durable)
            };
            let (answered, left): (Vec<_>, Vec<_>) = std::mem::take(&mut awaited)
                .into_iter()
                .partition(|(offset, _)| is_durable(offset));
            acknowledged.extend(answered.into_iter().flat_map(|(_, items)| items));
            awaited = left;
            let mut stored = BTreeMap::<Item, usize>::new();
            let in_log = receiver.frames.iter().flat_map(|frame| &frame.items);
            for item in in_log.chain(&receiver.removed) {
                *stored.entry(*item).or_default() += 1;
            }
            prop_assert!(stored.values().all(|count| *count == 1), "{:?}", stored);
            for item in &acknowledged {
                prop_assert!(stored.contains_key(item), "{:?} was acknowledged", item);
            }
        }
        prop_assert_eq!(acknowledged.len(), finish, "at last everything is taken");
    }
}

proptest! {
    /// Guarantee: whatever requests name, the window has no more sources than its limit, or than
    /// those whose requests are under way.
    #[test]
    fn the_number_of_sources_is_bounded_after_each_call(
        requests in prop::collection::vec(
            (prop::collection::vec(0u128..40, 1..8), 0u64..6, 0..3), 1..60
        )
    ) {
        let limits = Limits { sources: 5, ranges: 12, ranges_of_source: 4 };
        let mut window = Window::new(limits, 0);
        let mut under_way: Vec<Ranges> = Vec::new();
        for (sources, frame, end) in requests {
            let range = Place::new(frame, 0)..Place::new(frame + 1, 0);
            let ranges = Ranges::new(sources.iter().map(|it| (Source(*it), range.clone())));
            if let Found::New(floor) = window.arrive(&ranges, false) {
                match end {
                    0 => window.keep(&ranges, floor),
                    1 => window.forget(&ranges, floor),
                    _ => under_way.push(ranges),
                }
            }
            let busy: BTreeSet<_> = under_way.iter().flat_map(|it| it.0.keys()).collect();
            let sources = window.totals().sources as usize;
            prop_assert!(sources <= limits.sources.max(busy.len()), "{sources} {}", busy.len());
        }
    }
}
