//! Cursor files: a slot, which is the state of one reader, and the list of these files. A file has
//! two slots, written in turn; each is complete.

use std::collections::BTreeSet;

use bytes::{Buf, BufMut};

use super::{BlockError, VERSION, Version, cut_text};
use crate::types::{Holding, RangeSet};

/// Length of a slot: whole blocks, so that a torn write reaches one slot only.
pub const SLOT_LEN_BYTES: u64 = 32 << 10;
/// Resolved ranges in a slot. The frames of further ranges are read again after a restart.
pub const RANGES_LIMIT: usize = 1024;
/// Ranges in a slot that were resolved and not taken. Above this many the lowest are joined.
pub const UNTAKEN_RANGES_LIMIT: usize = 896;
/// Dropped ranges in a slot.
pub const DROPPED_RANGES_LIMIT: usize = 16;
/// Longest name of a reader.
pub const NAME_LIMIT_BYTES: usize = 1024;

const MAGIC: &[u8; 8] = b"SLUICCUR";
const FIXED_LEN_BYTES: usize = 128;
const DROPPED_RANGE_LEN_BYTES: usize = 48;
const RANGE_LEN_BYTES: usize = 16;
const CHECKSUM_POSITION: usize = 16;

const LIST_TITLE: &str = "sluice cursors ";
const LIST_VERSION: u16 = 1;
const LIST_CHECKSUM: &str = "crc32c ";

const _: () = assert!(
    FIXED_LEN_BYTES
        + NAME_LIMIT_BYTES
        + DROPPED_RANGES_LIMIT * DROPPED_RANGE_LEN_BYTES
        + (RANGES_LIMIT + UNTAKEN_RANGES_LIMIT) * RANGE_LEN_BYTES
        + size_of::<u32>()
        <= SLOT_LEN_BYTES as usize
);

/// First offset of each range and the offset behind its last.
type Ranges = Vec<(u64, u64)>;

/// A range of offsets in which a policy dropped frames of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedRange {
    /// First offset.
    pub start: u64,
    /// Offset behind the last one.
    pub end: u64,
    /// The frames in the range that were for this reader.
    pub dropped: Holding,
    /// Wall clock, for people.
    pub dropped_unix_ns: u64,
}

/// A reader as it is kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CursorState {
    /// Names the reader in frames' headers. Never 0, never given to another reader of the log.
    pub id: u32,
    /// Name of the delivery, at most [`NAME_LIMIT_BYTES`].
    pub name: String,
    /// The log whose offsets these are.
    pub log_id: u128,
    /// Everything below is resolved.
    pub floor: u64,
    /// Resolved above the floor, ascending, disjoint. Of more than [`RANGES_LIMIT`] the lowest.
    pub resolved: Vec<(u64, u64)>,
    /// Covers all offsets that were resolved, not taken, and may be on disk; ascending, disjoint.
    /// See also `written_off`.
    pub untaken: Vec<(u64, u64)>,
    /// Head of the log when this was written.
    pub head: u64,
    /// Frames that waited for the reader below `head`.
    pub held: Holding,
    /// All frames that policies ever dropped.
    pub dropped: Holding,
    /// The latest [`DROPPED_RANGES_LIMIT`] ranges, oldest first.
    pub dropped_ranges: Vec<DroppedRange>,
    pub written_unix_ns: u64,
}

impl CursorState {
    /// Whether a frame is for this reader and was unresolved when this was written.
    pub fn waits_for(&self, readers: &[u32], offset: u64) -> bool {
        let is_resolved = offset < self.floor
            || self.resolved.iter().any(|&(start, end)| (start..end).contains(&offset));
        !is_resolved && readers.contains(&self.id)
    }

    /// Unresolved offsets that `held` does not count: the reader passed them unread, and they count
    /// as lost. They are among the untaken, of which the lowest may have been joined.
    pub(crate) fn written_off(&self) -> RangeSet {
        let joined = usize::from(self.untaken.len() >= UNTAKEN_RANGES_LIMIT);
        let mut ranges = RangeSet::default();
        self.untaken.iter().skip(joined).for_each(|&(start, end)| ranges.insert_run(start, end));
        // Version 1.0 has dropped ranges for the untaken, with unresolved frames between them.
        let dropped = self.dropped_ranges.iter().map(|range| (range.start, range.end));
        let others = self.resolved.iter().copied().chain(dropped).chain([(0, self.floor)]);
        others.for_each(|(start, end)| ranges.remove_run(start, end));
        ranges
    }
}

/// The used bytes of a slot. A name that is too long is cut.
pub fn encode_slot(state: &CursorState, sequence: u64) -> Vec<u8> {
    let name = cut_text(&state.name, NAME_LIMIT_BYTES);
    let dropped_ranges = &state.dropped_ranges;
    let dropped_ranges =
        &dropped_ranges[dropped_ranges.len().saturating_sub(DROPPED_RANGES_LIMIT)..];
    let ranges = &state.resolved[..state.resolved.len().min(RANGES_LIMIT)];
    let untaken = join_lowest(&state.untaken);
    let mut slot = vec![0; FIXED_LEN_BYTES];
    slot[..8].copy_from_slice(MAGIC);
    (&mut slot[8..]).put_u16_le(VERSION.major);
    (&mut slot[10..]).put_u16_le(VERSION.minor);
    (&mut slot[20..]).put_u32_le(state.id);
    (&mut slot[24..]).put_u64_le(sequence);
    (&mut slot[32..]).put_u64_le(state.floor);
    (&mut slot[40..]).put_u64_le(state.head);
    put_holding(&mut slot[48..], state.held);
    put_holding(&mut slot[72..], state.dropped);
    (&mut slot[96..]).put_u64_le(state.written_unix_ns);
    (&mut slot[104..]).put_u16_le(name.len() as u16);
    (&mut slot[106..]).put_u16_le(dropped_ranges.len() as u16);
    (&mut slot[108..]).put_u32_le(ranges.len() as u32);
    (&mut slot[112..]).put_u128_le(state.log_id);
    slot.put_slice(name);
    for range in dropped_ranges {
        slot.put_u64_le(range.start);
        slot.put_u64_le(range.end);
        put_holding(&mut slot, range.dropped);
        slot.put_u64_le(range.dropped_unix_ns);
    }
    put_ranges(&mut slot, ranges);
    slot.put_u32_le(untaken.len() as u32);
    put_ranges(&mut slot, &untaken);
    let len = slot.len() as u32;
    (&mut slot[12..]).put_u32_le(len);
    let checksum = checksum(&slot);
    (&mut slot[CHECKSUM_POSITION..]).put_u32_le(checksum);
    slot
}

/// At most [`UNTAKEN_RANGES_LIMIT`] ranges that cover all of these: rather too many offsets count
/// as not taken than too few.
fn join_lowest(ranges: &[(u64, u64)]) -> Ranges {
    let mut kept = ranges[ranges.len().saturating_sub(UNTAKEN_RANGES_LIMIT)..].to_vec();
    if let (Some(lowest), Some(kept)) = (ranges.first(), kept.first_mut()) {
        kept.0 = lowest.0;
    }
    kept
}

/// Sequence number and content of a slot. `bytes` starts with the slot and may be longer.
pub fn decode_slot(bytes: &[u8]) -> Result<(u64, CursorState), BlockError> {
    if bytes.len() < FIXED_LEN_BYTES || &bytes[..8] != MAGIC {
        return Err(BlockError::Damaged);
    }
    let len = (&bytes[12..]).get_u32_le() as usize;
    let slot =
        bytes.get(..len).filter(|slot| slot.len() >= FIXED_LEN_BYTES).ok_or(BlockError::Damaged)?;
    if (&slot[CHECKSUM_POSITION..]).get_u32_le() != checksum(slot) {
        return Err(BlockError::Damaged);
    }
    // Magic, length, version and checksum stand in the same place in every version.
    let version = Version { major: (&slot[8..]).get_u16_le(), minor: (&slot[10..]).get_u16_le() };
    if version.major > VERSION.major {
        return Err(BlockError::NewerVersion { found: version });
    }
    decode_whole_slot(slot).ok_or(BlockError::Damaged)
}

/// None if the parts do not fit into the slot or contradict each other.
fn decode_whole_slot(slot: &[u8]) -> Option<(u64, CursorState)> {
    let [name_len, dropped_ranges_len] =
        [104, 106].map(|at| usize::from((&slot[at..]).get_u16_le()));
    let (name, rest) = slot[FIXED_LEN_BYTES..].split_at_checked(name_len)?;
    let (dropped_ranges, rest) =
        rest.split_at_checked(dropped_ranges_len * DROPPED_RANGE_LEN_BYTES)?;
    let dropped_ranges: Vec<_> =
        dropped_ranges.chunks_exact(DROPPED_RANGE_LEN_BYTES).map(decode_dropped_range).collect();
    let (resolved, rest) = get_ranges(rest, (&slot[108..]).get_u32_le())?;
    let untaken = if (&slot[10..]).get_u16_le() > 0 {
        let (count, rest) = rest.split_at_checked(size_of::<u32>())?;
        get_ranges(rest, (&*count).get_u32_le())?.0
    } else {
        // Version 1.0 stores no other untaken ranges.
        let mut known = RangeSet::default();
        let ranges = dropped_ranges.iter().filter(|range| range.start < range.end);
        ranges.for_each(|range| known.insert_run(range.start, range.end));
        known.iter().collect()
    };
    let state = CursorState {
        id: (&slot[20..]).get_u32_le(),
        name: String::from_utf8(name.to_vec()).ok()?,
        log_id: (&slot[112..]).get_u128_le(),
        floor: (&slot[32..]).get_u64_le(),
        resolved,
        untaken,
        head: (&slot[40..]).get_u64_le(),
        held: get_holding(&slot[48..]),
        dropped: get_holding(&slot[72..]),
        dropped_ranges,
        written_unix_ns: (&slot[96..]).get_u64_le(),
    };
    let is_whole = is_ascending(state.floor, &state.resolved) && is_ascending(0, &state.untaken);
    is_whole.then(|| ((&slot[24..]).get_u64_le(), state))
}

/// Whether no range is empty and each starts at or behind the end of the one before.
fn is_ascending(from: u64, ranges: &[(u64, u64)]) -> bool {
    let ends_before = std::iter::once(from).chain(ranges.iter().map(|range| range.1));
    ends_before.zip(ranges).all(|(end_before, &(start, end))| end_before <= start && start < end)
}

fn put_ranges(slot: &mut Vec<u8>, ranges: &[(u64, u64)]) {
    for (start, end) in ranges {
        slot.put_u64_le(*start);
        slot.put_u64_le(*end);
    }
}

/// Decodes this many ranges. Returns them and the bytes behind them.
fn get_ranges(bytes: &[u8], count: u32) -> Option<(Ranges, &[u8])> {
    let len = (count as usize).checked_mul(RANGE_LEN_BYTES)?;
    let (ranges, rest) = bytes.split_at_checked(len)?;
    let range = |range: &[u8]| ((&*range).get_u64_le(), (&range[8..]).get_u64_le());
    Some((ranges.chunks_exact(RANGE_LEN_BYTES).map(range).collect(), rest))
}

fn decode_dropped_range(block: &[u8]) -> DroppedRange {
    DroppedRange {
        start: (&*block).get_u64_le(),
        end: (&block[8..]).get_u64_le(),
        dropped: get_holding(&block[16..]),
        dropped_unix_ns: (&block[40..]).get_u64_le(),
    }
}

fn put_holding(mut output: impl BufMut, holding: Holding) {
    output.put_u64_le(holding.frames);
    output.put_u64_le(holding.items);
    output.put_u64_le(holding.bytes);
}

fn get_holding(mut input: impl Buf) -> Holding {
    let [frames, items, bytes] = [(); 3].map(|()| input.get_u64_le());
    Holding { frames, items, bytes }
}

fn checksum(slot: &[u8]) -> u32 {
    crc32c::crc32c_append(
        crc32c::crc32c(&slot[..CHECKSUM_POSITION]),
        &slot[CHECKSUM_POSITION + 4..],
    )
}

/// The list of cursor files, which tells a lost one from one that was removed on purpose: text.
pub(crate) fn encode_list(names: &BTreeSet<String>) -> String {
    let mut text = format!("{LIST_TITLE}{LIST_VERSION}\n");
    names.iter().for_each(|name| text.extend([name, "\n"]));
    let checksum = crc32c::crc32c(text.as_bytes());
    text + &format!("{LIST_CHECKSUM}{checksum:08x}\n")
}

pub(crate) fn decode_list(bytes: &[u8]) -> Result<BTreeSet<String>, BlockError> {
    match decode_whole_list(bytes) {
        Some((LIST_VERSION, names)) => Ok(names),
        Some((major, _)) if major > LIST_VERSION => {
            Err(BlockError::NewerVersion { found: Version { major, minor: 0 } })
        }
        _ => Err(BlockError::Damaged),
    }
}

/// The version and, if it is known, the names. None if the bytes are damaged.
fn decode_whole_list(bytes: &[u8]) -> Option<(u16, BTreeSet<String>)> {
    let text = str::from_utf8(bytes).ok()?;
    let (checked, last) = text.split_at(text.strip_suffix('\n')?.rfind('\n')? + 1);
    let checksum = last.trim_end().strip_prefix(LIST_CHECKSUM)?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32c::crc32c(checked.as_bytes()) {
        return None;
    }
    let mut lines = checked.lines();
    let version = lines.next()?.strip_prefix(LIST_TITLE)?.parse().ok()?;
    Some((version, lines.map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests;
