//! A body on its way: its pieces, its limit, and how it is packed.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use sluice_net::server::BodyReader;
use tokio::time::Instant;

use super::refused::{Reason, Refused};

/// Interval of looks at a body's progress. Shorter than other requests wait for memory.
const INTERVAL: Duration = Duration::from_millis(500);
/// A body makes progress if this part of its memory arrives in an interval.
const PART: usize = 20;

/// Whether a body is packed with gzip.
///
/// # Errors
/// It is packed in another way.
pub(super) fn is_gzip(headers: &HeaderMap) -> Result<bool, Refused> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let name = values.next().map_or(&b""[..], |value| value.as_bytes().trim_ascii());
    if values.next().is_none() {
        if name.eq_ignore_ascii_case(b"gzip") {
            return Ok(true);
        }
        if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
            return Ok(false);
        }
    }
    let name: String = String::from_utf8_lossy(name).chars().take(40).collect();
    let message = format!("content-encoding `{name}` is not supported: there is gzip");
    Err(Refused::new(Reason::UnsupportedEncoding, message))
}

/// The answer of [`Body::next`].
pub(super) enum Next {
    Piece(Bytes),
    End,
    /// Nothing came: it is time to look at its progress.
    LookAgain,
}

pub(super) struct Body {
    /// `None`: all of it has come.
    reader: Option<BodyReader>,
    limit_bytes: Option<u64>,
    /// Bytes as sent.
    pub sent_bytes: u64,
    plain_bytes: u64,
    check_at: Instant,
    /// Bytes since the last look.
    arrived: usize,
}

impl Body {
    pub(super) fn new(reader: BodyReader, limit_bytes: Option<u64>) -> Body {
        let check_at = Instant::now() + INTERVAL;
        let reader = Some(reader);
        Body { reader, limit_bytes, sent_bytes: 0, plain_bytes: 0, check_at, arrived: 0 }
    }

    /// The length that the peer announced, if it did.
    pub(super) fn announced_bytes(&self) -> Option<u64> {
        self.reader.as_ref()?.announced_len_bytes()
    }

    /// The next piece, as far as one has come.
    ///
    /// # Errors
    /// The body broke off, is too slow, or is larger than the limit.
    pub(super) async fn next(&mut self) -> Result<Next, Refused> {
        let Some(reader) = &mut self.reader else { return Ok(Next::End) };
        let piece = reader.next(Some(self.check_at)).await?;
        match piece {
            Some(Some(piece)) => {
                self.arrived += piece.len();
                self.sent_bytes += piece.len() as u64;
                self.check(self.sent_bytes)?;
                Ok(Next::Piece(piece))
            }
            // From here on its request does not arrive any more, but waits.
            Some(None) => {
                self.reader = None;
                Ok(Next::End)
            }
            None => Ok(Next::LookAgain),
        }
    }

    /// Counts bytes that came out of it.
    ///
    /// # Errors
    /// There are more than the limit.
    pub(super) fn note_plain(&mut self, bytes: usize) -> Result<(), Refused> {
        self.plain_bytes += bytes as u64;
        self.check(self.plain_bytes)
    }

    pub(super) fn check(&self, bytes: u64) -> Result<(), Refused> {
        match self.limit_bytes {
            Some(limit) if bytes > limit => {
                Err(Refused::too_large(usize::try_from(limit).unwrap_or(usize::MAX)))
            }
            _ => Ok(()),
        }
    }

    /// Whether it made less progress than its memory is worth. Asked at each piece; answered in
    /// intervals.
    pub(super) fn is_slow(&mut self, memory_bytes: usize) -> bool {
        let now = Instant::now();
        if now < self.check_at {
            return false;
        }
        self.check_at = now + INTERVAL;
        std::mem::take(&mut self.arrived) < memory_bytes / PART
    }

    pub(super) fn set_waiting(&mut self, waits: bool) {
        if let Some(reader) = &mut self.reader {
            reader.set_waiting(waits);
        }
    }

    /// See [`BodyReader::note_unread`].
    pub(super) fn note_unread(&mut self, since: Instant) {
        let now = Instant::now();
        if let Some(reader) = &mut self.reader {
            reader.note_unread(now - since);
        }
        (self.check_at, self.arrived) = (now + INTERVAL, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gzip_is_unpacked() {
        let of = |values: &[&str]| {
            let values = values.iter().map(|value| value.parse().expect("a value"));
            is_gzip(&values.map(|value| (CONTENT_ENCODING, value)).collect())
        };
        for (values, expected) in [
            (&[][..], Ok(false)),
            (&[""], Ok(false)),
            (&["identity"], Ok(false)),
            (&[" GZIP"], Ok(true)),
            (&["gzip", "gzip"], Err(())),
            (&["zstd"], Err(())),
        ] {
            assert_eq!(of(values).map_err(|_| ()), expected, "{values:?}");
        }
    }
}
