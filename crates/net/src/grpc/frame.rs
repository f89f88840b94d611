//! The five bytes before each message: one flag (compressed or not) and the length, big endian.

use bytes::{Buf, BufMut, Bytes};

/// Length of the prefix in bytes.
pub const PREFIX_BYTES: usize = 5;

/// The whole body of a successful unary answer whose message is empty: a prefix that says so.
pub const EMPTY_MESSAGE: Bytes = Bytes::from_static(&[0; PREFIX_BYTES]);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the compressed flag is {flag}, not 0 or 1")]
    InvalidFlag { flag: u8 },
    #[error("the message of {len_bytes} bytes is larger than the limit of {limit_bytes} bytes")]
    TooLarge { len_bytes: usize, limit_bytes: usize },
    #[error("the body ends after {received_bytes} bytes of a message of {expected_bytes} bytes")]
    Truncated { received_bytes: usize, expected_bytes: usize },
    #[error("the body holds no message")]
    Missing,
    #[error("more bytes follow the one message of a unary call")]
    Trailing,
}

/// The content of a message's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub compressed: bool,
    pub len_bytes: usize,
}

impl Prefix {
    pub fn parse(bytes: [u8; PREFIX_BYTES]) -> Result<Self, FrameError> {
        let [flag, length @ ..] = bytes;
        if flag > 1 {
            return Err(FrameError::InvalidFlag { flag });
        }
        Ok(Prefix { compressed: flag == 1, len_bytes: u32::from_be_bytes(length) as usize })
    }

    /// `None` if the length does not fit into four bytes.
    pub fn encode(self) -> Option<[u8; PREFIX_BYTES]> {
        let [a, b, c, d] = u32::try_from(self.len_bytes).ok()?.to_be_bytes();
        Some([u8::from(self.compressed), a, b, c, d])
    }
}

/// One received message, still compressed where `compressed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub bytes: Bytes,
    pub compressed: bool,
}

/// Puts the one message of a unary call together from the chunks of a body, whatever their borders.
///
/// Feed chunks until the prefix is known, decide whether the message may come in, then feed the
/// rest. The buffer has exactly the length in the prefix, which the decision was about, and is
/// allocated with the first bytes of the message, never for the prefix alone.
#[derive(Debug, Default)]
pub struct MessageReader {
    limit_bytes: usize,
    head: [u8; PREFIX_BYTES],
    head_len: usize,
    prefix: Option<Prefix>,
    message: Vec<u8>,
}

impl MessageReader {
    pub fn new(limit_bytes: usize) -> Self {
        MessageReader { limit_bytes, ..MessageReader::default() }
    }

    /// Bytes of the message that have arrived.
    pub fn received_bytes(&self) -> usize {
        self.message.len()
    }

    /// Takes bytes of the prefix from the front of `chunk`, and the prefix with the last of them.
    pub fn feed_prefix(&mut self, chunk: &mut impl Buf) -> Result<Option<Prefix>, FrameError> {
        if self.prefix.is_none() {
            let wanted = chunk.remaining().min(PREFIX_BYTES - self.head_len);
            chunk.copy_to_slice(&mut self.head[self.head_len..self.head_len + wanted]);
            self.head_len += wanted;
            if self.head_len == PREFIX_BYTES {
                let prefix = Prefix::parse(self.head)?;
                let (len_bytes, limit_bytes) = (prefix.len_bytes, self.limit_bytes);
                if len_bytes > limit_bytes {
                    return Err(FrameError::TooLarge { len_bytes, limit_bytes });
                }
                self.prefix = Some(prefix);
            }
        }
        Ok(self.prefix)
    }

    /// Takes a chunk of the body: the rest of the prefix, then the message.
    pub fn feed(&mut self, mut chunk: impl Buf) -> Result<(), FrameError> {
        let Some(prefix) = self.feed_prefix(&mut chunk)? else { return Ok(()) };
        let missing = prefix.len_bytes - self.message.len();
        if chunk.remaining() > missing {
            return Err(FrameError::Trailing);
        }
        if chunk.has_remaining() {
            self.message.reserve_exact(missing);
        }
        self.message.put(chunk);
        Ok(())
    }

    pub fn finish(self) -> Result<Message, FrameError> {
        let received_bytes = self.message.len();
        match self.prefix {
            None if self.head_len == 0 => Err(FrameError::Missing),
            Some(Prefix { compressed, len_bytes }) if len_bytes == received_bytes => {
                Ok(Message { bytes: Bytes::from(self.message), compressed })
            }
            prefix => {
                let expected_bytes = prefix.map_or(0, |prefix| prefix.len_bytes);
                Err(FrameError::Truncated { received_bytes, expected_bytes })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_complete(reader: &MessageReader) -> bool {
        reader.prefix.is_some_and(|prefix| prefix.len_bytes == reader.message.len())
    }

    fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![flag];
        bytes.extend_from_slice(&u32::try_from(message.len()).expect("short").to_be_bytes());
        bytes.extend_from_slice(message);
        bytes
    }

    #[test]
    fn a_message_is_put_together_whatever_the_borders_of_the_chunks() {
        let message: Vec<u8> = (0..=255).collect();
        let body = framed(1, &message);
        for size in 1..=body.len() {
            let mut reader = MessageReader::new(1000);
            for chunk in body.chunks(size) {
                assert!(!is_complete(&reader));
                reader.feed(chunk).expect("is well-formed");
            }
            assert!(is_complete(&reader));
            let received = reader.finish().expect("is complete");
            assert_eq!(
                (received.bytes.as_ref(), received.compressed),
                (message.as_slice(), true),
                "chunks of {size}"
            );
        }
    }

    #[test]
    fn a_lying_prefix_allocates_nothing_and_is_refused() {
        let mut reader = MessageReader::new(1000);
        let refused = reader.feed(&[0, 0xff, 0xff, 0xff, 0xff, 1][..]);
        assert_eq!(
            refused,
            Err(FrameError::TooLarge { len_bytes: 0xffff_ffff, limit_bytes: 1000 })
        );

        let mut reader = MessageReader::new(1000);
        reader.feed(&[0, 0, 0, 3, 0xe8][..]).expect("is within the limit");
        assert_eq!(reader.message.capacity(), 0);
        let truncated = FrameError::Truncated { received_bytes: 0, expected_bytes: 1000 };
        assert_eq!(reader.finish(), Err(truncated));
    }

    /// Guarantee: a message takes exactly the length in its prefix, in whatever pieces it comes.
    #[test]
    fn a_message_takes_exactly_its_length() {
        let framed = framed(0, &[7; 1000]);
        for size in [6, 100, framed.len()] {
            let mut reader = MessageReader::new(1000);
            for chunk in framed.chunks(size) {
                reader.feed(chunk).expect("is well-formed");
                assert!([0, 1000].contains(&reader.message.capacity()));
            }
        }
    }

    #[test]
    fn what_is_not_exactly_one_message_is_refused() {
        let cases: [(&[u8], FrameError); 4] = [
            (&[], FrameError::Missing),
            (&[0, 0, 0], FrameError::Truncated { received_bytes: 0, expected_bytes: 0 }),
            (&[2, 0, 0, 0, 0], FrameError::InvalidFlag { flag: 2 }),
            (&[0, 0, 0, 0, 1, 7, 7], FrameError::Trailing),
        ];
        for (body, expected) in cases {
            let mut reader = MessageReader::new(1000);
            let result = reader.feed(body).and_then(|()| reader.finish().map(drop));
            assert_eq!(result, Err(expected), "{body:?}");
        }
    }

    #[test]
    fn an_empty_message_is_a_message() {
        let mut reader = MessageReader::new(0);
        reader.feed(EMPTY_MESSAGE).expect("is well-formed");
        assert!(is_complete(&reader));
        assert_eq!(reader.finish(), Ok(Message { bytes: Bytes::new(), compressed: false }));
    }

    #[test]
    fn prefixes_round_trip_and_refuse_what_does_not_fit() {
        for (compressed, len_bytes) in [(false, 0), (true, 190_000), (true, u32::MAX as usize)] {
            let prefix = Prefix { compressed, len_bytes };
            assert_eq!(Prefix::parse(prefix.encode().expect("fits")), Ok(prefix));
        }
        assert_eq!(Prefix { compressed: false, len_bytes: 1 << 32 }.encode(), None);
    }
}
