//! The bytes of a unit, which may be let go of while the unit waits.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluice_flow::Payload;
use sluice_otlp::{Detached, Encoding, PartRef};

use super::leased::Leased;
use crate::private_memory::{ChargedCopy, PrivateMemory};
use crate::steps::{self, Step, inflated};

/// The bytes of a unit.
#[derive(Clone)]
pub(crate) enum Content {
    Whole(Payload),
    /// A part is encoded each time that it is sent: waiting, it takes next to no memory.
    Part(Arc<PartRef>),
    /// Memory was short: the payload is made again from the frame, each time that it is needed.
    LetGo(Arc<LetGo>),
}

impl Content {
    /// # Errors
    /// What was let go of cannot be made again: a fault of ours.
    pub(crate) fn payload(&self) -> Result<Payload, String> {
        match self {
            Content::Whole(payload) => Ok(payload.clone()),
            Content::Part(part) => Ok(Payload::identity(part.bytes())),
            Content::LetGo(gone) => gone.make()?.1.payload(),
        }
    }

    /// Bytes that [`Content::payload`] takes beside the frame.
    pub(crate) fn copied_bytes(&self) -> usize {
        match self {
            Content::Part(part) if part.is_copied() => part.sizes.len_bytes,
            Content::LetGo(gone) => gone.needed_bytes,
            _ => 0,
        }
    }

    pub(super) fn dominant_header_bytes(&self) -> Option<usize> {
        match self {
            Content::Part(part) => part.dominant_header_bytes(),
            Content::LetGo(gone) => gone.dominant_header_bytes,
            Content::Whole(_) => None,
        }
    }

    pub(super) fn is_let_go(&self) -> bool {
        matches!(self, Content::LetGo(_))
    }

    /// Makes it again if it was let go of. Returns what its bytes are in.
    pub(super) fn restore(&mut self) -> Result<Option<Arc<ChargedCopy>>, String> {
        let Content::LetGo(gone) = self else { return Ok(None) };
        let (copy, content) = gone.make()?;
        *self = content;
        Ok(Some(copy))
    }
}

/// Makes the payload again that the steps make of a frame, or of a slice of it.
pub(crate) struct Recipe {
    leased: Arc<Leased>,
    slice: Option<Detached<PartRef>>,
    /// Those that did not run before the log.
    steps: Vec<Arc<Step>>,
    memory: Arc<PrivateMemory>,
    /// While one part uses what was made, others use it too.
    made: Mutex<Weak<ChargedCopy>>,
}

impl Recipe {
    pub(super) fn new(
        leased: Arc<Leased>,
        slice: Option<Detached<PartRef>>,
        steps: Vec<Arc<Step>>,
        memory: Arc<PrivateMemory>,
    ) -> Recipe {
        Recipe { leased, slice, steps, memory, made: Mutex::default() }
    }

    /// The same bytes are made each time, so that parts of them can be found again.
    pub(super) fn is_exact(&self) -> bool {
        steps::are_repeatable(&self.steps)
    }

    fn make(&self) -> Result<Arc<ChargedCopy>, String> {
        let mut made = self.made.lock();
        if let Some(copy) = made.upgrade() {
            return Ok(copy);
        }
        let frame = &self.leased.entry.frame;
        let (mut bytes, mut items) = (inflated(&frame.payload)?, frame.items);
        if let Some(slice) = &self.slice {
            let slice = slice.attached(&bytes).map_err(|error| error.to_string())?;
            (bytes, items) = (slice.bytes(), slice.sizes.items);
        }
        let bytes = steps::run_again(&self.steps, frame.signal, bytes, items, &frame.metadata)?;
        let copy = ChargedCopy::new(bytes, &self.memory);
        *made = Arc::downgrade(&copy);
        Ok(copy)
    }
}

pub(crate) struct LetGo {
    recipe: Arc<Recipe>,
    /// The part of what is made. None: all of it.
    part: Option<Detached<PartRef>>,
    /// Memory for making it, at most.
    needed_bytes: usize,
    dominant_header_bytes: Option<usize>,
}

impl LetGo {
    /// None if the content has no bytes of its own any more, or could not be found again in what
    /// is made.
    pub(super) fn new(content: &Content, recipe: &Arc<Recipe>) -> Option<LetGo> {
        let frame = &recipe.leased.entry.frame.payload;
        let inflated_bytes = match frame.encoding {
            Encoding::Identity => 0,
            _ => frame.uncompressed_len_bytes,
        };
        let dominant_header_bytes = content.dominant_header_bytes();
        let slice_bytes = recipe.slice.as_ref().map_or(0, Detached::len_bytes);
        let (part, made_bytes) = match content {
            Content::Whole(payload) => (None, payload.bytes.len()),
            Content::Part(_) if !recipe.is_exact() => return None,
            Content::Part(part) => {
                let detached = part.detached();
                // Its headers are copied twice.
                let made_bytes = detached.request_bytes() + 2 * part.sizes.len_bytes;
                (Some(detached), made_bytes)
            }
            Content::LetGo(_) => return None,
        };
        let needed_bytes = inflated_bytes + slice_bytes + made_bytes;
        Some(LetGo { recipe: recipe.clone(), part, needed_bytes, dominant_header_bytes })
    }

    /// The payload of the whole, to be kept as long as the content is used, and the content.
    ///
    /// # Errors
    /// It cannot be made again: a fault of ours.
    pub(super) fn make(&self) -> Result<(Arc<ChargedCopy>, Content), String> {
        let copy = self.recipe.make()?;
        let bytes = copy.bytes.clone();
        let content = match &self.part {
            None => Content::Whole(Payload::identity(bytes)),
            Some(part) => {
                let part = part.attached(&bytes).map_err(|error| error.to_string())?;
                Content::Part(Arc::new(part))
            }
        };
        Ok((copy, content))
    }
}
