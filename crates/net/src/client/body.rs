//! A request body that is sent from the chunks in which it lies, without copying them together.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, Request, Uri};

use crate::grpc::frame::PREFIX_BYTES;

/// Shared chunks, with an optional gRPC message prefix before them. Making one allocates nothing.
#[derive(Clone, Debug)]
pub struct ChunkedBuf {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix still to be read; they are its last ones.
    prefix_left: usize,
    chunks: Arc<[Bytes]>,
    index: usize,
    /// Bytes of the current chunk that were read.
    offset: usize,
    remaining: usize,
}

impl ChunkedBuf {
    pub fn new(chunks: Arc<[Bytes]>) -> ChunkedBuf {
        let remaining = chunks.iter().map(Bytes::len).sum();
        let prefix = [0; PREFIX_BYTES];
        let mut buf = ChunkedBuf { prefix, prefix_left: 0, chunks, index: 0, offset: 0, remaining };
        buf.skip_empty();
        buf
    }

    /// With the prefix of a message in front.
    pub fn prefixed(prefix: [u8; PREFIX_BYTES], chunks: Arc<[Bytes]>) -> ChunkedBuf {
        let buf = ChunkedBuf::new(chunks);
        let remaining = buf.remaining + PREFIX_BYTES;
        ChunkedBuf { prefix, prefix_left: PREFIX_BYTES, remaining, ..buf }
    }

    fn skip_empty(&mut self) {
        while self.chunks.get(self.index).is_some_and(|chunk| chunk.len() == self.offset) {
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
        if self.prefix_left > 0 {
            return &self.prefix[PREFIX_BYTES - self.prefix_left..];
        }
        self.chunks.get(self.index).map_or(&[], |chunk| &chunk[self.offset..])
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        if self.prefix_left > 0 && !slices.is_empty() {
            slices[0] = IoSlice::new(self.chunk());
            filled = 1;
        }
        let mut offset = self.offset;
        for chunk in self.chunks.iter().skip(self.index) {
            if filled == slices.len() {
                break;
            }
            if chunk.len() > offset {
                slices[filled] = IoSlice::new(&chunk[offset..]);
                filled += 1;
            }
            offset = 0;
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "advanced past the end of a body");
        self.remaining -= count;
        let of_prefix = count.min(self.prefix_left);
        self.prefix_left -= of_prefix;
        count -= of_prefix;
        while count > 0 {
            let step = count.min(self.chunks[self.index].len() - self.offset);
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
        /// Guarantee: what comes out is the prefix and the concatenation, nothing more or less.
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
            let mut buf = ChunkedBuf::prefixed(prefix, chunks(&parts));
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
