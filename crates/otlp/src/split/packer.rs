//! Fills parts one after another, keeping the exact size that each would have when encoded.

use std::ops::Range;

use bytes::Bytes;

use super::{Part, SplitLimits};
use crate::wire::{varint_len, write_varint};

/// An element that was opened: its header goes into every part that contains something of it. The
/// outermost frame is the request.
struct Frame {
    tag: u8,
    header: Bytes,
    /// Bytes of the content in the current part: the header and the complete elements within.
    content_bytes: usize,
    /// The step that begins it in the current part, if something of it is there already.
    step: Option<usize>,
}

/// A step of writing the current part.
enum Step {
    /// Tag, length and header of an element.
    Begin { tag: u8, content_bytes: usize, header: Bytes },
    /// Bytes of the request, taken over as they are.
    Copy(Range<usize>),
}

pub(super) struct Packer<'a> {
    request: &'a Bytes,
    limits: SplitLimits,
    /// The open elements, outermost first; never empty once the request is opened.
    frames: Vec<Frame>,
    steps: Vec<Step>,
    items: u32,
    parts: Vec<Part>,
}

impl<'a> Packer<'a> {
    /// `header`: the request's own fields besides its resources.
    pub(super) fn new(request: &'a Bytes, header: Vec<u8>, limits: SplitLimits) -> Self {
        let root = Frame { tag: 0, content_bytes: header.len(), header: header.into(), step: None };
        let (steps, parts) = Default::default();
        Packer { request, limits, frames: vec![root], steps, items: 0, parts }
    }

    /// Whether an element of `len` bytes and `items` items can be added within the limits.
    pub(super) fn takes(&self, len: usize, items: u32) -> bool {
        self.items as usize + items as usize <= self.limits.max_items
            && self.len_with(len) <= self.limits.max_bytes
    }

    /// Length of the current part if `added` bytes came into the innermost element.
    fn len_with(&self, added: usize) -> usize {
        let mut len = added;
        for (depth, frame) in self.frames.iter().enumerate().rev() {
            len = len.saturating_add(frame.content_bytes);
            if depth > 0 {
                len = len.saturating_add(1 + varint_len(len));
            }
        }
        len
    }

    /// Opens an element within the innermost one. A part has it once something is added to it.
    pub(super) fn open(&mut self, tag: u8, header: Vec<u8>) {
        let content_bytes = header.len();
        self.frames.push(Frame { tag, content_bytes, header: header.into(), step: None });
    }

    pub(super) fn close(&mut self) {
        if let Some(frame) = self.frames.pop()
            && let Some(parent) = self.frames.last_mut()
        {
            conclude(&mut self.steps, &frame, parent);
        }
    }

    /// Adds bytes of the request, with tag and length, to the innermost element.
    pub(super) fn add(&mut self, range: Range<usize>, items: u32) {
        self.begin_frames();
        if let Some(frame) = self.frames.last_mut() {
            frame.content_bytes += range.len();
        }
        self.items += items;
        match self.steps.last_mut() {
            Some(Step::Copy(last)) if last.end == range.start => last.end = range.end,
            _ => self.steps.push(Step::Copy(range)),
        }
    }

    fn begin_frames(&mut self) {
        for frame in &mut self.frames {
            if frame.step.is_none() {
                frame.step = Some(self.steps.len());
                if frame.tag != 0 || !frame.header.is_empty() {
                    let header = frame.header.clone();
                    self.steps.push(Step::Begin { tag: frame.tag, content_bytes: 0, header });
                }
            }
        }
    }

    /// Concludes the current part, unless it is empty. The open elements go on in the next one.
    pub(super) fn next_part(&mut self) {
        if self.steps.is_empty() {
            return;
        }
        for depth in (1..self.frames.len()).rev() {
            let (outer, inner) = self.frames.split_at_mut(depth);
            conclude(&mut self.steps, &inner[0], &mut outer[depth - 1]);
        }
        let bytes = self.encode();
        self.parts.push(Part { bytes, items: self.items });
        self.items = 0;
        self.steps.clear();
        for frame in &mut self.frames {
            frame.content_bytes = frame.header.len();
            frame.step = None;
        }
    }

    fn encode(&self) -> Bytes {
        if let [Step::Copy(range)] = self.steps.as_slice() {
            return self.request.slice(range.clone());
        }
        let mut out = Vec::with_capacity(self.frames[0].content_bytes);
        for step in &self.steps {
            match step {
                Step::Begin { tag, content_bytes, header } => {
                    if *tag != 0 {
                        out.push(*tag);
                        write_varint(&mut out, *content_bytes as u64);
                    }
                    out.extend_from_slice(header);
                }
                Step::Copy(range) => out.extend_from_slice(&self.request[range.clone()]),
            }
        }
        debug_assert_eq!(out.len(), self.frames[0].content_bytes);
        out.into()
    }

    pub(super) fn finish(mut self) -> Vec<Part> {
        self.next_part();
        self.parts
    }
}

/// Writes down how long an element became, and adds it to the one around it.
fn conclude(steps: &mut [Step], frame: &Frame, parent: &mut Frame) {
    if let Some(step) = frame.step
        && let Step::Begin { content_bytes, .. } = &mut steps[step]
    {
        *content_bytes = frame.content_bytes;
        parent.content_bytes += 1 + varint_len(frame.content_bytes) + frame.content_bytes;
    }
}
