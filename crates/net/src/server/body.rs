//! Bodies: those that are read, with a bound on their time, and those that are answered.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};

use super::BodyTimeouts;
use super::activity::InFlight;
use super::scheduler::Arriving;
use super::unread::SharedWindow;

/// How much of a body that no handler wants is drained, and for how long.
const DRAINED_MAX_BYTES: usize = 16 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Why a body did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body came too slowly: {0}")]
    TooSlow(&'static str),
    #[error("the connection broke off within the body: {0}")]
    BrokenOff(hyper::Error),
}

/// The body of a request, unread. The rest of a body that its handler drops is drained beside the
/// answer, within bounds.
pub struct RequestBody(Rest);

impl RequestBody {
    /// `is_drained`: the peer sends the body whatever the answer is.
    pub(super) fn new(incoming: Incoming, arriving: Arriving, is_drained: bool) -> Self {
        let (window, has_ended) = (arriving.window(), false);
        RequestBody(Rest {
            incoming: Some(incoming),
            arriving: Some(arriving),
            window,
            has_ended,
            is_drained,
        })
    }
}

/// What of a body is still to be read. Dropped before its end, it is drained: HTTP/2 ends a
/// connection for data of streams that were closed early, and HTTP/1 can only close one that has
/// unread data, which may cost the client its answer.
struct Rest {
    /// There until it is dropped.
    incoming: Option<Incoming>,
    /// Until the end was read.
    arriving: Option<Arriving>,
    window: SharedWindow,
    has_ended: bool,
    is_drained: bool,
}

impl Rest {
    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        // To read is to ask for the body: from here on the peer sends it.
        self.is_drained = true;
        self.incoming.as_mut()?.frame().await
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.arriving = None;
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if self.has_ended || !self.is_drained {
            return;
        }
        // A drained body holds no memory: no answer has to wait for it.
        self.arriving = None;
        let incoming = self.incoming.take().filter(|incoming| !incoming.is_end_stream());
        if let (Some(incoming), Ok(runtime)) = (incoming, Handle::try_current()) {
            runtime.spawn(drain(incoming));
        }
    }
}

/// Reads a body and forgets it, within bounds.
async fn drain(mut incoming: Incoming) {
    let all = async {
        let mut drained_bytes = 0;
        while let Some(Ok(frame)) = incoming.frame().await {
            drained_bytes += frame.data_ref().map_or(0, Bytes::len);
            if drained_bytes > DRAINED_MAX_BYTES {
                return;
            }
        }
    };
    // What comes later is the peer's loss.
    let _ = timeout(DRAIN_TIME, all).await;
}

/// Reads a body piece by piece. A slow peer is given up.
pub struct BodyReader {
    rest: Rest,
    timeouts: BodyTimeouts,
    /// When the next piece has to be there.
    gap_end: Instant,
    deadline: Instant,
}

impl BodyReader {
    pub fn new(body: RequestBody, timeouts: BodyTimeouts) -> Self {
        let now = Instant::now();
        let (gap_end, deadline) = (now + timeouts.gap, now + timeouts.total);
        BodyReader { rest: body.0, timeouts, gap_end, deadline }
    }

    /// The length that the peer announced, if it did.
    pub fn announced_len_bytes(&self) -> Option<u64> {
        self.rest.incoming.as_ref()?.size_hint().exact()
    }

    /// What has to be asked before the body is left unread for long.
    pub fn window(&self) -> &SharedWindow {
        &self.rest.window
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
    pub async fn next_before(
        &mut self,
        moment: Instant,
    ) -> Result<Option<Option<Bytes>>, BodyError> {
        let until = moment.min(self.gap_end).min(self.deadline);
        loop {
            // The timer is registered only if the piece is not there yet.
            let frame = timeout_at(until, self.rest.frame()).await;
            match frame {
                Err(_) if self.deadline <= until => {
                    return Err(BodyError::TooSlow("it took too long as a whole"));
                }
                Err(_) if self.gap_end <= until => {
                    return Err(BodyError::TooSlow("nothing came for too long"));
                }
                Err(_) => return Ok(None),
                Ok(None) => {
                    self.rest.end();
                    return Ok(Some(None));
                }
                Ok(Some(Err(error))) => {
                    self.rest.end();
                    return Err(BodyError::BrokenOff(error));
                }
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

/// A body while it is being sent, with what is charged for it until it is.
pub(super) struct Answer {
    pub(super) body: ReplyBody,
    pub(super) _in_flight: InFlight,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = &mut self.get_mut().body;
        if let Some(data) = body.data.take().filter(|data| !data.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        Poll::Ready(body.trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.data.as_ref().is_none_or(Bytes::is_empty) && self.body.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.body.data.as_ref().map_or(0, Bytes::len) as u64)
    }
}
