//! One connection from its handshake to its end.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::EXPECT;
use http::{HeaderMap, Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, InFlight};
use super::body::Answer;
use super::budget::STREAM_BYTES;
use super::counters::ServerCounters;
use super::header_blocks::{FIELD_BYTES, HEADERS_MAX_BYTES, HeaderBlocks};
use super::header_timer::HeaderTimer;
use super::transport::{ScheduledSocket, Socket, Transport};
use super::{ConnectionBudget, Handler, Protocols, ReplyBody, RequestBody, ServerOptions, Serving};
use crate::grpc::status::GRPC_STATUS;

/// The client's part of an HTTP/2 handshake: the preface and an empty SETTINGS frame.
const HANDSHAKE_BYTES: u64 = 24 + 9;
/// The client's part of a TLS handshake, with its certificates.
const TLS_HANDSHAKE_MAX_BYTES: u64 = 32 << 10;

/// Streams that a peer may have reset before they were looked at.
const PENDING_RESETS_MAX: usize = 64;
/// Places for headers that [`STREAM_BYTES`] covers.
const STREAM_FIELDS: usize = 16;
/// A further value of a name: 72 bytes in a list that grows by doubling.
const REPEATED_FIELD_BYTES: usize = 144;
/// Streams of one connection that may end for their peer's mistakes. It is counted over the whole
/// life of a connection, which for a proxy's is long.
const LOCAL_RESETS_MAX: usize = 1024;

/// Pause between two warnings of a port that TLS handshakes fail.
const TLS_WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// State that all connections of a port share.
pub(super) struct Context<H> {
    pub serving: Serving,
    pub handler: H,
    /// When the last failed TLS handshake was warned of.
    pub tls_warned_at: Mutex<Option<Instant>>,
    /// Close them whatever they do.
    pub cut_off: CancellationToken,
}

/// The protocol of a port's connections.
pub(super) trait Speak: Send + Sync + Sized + 'static {
    /// Serves a connection from its first byte behind TLS to its end.
    fn speak(
        stream: Transport,
        activity: Arc<Activity>,
        peer: Option<SocketAddr>,
        context: &Arc<Context<Self>>,
    ) -> impl Future<Output = ()> + Send;
}

/// HTTP, answered by a handler.
pub(super) struct Http<H>(pub(super) H);

impl<H: Handler> Speak for Http<H> {
    async fn speak(
        stream: Transport,
        activity: Arc<Activity>,
        peer: Option<SocketAddr>,
        context: &Arc<Context<Self>>,
    ) {
        drive(inspected(stream, Arc::clone(&activity)), activity, peer, context).await;
    }
}

pub(super) async fn serve_connection<S: Speak>(
    socket: Socket,
    peer: Option<SocketAddr>,
    activity: Arc<Activity>,
    context: Arc<Context<S>>,
) {
    let Serving { options, tls, counters, resources, shutdown } = &context.serving;
    let scheduler = &resources.scheduler;
    let mut socket = ScheduledSocket::new(socket, scheduler, &activity, options.write_timeout);
    let stream = match tls {
        None => Either::Left(socket),
        Some(tls) => {
            socket.left_bytes = TLS_HANDSHAKE_MAX_BYTES;
            let handshake = TlsAcceptor::from(tls.current()).accept(socket);
            let handshake = within(options.handshake_timeout, &activity, handshake);
            let handshake = tokio::select! {
                () = shutdown.cancelled() => return,
                () = activity.evicted.notified() => {
                    ServerCounters::count(&counters.evicted);
                    return;
                }
                handshake = handshake => handshake,
            };
            match handshake {
                Ok(Ok(mut stream)) => {
                    stream.get_mut().0.left_bytes = u64::MAX;
                    Either::Right(Box::new(stream))
                }
                Ok(Err(error)) => {
                    ServerCounters::count(&counters.tls_failures);
                    report_failed_handshake(&context.tls_warned_at, peer, &error);
                    return;
                }
                Err(TookTooLong) => {
                    ServerCounters::count(&counters.tls_failures);
                    tracing::debug!(?peer, "a TLS handshake took too long");
                    return;
                }
            }
        }
    };
    S::speak(stream, activity, peer, &context).await;
}

struct TookTooLong;

/// The result of a handshake. Time for which its bytes wait for the connection's slice is ours.
async fn within<T>(
    limit: Duration,
    activity: &Activity,
    handshake: impl Future<Output = T>,
) -> Result<T, TookTooLong> {
    let mut handshake = pin!(handshake);
    loop {
        match timeout(limit, handshake.as_mut()).await {
            Ok(result) => return Ok(result),
            Err(_) if activity.entry.is_queued() => {}
            Err(_) => return Err(TookTooLong),
        }
    }
}

/// Header blocks are looked at on their way. A function of its own, so that the types of hyper and
/// h2 are the same for all handlers.
fn inspected(
    stream: Transport,
    activity: Arc<Activity>,
) -> InspectReader<Transport, impl FnMut(&[u8]) + Send + 'static> {
    let mut headers = HeaderBlocks::default();
    InspectReader::new(stream, move |bytes: &[u8]| activity.note_read(bytes, &mut headers))
}

/// A warning if one side refused the other. Probes that only connect are not worth one.
fn report_failed_handshake(
    warned_at: &Mutex<Option<Instant>>,
    peer: Option<SocketAddr>,
    error: &io::Error,
) {
    let is_refusal = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
    if is_refusal && is_due(&mut warned_at.lock(), TLS_WARNING_INTERVAL) {
        tracing::warn!(
            ?peer, %error,
            "a TLS handshake failed (such warnings are at least {TLS_WARNING_INTERVAL:?} apart)"
        );
    } else {
        tracing::debug!(?peer, %error, "a TLS handshake failed");
    }
}

pub(super) fn is_due(warned_at: &mut Option<Instant>, interval: Duration) -> bool {
    let now = Instant::now();
    let is_due = warned_at.is_none_or(|at| now - at >= interval);
    if is_due {
        *warned_at = Some(now);
    }
    is_due
}

async fn drive<H: Handler>(
    transport: InspectReader<Transport, impl FnMut(&[u8]) + Send + 'static>,
    activity: Arc<Activity>,
    peer: Option<SocketAddr>,
    context: &Arc<Context<Http<H>>>,
) {
    let Serving { options, counters, resources, shutdown, .. } = &context.serving;
    let service = service_fn(answering(Arc::clone(context), Arc::clone(&activity), peer));
    let builder =
        protocol(options, &resources.connections.budget, HeaderTimer(Arc::clone(&activity)));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(transport), service));
    let mut schedule = Schedule::new(options);
    let mut timer = pin!(sleep_until(schedule.next()));
    let mut shutdown = pin!(shutdown.cancelled());
    let mut cut_off = pin!(context.cut_off.cancelled());
    let mut evicted = pin!(activity.evicted.notified());
    loop {
        let was_closing = schedule.closing;
        let ended = tokio::select! {
            biased;
            result = connection.as_mut() => {
                if let Err(error) = result {
                    ServerCounters::count(&counters.failed);
                    tracing::debug!(?peer, %error, "a connection failed");
                }
                return;
            }
            () = cut_off.as_mut() => Some(&counters.cut_off),
            () = shutdown.as_mut(), if !was_closing => {
                schedule.close(None);
                None
            }
            () = evicted.as_mut(), if !was_closing => {
                ServerCounters::count(&counters.evicted);
                if activity.is_write_blocked() {
                    // No goodbye would reach the peer, and its place is needed.
                    return;
                }
                schedule.close(Some(options.evicted_after));
                None
            }
            () = timer.as_mut() => schedule.fire(&activity, counters),
        };
        if let Some(counter) = ended {
            ServerCounters::count(counter);
            return;
        }
        if schedule.closing && !was_closing {
            // GOAWAY, or `connection: close` after the request in flight.
            connection.as_mut().graceful_shutdown();
        }
        timer.as_mut().reset(schedule.next());
    }
}

/// Answers the requests of a connection.
fn answering<H: Handler>(
    context: Arc<Context<Http<H>>>,
    activity: Arc<Activity>,
    peer: Option<SocketAddr>,
) -> impl Fn(Request<Incoming>) -> BoxFuture<'static, Result<Response<Answer>, Infallible>> {
    let known = Arc::new(context.handler.0.connected(peer));
    // The bytes that had been read when the last request came.
    let read_before = AtomicU64::new(0);
    // Boxed: hyper and tokio move a request's future many times.
    move |request: Request<Incoming>| -> BoxFuture<'static, _> {
        let is_http2 = request.version() == Version::HTTP_2;
        let (mut in_flight, arriving) = activity.begin(STREAM_BYTES + header_bytes(&request));
        // A client that waits to be asked for its body sends none after a refusal.
        let is_drained = is_http2 || !request.headers().contains_key(EXPECT);
        let request =
            request.map(|incoming| RequestBody::new(incoming, arriving, &activity, is_drained));
        if is_http2 && !in_flight.is_charged {
            ServerCounters::count(&context.serving.counters.refused_streams);
            in_flight.refused_for_memory();
            // Its headers are dropped here: a request refused for want of memory must not wait.
            let refusal = context.handler.0.refuse_for_memory(request);
            return Box::pin(ready(Ok(answer(refusal, in_flight))));
        }
        let read_bytes = activity.read_bytes.load(Ordering::Relaxed);
        // HTTP/1: hyper has it from the same read as the one before.
        let is_pipelined =
            read_before.swap(read_bytes, Ordering::Relaxed) == read_bytes && !is_http2;
        let (context, known) = (Arc::clone(&context), Arc::clone(&known));
        // HTTP/1: hyper lets it wait until the peer has read the answers before it.
        let unbegun = activity.note_idle();
        Box::pin(async move {
            if is_pipelined {
                // Hundreds of requests fit into one read: another connection is let in first.
                context.serving.resources.scheduler.let_another_in();
                yield_now().await;
            }
            drop(unbegun);
            let response = context.handler.0.handle(&known, request).await;
            in_flight.answered(is_accepted(&response));
            if context.serving.resources.scheduler.holds_answers() {
                in_flight.hold().await;
            }
            Ok(answer(response, in_flight))
        })
    }
}

fn answer(response: Response<ReplyBody>, in_flight: InFlight) -> Response<Answer> {
    let in_flight = in_flight.sending();
    response.map(|body| Answer { body, _in_flight: in_flight })
}

/// A gRPC answer that has its status in the headers is a refusal.
fn is_accepted(response: &Response<ReplyBody>) -> bool {
    response.status().is_success() && !response.headers().contains_key(GRPC_STATUS)
}

/// Bytes of a request's headers: texts, in buffers that grow by doubling, and the map's places,
/// taken or not.
fn header_bytes(request: &Request<Incoming>) -> usize {
    let uri = request.uri();
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    map_bytes(request.headers()) + path + authority
}

fn map_bytes(headers: &HeaderMap) -> usize {
    let texts = headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    let repeated = headers.len() - headers.keys_len();
    let fields = headers.capacity().saturating_sub(STREAM_FIELDS);
    2 * texts.sum::<usize>() + fields * FIELD_BYTES + repeated * REPEATED_FIELD_BYTES
}

/// hyper's settings for a new connection.
fn protocol(
    options: &ServerOptions,
    budget: &ConnectionBudget,
    header_timer: HeaderTimer,
) -> auto::Builder<TokioExecutor> {
    let windows = budget.windows();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder = match options.protocols {
        Protocols::Http2 => builder.http2_only(),
        Protocols::Http1 => builder.http1_only(),
        Protocols::Http1AndHttp2 | Protocols::Other => builder,
    };
    builder
        .http1()
        .timer(header_timer)
        .header_read_timeout(options.read_header_timeout)
        .max_buf_size(HEADERS_MAX_BYTES as usize)
        .max_headers(128);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(budget.streams(options.max_concurrent_streams))
        .max_header_list_size(HEADERS_MAX_BYTES)
        .initial_stream_window_size(windows.stream_bytes)
        .initial_connection_window_size(windows.connection_bytes)
        .max_frame_size(budget.frame_bytes())
        .keep_alive_interval(options.keepalive_time)
        .keep_alive_timeout(options.keepalive_timeout)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(LOCAL_RESETS_MAX);
    builder
}

/// The deadlines of one connection, behind one timer.
struct Schedule<'a> {
    options: &'a ServerOptions,
    handshake: Option<Instant>,
    age: Option<Instant>,
    idle_check: Option<Instant>,
    answers_check: Instant,
    /// When a connection that was asked to go is cut off.
    end: Option<Instant>,
    /// It is asked to go.
    closing: bool,
}

impl<'a> Schedule<'a> {
    fn new(options: &'a ServerOptions) -> Self {
        let now = Instant::now();
        // ± 10 %, so that connections that were opened together do not come back together.
        let age =
            options.max_connection_age.map(|age| now + age.mul_f64(0.9 + 0.2 * fastrand::f64()));
        Schedule {
            options,
            handshake: Some(now + options.handshake_timeout),
            age,
            idle_check: options.max_connection_idle.map(|idle| now + idle),
            answers_check: now + options.write_timeout,
            end: None,
            closing: false,
        }
    }

    fn next(&self) -> Instant {
        let due = [self.handshake, self.age, self.idle_check, self.end];
        due.into_iter().flatten().fold(self.answers_check, Instant::min)
    }

    fn close(&mut self, grace: Option<Duration>) {
        self.closing = true;
        (self.age, self.idle_check) = (None, None);
        self.end = grace.map(|grace| Instant::now() + grace);
    }

    /// A deadline has passed. `Some`: the connection ends now, and is counted in that counter.
    fn fire<'c>(
        &mut self,
        activity: &Activity,
        counters: &'c ServerCounters,
    ) -> Option<&'c AtomicU64> {
        let now = Instant::now();
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        if is_due(self.handshake) {
            // Its bytes are there, and wait for its slice: it has the same time once more.
            let is_queued = activity.entry.is_queued();
            self.handshake = is_queued.then(|| now + self.options.handshake_timeout);
            let read_bytes = activity.read_bytes.load(Ordering::Relaxed);
            if !is_queued && !activity.has_served() && read_bytes < HANDSHAKE_BYTES {
                return Some(&counters.handshake_timeouts);
            }
        }
        if is_due(self.end) {
            return Some(&counters.cut_off);
        }
        if self.answers_check <= now {
            self.answers_check = now + self.options.write_timeout;
            // The socket may take all bytes, and HTTP/2's flow control none.
            if activity.has_stalled_answers() {
                return Some(&counters.failed);
            }
        }
        if is_due(self.age) {
            ServerCounters::count(&counters.aged);
            self.close(self.options.max_connection_age_grace);
            return None;
        }
        if let (true, Some(idle)) = (is_due(self.idle_check), self.options.max_connection_idle) {
            let idle_since = activity.idle_since();
            if activity.entry.in_flight() == 0 && idle_since + idle <= now {
                ServerCounters::count(&counters.idled);
                self.close(self.options.max_connection_age_grace);
                return None;
            }
            self.idle_check = Some((idle_since + idle).max(now + idle / 8));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// Guarantee: fields with hardly any text are charged the memory of the map for them, which is
    /// three times the size that HTTP/2 counts.
    #[test]
    fn small_header_fields_are_charged_what_they_hold() {
        const FIELDS: usize = 400;
        let (mut distinct, mut repeated) = (HeaderMap::new(), HeaderMap::new());
        for index in 0..FIELDS {
            let name = HeaderName::try_from(format!("x{index}")).expect("is a name");
            distinct.append(name, HeaderValue::from_static(""));
            repeated.append("x", HeaderValue::from_static(""));
        }
        assert!(map_bytes(&distinct) >= (FIELDS - STREAM_FIELDS) * 104, "{}", map_bytes(&distinct));
        assert!(map_bytes(&repeated) >= (FIELDS - 1) * 72, "{}", map_bytes(&repeated));
    }

    /// Scenario: a server has so much to read that a new connection has no turn within the time for
    /// a handshake. Guarantee: it is closed only if its peer is at fault, with and without TLS.
    #[tokio::test]
    async fn a_handshake_that_waits_for_its_turn_is_not_late() {
        const LIMIT: Duration = Duration::from_millis(20);
        let options =
            ServerOptions { handshake_timeout: LIMIT, ..ServerOptions::new(Protocols::Http2) };
        let counters = ServerCounters::default();
        let activity = Activity::new(&ConnectionBudget::unlimited());
        let mut schedule = Schedule::new(&options);
        activity.entry.set_queued(true);
        let tls = within(LIMIT, &activity, tokio::time::sleep(3 * LIMIT));
        assert!(tls.await.is_ok() && schedule.fire(&activity, &counters).is_none());
        activity.entry.set_queued(false);
        let tls = within(LIMIT, &activity, tokio::time::sleep(3 * LIMIT));
        assert!(tls.await.is_err() && schedule.fire(&activity, &counters).is_some());
    }

    /// Guarantee: connections that were opened together are asked to go over a fifth of their age,
    /// not at once.
    #[test]
    fn ages_are_spread() {
        let age = Duration::from_secs(1000);
        let options =
            ServerOptions { max_connection_age: Some(age), ..ServerOptions::new(Protocols::Http2) };
        let now = Instant::now();
        let ages = (0..200)
            .map(|_| Schedule::new(&options).age.expect("has one").duration_since(now).as_secs());
        let mut ages: Vec<u64> = ages.collect();
        ages.sort_unstable();
        let (youngest, oldest) = (ages[0], ages[199]);
        assert!(
            (900..920).contains(&youngest) && (1080..=1100).contains(&oldest),
            "{youngest} to {oldest}"
        );
    }
}
