//! An open file of a disk that fails on demand.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::MutexGuard;
use sluice_log::disk::{Access, DiskFile};

use super::calls::{Call, Operation, input_output, no_space};
use super::faulty_disk::{FaultyDisk, State};
use super::names::Node;

pub(super) struct FaultyFile {
    pub(super) disk: FaultyDisk,
    pub(super) index: usize,
    pub(super) path: PathBuf,
    pub(super) access: Access,
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.generation == self.disk.generation {
            state.open_files -= 1;
        }
    }
}

impl FaultyFile {
    /// Begins a call that changes the file.
    fn change(&self, call: Call<'_>) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.call(call)?;
        if self.access == Access::Read {
            Err(io::ErrorKind::PermissionDenied.into())
        } else {
            Ok(state)
        }
    }

    fn sync(&self, operation: Operation) -> io::Result<()> {
        let delay = self.disk.state.lock().sync_delay;
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let (mut state, begun) = self.disk.begin(Call::new(operation, &self.path));
        let state = &mut *state;
        let is_alive = state.generation == self.disk.generation;
        let file = &mut state.files[self.index];
        match &begun {
            Ok(()) if !state.ignores_syncs => file.sync(),
            Err(_) if is_alive => file.fail_sync(&mut state.random),
            _ => {}
        }
        begun
    }
}

impl DiskFile for FaultyFile {
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let call = Call::new(Operation::Write, &self.path).at(position, bytes.len());
        let mut state = self.change(call)?;
        let mut len = state.part_of(bytes.len())?;
        while len > 0
            && !state.has_room(
                self.index,
                state.files[self.index].used_after_write(position, position + len as u64),
            )
        {
            // A disk that is nearly full writes the whole pages that fit.
            len = len.saturating_sub(4096);
        }
        if len == 0 && !bytes.is_empty() {
            return Err(no_space());
        }
        state.bad_pages.write(self.index, position, len)?;
        state.files[self.index].write(&bytes[..len], position);
        state.counts.written_bytes += len as u64;
        Ok(len)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let delay = self.disk.state.lock().read_delay;
        if !delay.is_zero() {
            self.disk.state.lock().delayed_reads += 1;
            std::thread::sleep(delay);
        }
        let gate = self.disk.state.lock().read_gate.clone();
        if let Some(gate) = gate {
            gate(&self.path);
        }
        let call = Call::new(Operation::Read, &self.path).at(position, buffer.len());
        let mut state = self.disk.call(call)?;
        let len = state.part_of(buffer.len())?;
        let len = state.bad_pages.readable_len(self.index, position, len)?;
        if let Some((name_ends, bad)) = &state.unreadable
            && self.path.to_string_lossy().ends_with(name_ends.as_str())
            && position < bad.end
            && position + len as u64 > bad.start
        {
            return Err(input_output());
        }
        let read = state.files[self.index].read(&mut buffer[..len], position);
        state.counts.read_bytes += read as u64;
        Ok(read)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(Operation::SyncData)
    }

    fn allocate(&self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.change(Call::new(Operation::Allocate, &self.path))?;
        if !state.has_room(self.index, state.files[self.index].used_after_allocation(len_bytes)) {
            return Err(no_space());
        }
        state.files[self.index].allocate(len_bytes);
        Ok(())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let state = self.disk.call(Call::new(Operation::Linked, &self.path))?;
        Ok(state.names.get(path) == Some(&Node::File(self.index)))
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.change(Call::new(Operation::SetLen, &self.path))?;
        state.bad_pages.cut(self.index, len_bytes);
        state.files[self.index].set_len(len_bytes);
        Ok(())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        let state = self.disk.call(Call::new(Operation::Len, &self.path))?;
        Ok(state.files[self.index].len_bytes())
    }
}
