//! Memory for a request on its way from its source to the log.

use std::sync::Arc;

use super::Refusal;

pub trait MemoryPool: Send + Sync + 'static {
    /// Takes `bytes` more for a request that has `held_bytes` already. Refuses at once where there
    /// are none: a request that can never fit with [`Refusal::TooLarge`].
    fn take(&self, held_bytes: usize, bytes: usize) -> Result<(), Refusal>;

    fn give_back(&self, bytes: usize);

    /// The answer to a sender whose body makes no progress, if other requests need its memory now.
    fn asked_back(&self) -> Option<Refusal>;
}

/// A part of the memory for receiving, given back when dropped.
pub struct Permit {
    pool: Arc<dyn MemoryPool>,
    bytes: usize,
}

impl Permit {
    /// A permit for the first bytes of a request.
    pub fn take(pool: Arc<dyn MemoryPool>, bytes: usize) -> Result<Permit, Refusal> {
        pool.take(0, bytes)?;
        Ok(Permit { pool, bytes })
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asks for more, before it is used.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.pool.take(self.bytes, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Asks for as much more as it takes to hold `bytes` in all.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes > self.bytes { self.grow(bytes - self.bytes) } else { Ok(()) }
    }

    /// Gives back what is not held any more, down to `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            self.pool.give_back(self.bytes - bytes);
            self.bytes = bytes;
        }
    }

    /// The answer to the sender if its body makes no progress and other requests need this memory.
    pub fn asked_back(&self) -> Option<Refusal> {
        self.pool.asked_back()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pool.give_back(self.bytes);
    }
}
