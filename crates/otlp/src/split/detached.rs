//! Places in a request without its bytes: they take next to no memory while nothing is done with
//! them.

use bytes::Bytes;

use super::Halving;
use super::parts::{Level, PartRef, Parts, Position};
use crate::wire::{Result, malformed};

/// A part, or the parts that are left, of a request whose bytes are elsewhere, or are made again.
#[derive(Clone)]
pub struct Detached<T> {
    places: T,
    request_bytes: usize,
}

impl PartRef {
    pub fn detached(&self) -> Detached<PartRef> {
        let (request, start) = (Bytes::new(), self.start.detached());
        let begun_bytes = self.begun_bytes.clone();
        let places = PartRef { request, start, begun_bytes, copies: self.copies.clone(), ..*self };
        Detached { places, request_bytes: self.request.len() }
    }
}

impl Detached<PartRef> {
    /// # Errors
    /// [`crate::Malformed`] if the request is not the one that the part is of.
    pub fn attached(&self, request: &Bytes) -> Result<PartRef> {
        self.check(request)?;
        let start = self.places.start.attached(request)?;
        Ok(PartRef { request: request.clone(), start, ..self.places.clone() })
    }

    /// Length of the part once it is encoded.
    pub fn len_bytes(&self) -> usize {
        self.places.sizes.len_bytes
    }
}

impl Parts {
    pub fn detached(&self) -> Detached<Parts> {
        let (request, position) = (Bytes::new(), self.position.detached());
        let places = Parts { request, position, ..*self };
        Detached { places, request_bytes: self.request.len() }
    }
}

impl Detached<Parts> {
    /// # Errors
    /// [`crate::Malformed`] if the request is not the one that the parts are of.
    pub fn attached(&self, request: &Bytes) -> Result<Parts> {
        self.check(request)?;
        let position = self.places.position.attached(request)?;
        Ok(Parts { request: request.clone(), position, ..self.places })
    }

    /// True if no part is left.
    pub fn is_over(&self) -> bool {
        self.places.is_over()
    }
}

impl Halving {
    pub fn detached(&self) -> Detached<Halving> {
        let request_bytes = self.stack.first().map_or(0, |parts| parts.request.len());
        let places = Halving { stack: self.stack.iter().map(|it| it.detached().places).collect() };
        Detached { places, request_bytes }
    }
}

impl Detached<Halving> {
    /// # Errors
    /// [`crate::Malformed`] if the request is not the one that the parts are of.
    pub fn attached(&self, request: &Bytes) -> Result<Halving> {
        let attached = |parts: &Parts| {
            let request_bytes = self.request_bytes;
            Detached { places: parts.clone(), request_bytes }.attached(request)
        };
        let stack = self.places.stack.iter().map(attached).collect::<Result<_>>()?;
        Ok(Halving { stack })
    }

    /// True if no part is left.
    pub fn is_over(&self) -> bool {
        self.places.is_over()
    }
}

impl<T> Detached<T> {
    /// Length of the request that it is of.
    pub fn request_bytes(&self) -> usize {
        self.request_bytes
    }

    fn check(&self, request: &Bytes) -> Result<()> {
        match request.len() == self.request_bytes {
            true => Ok(()),
            false => {
                Err(malformed(0, "the request has another length than the one it is a part of"))
            }
        }
    }
}

impl Position {
    fn detached(&self) -> Position {
        let without = |level: &Level| Level { header: Bytes::new(), ..level.clone() };
        Position { levels: self.levels.iter().map(without).collect(), next: self.next.clone() }
    }

    fn attached(&self, request: &Bytes) -> Result<Position> {
        let with = |level: &Level| {
            let header = Bytes::from(level.node.header(request)?);
            Ok(Level { header, ..level.clone() })
        };
        let levels = self.levels.iter().map(with).collect::<Result<_>>()?;
        Ok(Position { levels, next: self.next.clone() })
    }
}
