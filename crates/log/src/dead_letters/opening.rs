//! Opening a store: its state, and the letters of earlier runs.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DeadLetters, Stored, directory_of, is_letter, state_path};
use crate::cursor_file::{CursorFile, UNREAD_OFFSETS};
use crate::disk::{Access, Disk, create_if_missing};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::{CursorState, FRAME_PREFIX_LEN_BYTES, Footer, SEGMENT_HEADER_LEN_BYTES};
use crate::segment::{
    Damage, Located, ReaderOptions, SegmentName, SegmentReader, cut_unused, list_segments,
    random_u64,
};

/// Problems that were found when a store was opened.
#[derive(Debug, Default)]
pub struct FoundLetters {
    /// Which letters were removed, and how many were dropped, is not known: all letters that are
    /// there count as left.
    pub is_state_lost: bool,
    /// Segments that the disk refuses to read, or of which no letter can be read. They are kept
    /// until they are the oldest when room is needed. Letters that were not read are not counted.
    pub unreadable: Vec<FileError>,
    /// Segments with damage between or in their letters. They are kept in the same way, damage and
    /// all: if it is the end of the newest one, a crash may have left it of an append.
    pub damaged: Vec<(PathBuf, Damage)>,
}

impl DeadLetters {
    /// Opens the store of a delivery below a log's directory, or creates it. It takes at most
    /// `limit_bytes` of disk: the next append removes the oldest letters beyond that.
    pub fn open(
        disk: Arc<dyn Disk>,
        log_directory: &Path,
        delivery: &str,
        limit_bytes: u64,
    ) -> Result<Self> {
        let directory = directory_of(log_directory, delivery);
        create_directory(&*disk, log_directory, &directory)?;
        let segments = list_segments(&*disk, &directory)?;
        let (state_file, state, is_lost) = open_state(&*disk, &directory, delivery)?;
        let is_state_lost = is_lost && !segments.is_empty();
        let found = FoundLetters { is_state_lost, ..FoundLetters::default() };
        let mut letters = DeadLetters {
            head: state.head.max(state.floor),
            disk,
            directory,
            limit_bytes,
            stored: VecDeque::new(),
            writer: None,
            state_file,
            state,
            uncounted: 0,
            found,
        };
        let mut segments = segments.into_iter().peekable();
        while let Some((name, len_bytes)) = segments.next() {
            let most = len_bytes / FRAME_PREFIX_LEN_BYTES as u64;
            let next = segments.peek().map(|(next, _)| next.first_offset);
            let end = next.unwrap_or(name.first_offset + most);
            let stored = match letters.look_into(name, end) {
                // It stays until it is the oldest when room is needed.
                Err(error @ (FileError::Io { .. } | FileError::NoSegment { .. })) => {
                    letters.found.unreadable.push(error);
                    let totals = Footer::default();
                    Some(Stored { name, len_bytes, totals, end, has_more: true, is_dropped: false })
                }
                looked => looked?,
            };
            letters.head = letters.head.max(stored.as_ref().map_or(0, |stored| stored.end));
            letters.stored.extend(stored);
        }
        // If a segment cannot be removed, this is tried again when room is needed.
        let _ = letters.remove_resolved();
        Ok(letters)
    }

    /// For a disk that has refused a slot of the state for long: makes the other slot count.
    /// Removed letters may come back, and no number is given twice.
    pub fn mend_state(disk: &dyn Disk, log_directory: &Path, delivery: &str) -> Result<()> {
        let path = state_path(&directory_of(log_directory, delivery));
        let (mut file, mut state, refused) = CursorFile::open_in_part(disk, &path)?;
        state.head = state.head.max(state.floor).saturating_add(UNREAD_OFFSETS);
        if refused.is_some() { file.store(disk, &state) } else { Ok(()) }
    }

    /// Totals of the letters of an earlier run's segment that can be read. Its unused space is cut
    /// off, which is zeros only. None if the segment does not count. If the disk refuses a part of
    /// it, `end` says where its numbers end.
    fn look_into(&mut self, name: SegmentName, end: u64) -> Result<Option<Stored>> {
        let path = self.directory.join(name.to_string());
        let file = self.disk.open(&path, Access::ReadWrite).at(&path, "cannot open")?;
        let mut reader = match SegmentReader::open(file.clone(), &path, ReaderOptions::default()) {
            Err(FileError::Unfinished { .. }) => {
                self.disk.remove_file(&path).at(&path, "cannot remove")?;
                return Ok(None);
            }
            reader => reader?,
        };
        let (footer, mut len_bytes) = (reader.info().footer, reader.info().len_bytes);
        let mut walked = Walked::default();
        if let Err(error) = walked.walk(&mut reader, self.state.floor) {
            self.found.unreadable.push(error);
            let totals = walked.totals;
            return Ok(Some(Stored {
                name,
                len_bytes,
                totals,
                end,
                has_more: true,
                is_dropped: false,
            }));
        }
        if footer.is_none() {
            if walked.end == SEGMENT_HEADER_LEN_BYTES {
                // A failed write may leave such a file.
                self.disk.remove_file(&path).at(&path, "cannot remove")?;
                return Ok(None);
            }
            len_bytes = cut_unused(&*file, walked.end).at(&path, "cannot truncate")?;
        }
        let missing = footer.map_or(0, |footer| footer.frames.saturating_sub(walked.seen));
        let mut damage = walked.damage;
        damage.regions += u64::from(damage.regions == 0 && missing > 0);
        let has_more = !damage.is_none();
        if has_more {
            self.found.damaged.push((path, damage));
        }
        let sealed_end = footer.filter(|footer| footer.frames > 0).map(|it| it.last_offset + 1);
        let end = sealed_end.unwrap_or(walked.next_number).max(name.first_offset);
        Ok(Some(Stored {
            name,
            len_bytes,
            totals: walked.totals,
            end,
            has_more,
            is_dropped: false,
        }))
    }
}

/// The letters of a segment, and what else is in it.
#[derive(Default)]
pub(super) struct Walked {
    /// Of the letters at or above the floor that can be read.
    pub(super) totals: Footer,
    pub(super) damage: Damage,
    /// Headers that can be read.
    seen: u64,
    /// No letter in the segment has a number from here on, whether it can be read or not.
    next_number: u64,
    /// Position behind the last byte that is not unused.
    end: u64,
}

impl Walked {
    pub(super) fn walk(&mut self, reader: &mut SegmentReader, floor: u64) -> Result<()> {
        self.end = reader.position();
        while let Some(Located { position, header }) = reader.next_frame()? {
            self.seen += 1;
            self.next_number = self.next_number.max(header.offset + 1);
            self.end = position + header.frame_len_bytes();
            let letter = reader.body()?;
            let is_letter = letter.as_ref().is_some_and(is_letter);
            if is_letter && header.offset >= floor {
                self.totals.count(header.offset, header.charge);
            }
            self.damage.frames += u64::from(letter.is_some() && !is_letter);
        }
        let damage_end = reader.damage_end();
        if damage_end > self.end {
            let most = (damage_end - self.end).div_ceil(FRAME_PREFIX_LEN_BYTES as u64);
            self.next_number =
                self.next_number.max(reader.info().header.first_offset).saturating_add(most);
            self.end = damage_end;
        }
        self.damage.add(reader.damage());
        Ok(())
    }
}

/// The store's state, and whether it is a new one.
fn open_state(
    disk: &dyn Disk,
    directory: &Path,
    delivery: &str,
) -> Result<(CursorFile, CursorState, bool)> {
    let path = state_path(directory);
    match CursorFile::open(disk, &path) {
        // Damage costs no letter: some that were removed come back.
        Err(FileError::DamagedCursor { .. }) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
        Ok((file, state)) => {
            // The process that created it may have been killed before it synced the directory.
            disk.sync_directory(directory).at(directory, "cannot sync the directory")?;
            return Ok((file, state, false));
        }
    }
    let log_id = u128::from(random_u64());
    let state = CursorState { id: 1, name: delivery.to_owned(), log_id, ..CursorState::default() };
    Ok((CursorFile::create(disk, &path, &state)?, state, true))
}

/// Creates a store's directory, durably, within a log's directory that is there.
fn create_directory(disk: &dyn Disk, log_directory: &Path, directory: &Path) -> Result<()> {
    let above = directory.parent().unwrap_or(log_directory);
    for (missing, within) in [(above, log_directory), (directory, above)] {
        create_if_missing(disk, missing).at(missing, "cannot create")?;
        disk.sync_directory(within).at(within, "cannot sync the directory")?;
    }
    Ok(())
}
