//! A request body that is sent from the chunks in which it lies, without copying them together.

use std::io::IoSlice;
use std::iter;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, Request, Uri};

use crate::grpc::frame::PREFIX_BYTES;

/// Shared chunks, with an optional gRPC message prefix before them. Making one allocates nothing.
#[derive(Clone, Debug)]
pub struct ChunkedBuf {
    prefix: Option<[u8; PREFIX_BYTES]>,
    chunks: Arc<[Bytes]>,
    /// Index of the current part: the prefix, then each chunk.
    index: usize,
    /// Bytes of the current part that were read.
    offset: usize,
    remaining: usize,
}

impl ChunkedBuf {
    pub fn new(prefix: Option<[u8; PREFIX_BYTES]>, chunks: Arc<[Bytes]>) -> ChunkedBuf {
        let prefix_bytes = prefix.map_or(0, |prefix| prefix.len());
        let remaining = prefix_bytes + chunks.iter().map(Bytes::len).sum::<usize>();
        let mut buf = ChunkedBuf { prefix, chunks, index: 0, offset: 0, remaining };
        buf.skip_empty();
        buf
    }

    fn part(&self, index: usize) -> Option<&[u8]> {
        match index.checked_sub(1) {
            None => Some(self.prefix.as_slice().as_flattened()),
            Some(index) => self.chunks.get(index).map(Bytes::as_ref),
        }
    }

    fn skip_empty(&mut self) {
        while self.part(self.index).is_some_and(|part| part.len() == self.offset) {
            self.index += 1;
            self.offset = 0;
        }
    }
}

pub(super) fn request(
    method: Method,
    uri: &Uri,
    headers: HeaderMap,
    body: ChunkedBuf,
) -> Request<ChunkedBuf> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = headers;
    request
}

impl Buf for ChunkedBuf {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.part(self.index).map_or(&[], |part| &part[self.offset..])
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let later = (self.index + 1..).map_while(|index| self.part(index));
        let parts = iter::once(self.chunk()).chain(later).filter(|part| !part.is_empty());
        let filled = slices.iter_mut().zip(parts).map(|(slice, part)| *slice = IoSlice::new(part));
        filled.count()
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "advanced past the end of a body");
        self.remaining -= count;
        while count > 0 {
            let step = count.min(self.chunk().len());
            self.offset += step;
            count -= step;
            self.skip_empty();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunks(parts: &[Vec<u8>]) -> Arc<[Bytes]> {
        parts.iter().map(|part| Bytes::from(part.clone())).collect()
    }

    proptest! {
        /// Scenario: any chunks, empty ones among them, read in any steps, as slices or vectored.
        /// Guarantee: exactly the prefix and the concatenation come out.
        #[test]
        fn every_way_of_reading_gives_the_same_bytes(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..8),
            steps in proptest::collection::vec(1usize..12, 1..200),
            compressed in any::<bool>(),
        ) {
            let flat = parts.concat();
            let mut expected = vec![u8::from(compressed)];
            expected.extend((flat.len() as u32).to_be_bytes());
            expected.extend(&flat);

            let prefix = *expected.first_chunk().expect("begins with it");
            let mut buf = ChunkedBuf::new(Some(prefix), chunks(&parts));
            let mut read = Vec::new();
            for step in steps.iter().cycle() {
                let mut slices = [IoSlice::new(&[]); 16];
                let filled = buf.chunks_vectored(&mut slices);
                let vectored: usize = slices[..filled].iter().map(|slice| slice.len()).sum();
                prop_assert_eq!(vectored, buf.remaining());
                if !buf.has_remaining() {
                    break;
                }
                let step = (*step).min(buf.chunk().len());
                prop_assert!(step > 0);
                read.extend_from_slice(&buf.chunk()[..step]);
                buf.advance(step);
            }
            prop_assert_eq!(read, expected);
        }
    }
}
