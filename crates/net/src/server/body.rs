//! Bodies: those that are read, with a bound on their time, and those that are answered.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::BodyTimeouts;
use super::scheduler::Arriving;
use super::unread::SharedWindow;

/// Why a body did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body came too slowly: {0}")]
    TooSlow(&'static str),
    #[error("the connection broke off within the body: {0}")]
    BrokenOff(hyper::Error),
}

/// The body of a request, of which nothing was read yet.
pub struct RequestBody {
    pub(super) incoming: Incoming,
    pub(super) arriving: Arriving,
}

/// Reads a body piece by piece. A slow peer is given up.
pub struct BodyReader {
    body: Incoming,
    /// Until its end was read.
    arriving: Option<Arriving>,
    window: SharedWindow,
    timeouts: BodyTimeouts,
    /// When the next piece has to be there.
    gap_end: Instant,
    deadline: Instant,
}

impl BodyReader {
    pub fn new(body: RequestBody, timeouts: BodyTimeouts) -> Self {
        let RequestBody { incoming, arriving } = body;
        let window = arriving.window();
        let now = Instant::now();
        let (gap_end, deadline) = (now + timeouts.gap, now + timeouts.total);
        BodyReader { body: incoming, arriving: Some(arriving), window, timeouts, gap_end, deadline }
    }

    /// The length that the peer announced, if it did.
    pub fn announced_len_bytes(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// What has to be asked before the body is left unread for long.
    pub fn window(&self) -> &SharedWindow {
        &self.window
    }

    /// Reads and forgets what is left, within bounds. For HTTP/1, where closing a connection on bytes that nobody has read
    /// resets it, and the client may lose the answer.
    pub async fn discard(mut self, limit_bytes: usize, time: std::time::Duration) {
        // It holds no memory: nobody has to wait for it.
        self.arriving = None;
        self.deadline = self.deadline.min(Instant::now() + time);
        let mut discarded = 0;
        while let Ok(Some(piece)) = self.next().await {
            discarded += piece.len();
            if discarded > limit_bytes {
                return;
            }
        }
    }

    /// The next piece; `None` at the end. Trailers are passed over.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            if let Some(piece) = self.next_before(self.deadline).await? {
                return Ok(piece);
            }
        }
    }

    /// The next piece, if it comes before this moment: as [`BodyReader::next`].
    pub async fn next_before(&mut self, moment: Instant) -> Result<Option<Option<Bytes>>, BodyError> {
        let until = moment.min(self.gap_end).min(self.deadline);
        loop {
            // The timer is registered only if the piece is not there yet.
            let frame = timeout_at(until, self.body.frame()).await;
            match frame {
                Err(_) if self.deadline <= until => {
                    return Err(BodyError::TooSlow("it took too long as a whole"));
                }
                Err(_) if self.gap_end <= until => return Err(BodyError::TooSlow("nothing came for too long")),
                Err(_) => return Ok(None),
                Ok(None) => {
                    self.arriving = None;
                    return Ok(Some(None));
                }
                Ok(Some(Err(error))) => return Err(BodyError::BrokenOff(error)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.gap_end = Instant::now() + self.timeouts.gap;
                        return Ok(Some(Some(data)));
                    }
                }
            }
        }
    }
}

/// The body of an answer: nothing, some bytes, or some bytes and trailers.
#[derive(Debug, Default)]
pub struct ReplyBody {
    data: Option<Bytes>,
    trailers: Option<Box<HeaderMap>>,
}

impl ReplyBody {
    pub const fn empty() -> Self {
        ReplyBody { data: None, trailers: None }
    }

    pub fn full(data: impl Into<Bytes>) -> Self {
        ReplyBody { data: Some(data.into()), trailers: None }
    }

    pub fn with_trailers(data: Bytes, trailers: HeaderMap) -> Self {
        ReplyBody { data: Some(data), trailers: Some(Box::new(trailers)) }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if let Some(data) = this.data.take().filter(|data| !data.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.as_ref().is_none_or(Bytes::is_empty) && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, Bytes::len) as u64)
    }
}
