//! Bodies: those that are read, with a bound on their time, and those that are answered.
//! Those of refused requests are drained: `docs/decisions/035-drained-bodies.md` has the reasons.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout_at};

use super::BodyTimeouts;
use super::activity::{Activity, Counted, InFlight};
use super::scheduler::Arriving;

/// Limits on draining a body that no handler wants: bytes and time.
const DRAINED_MAX_BYTES: usize = 16 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// A body of which less than this comes within this time has stalled: it has to go if other
/// requests need its memory. A byte now and then costs its sender nothing.
const PROGRESS_LEAST_BYTES: usize = 1 << 10;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// Requests that give way to others look in this interval whether they have to.
const GIVE_WAY_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body came too slowly: {0}")]
    TooSlow(&'static str),
    #[error("the body makes no progress, and the memory for connections is spent")]
    Stalled,
    #[error("the connection broke off within the body: {0}")]
    BrokenOff(hyper::Error),
}

/// The body of a request, unread. The rest of a body that its handler drops is drained beside the
/// answer, within bounds: HTTP/2 ends a connection for data of streams that were closed early, and
/// HTTP/1 can only close one that has unread data, which may cost the client its answer.
pub struct RequestBody {
    /// `None`: nothing more is read of it.
    incoming: Option<Incoming>,
    /// Counts the request as arriving until its body is dropped, even if it was read while it
    /// waited.
    arriving: Option<Arriving>,
    activity: Arc<Activity>,
    is_drained: bool,
}

impl RequestBody {
    /// `is_drained`: the peer sends the body whatever the answer is.
    pub(super) fn new(
        incoming: Incoming,
        arriving: Arriving,
        activity: &Arc<Activity>,
        is_drained: bool,
    ) -> Self {
        let (incoming, arriving) = (Some(incoming), Some(arriving));
        RequestBody { incoming, arriving, activity: Arc::clone(activity), is_drained }
    }

    /// Whether its connection waits for its slice.
    #[cfg(test)]
    pub(super) fn set_queued(&self, is_queued: bool) {
        self.activity.entry.set_queued(is_queued);
    }

    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        // To read is to ask for the body: from here on the peer sends it.
        self.is_drained = true;
        let frame = self.incoming.as_mut()?.frame().await;
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        if let (Some(arriving), Some(data)) = (&mut self.arriving, data) {
            arriving.note_came(data.len());
        }
        frame
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        // A drained body occupies no memory: no answer has to wait for it.
        self.arriving = None;
        let incoming = self.incoming.take().filter(|incoming| !incoming.is_end_stream());
        if incoming.is_some()
            && self.is_drained
            && let Ok(runtime) = Handle::try_current()
        {
            let activity = Arc::clone(&self.activity);
            let stream = activity.keep_stream();
            let rest = RequestBody { incoming, arriving: None, activity, is_drained: false };
            runtime.spawn(drain(rest, stream));
        }
    }
}

async fn drain(body: RequestBody, _stream: Counted) {
    let mut body = BodyReader::new(body, BodyTimeouts { gap: DRAIN_TIME, total: DRAIN_TIME });
    let mut drained_bytes = 0;
    while drained_bytes <= DRAINED_MAX_BYTES
        && let Ok(Some(Some(data))) = body.next(None).await
    {
        drained_bytes += data.len();
    }
    // Bytes that come later are the peer's loss.
    body.body.incoming = None;
}

/// Reads a body piece by piece. A slow peer is given up.
pub struct BodyReader {
    body: RequestBody,
    timeouts: BodyTimeouts,
    /// When the next piece has to be there.
    gap_end: Instant,
    deadline: Instant,
    /// When its progress is looked at next, and the bytes that came since the last look.
    check_at: Instant,
    came_bytes: usize,
    stalled: Option<Counted>,
    /// Set while its request waits.
    waits: Option<Counted>,
}

impl BodyReader {
    pub fn new(body: RequestBody, timeouts: BodyTimeouts) -> Self {
        let now = Instant::now();
        let (gap_end, deadline) = (now + timeouts.gap, now + timeouts.total);
        let check_at = now + PROGRESS_INTERVAL;
        BodyReader {
            body,
            timeouts,
            gap_end,
            deadline,
            check_at,
            came_bytes: 0,
            stalled: None,
            waits: None,
        }
    }

    /// The length that the peer announced, if it did.
    pub fn announced_len_bytes(&self) -> Option<u64> {
        self.body.incoming.as_ref()?.size_hint().exact()
    }

    /// Whether the peer sends the body only once it is read.
    pub fn comes_when_asked(&self) -> bool {
        !self.body.is_drained
    }

    /// Ready while others need the memory that its connection holds.
    pub fn until_memory_is_short(&self) -> impl Future<Output = ()> + Send + use<> {
        let activity = Arc::clone(&self.body.activity);
        async move {
            while !activity.is_memory_short() {
                sleep(GIVE_WAY_INTERVAL).await;
            }
        }
    }

    /// Whether its request waits from now on: a waiting request is no progress of its connection.
    pub fn set_waiting(&mut self, waits: bool) {
        self.waits = waits.then(|| self.body.activity.note_waits());
    }

    /// The body was not read for this long, for no fault of its peer: it has as much more time.
    pub fn note_unread(&mut self, for_long: Duration) {
        self.gap_end += for_long;
        self.deadline += for_long;
        self.check_at = Instant::now() + PROGRESS_INTERVAL;
        self.came_bytes = 0;
    }

    /// The next piece; `Some(None)` at the end, `None` if it does not come before the moment that
    /// is given. Trailers are passed over.
    pub async fn next(
        &mut self,
        before: Option<Instant>,
    ) -> Result<Option<Option<Bytes>>, BodyError> {
        let moment = before.unwrap_or(self.deadline);
        loop {
            let until = moment.min(self.gap_end).min(self.deadline).min(self.check_at);
            // The timer is registered only if the piece is not there yet.
            match timeout_at(until, self.body.frame()).await {
                Err(_) if self.deadline <= until => {
                    return Err(BodyError::TooSlow("it took too long as a whole"));
                }
                Err(_) if self.gap_end <= until && !self.body.activity.entry.is_queued() => {
                    return Err(BodyError::TooSlow("nothing came for too long"));
                }
                Err(_) if moment <= until => return Ok(None),
                Err(_) => self.check_progress()?,
                Ok(None) => {
                    self.body.incoming = None;
                    return Ok(Some(None));
                }
                Ok(Some(Err(error))) => {
                    self.body.incoming = None;
                    return Err(BodyError::BrokenOff(error));
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.came_bytes += data.len();
                        self.gap_end = Instant::now() + self.timeouts.gap;
                        return Ok(Some(Some(data)));
                    }
                }
            }
        }
    }

    fn check_progress(&mut self) -> Result<(), BodyError> {
        self.check_at = Instant::now() + PROGRESS_INTERVAL;
        self.stalled = None;
        // It may have come, and waits in the socket for its connection's slice.
        if self.body.activity.entry.is_queued() {
            self.gap_end = self.gap_end.max(Instant::now() + self.timeouts.gap);
            self.came_bytes = 0;
            return Ok(());
        }
        if std::mem::take(&mut self.came_bytes) < PROGRESS_LEAST_BYTES {
            let Some(stalled) = self.body.activity.note_stalled() else {
                // To drain it would keep its memory. Hardly any of it is on its way.
                self.body.incoming = None;
                return Err(BodyError::Stalled);
            };
            // A body that is drained belongs to no request in flight.
            let counts = self.body.arriving.is_some() && self.waits.is_none();
            self.stalled = counts.then_some(stalled);
        }
        Ok(())
    }
}

/// The body of an answer: nothing, some bytes, or some bytes and trailers.
#[derive(Debug, Default)]
pub struct ReplyBody {
    data: Bytes,
    trailers: Option<Box<HeaderMap>>,
}

impl ReplyBody {
    pub fn with_trailers(data: Bytes, trailers: HeaderMap) -> Self {
        ReplyBody { data, trailers: Some(Box::new(trailers)) }
    }
}

/// An answer without trailers.
pub fn reply(
    status: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Bytes>,
) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody { data: body.into(), trailers: None });
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// A body while it is being sent. Its memory is charged until then.
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
        let data = std::mem::take(&mut body.data);
        if !data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        Poll::Ready(body.trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.data.is_empty() && self.body.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.body.data.len() as u64)
    }
}
