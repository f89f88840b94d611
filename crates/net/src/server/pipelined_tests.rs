//! Requests that come before the answers to those before them (HTTP/1).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use parking_lot::Mutex;
use socket2::{Domain, Socket, Type};
use tokio::runtime::{Builder, Runtime};

use super::budget::OPEN_BYTES;
use super::*;

/// Counts requests. One of them makes the only thread wait.
struct Counting {
    requests: AtomicUsize,
    /// Requests that were answered before that of the other client.
    before_other: Sender<usize>,
    go_on: Mutex<Receiver<()>>,
}

impl Handler for Counting {
    type Connection = ();

    fn connected(&self, _: Option<SocketAddr>) {}

    async fn handle(&self, (): &(), request: Request<RequestBody>) -> Response<ReplyBody> {
        match request.uri().path() {
            "/wait" => self.go_on.lock().recv().expect("goes on"),
            "/other" => {
                let _ = self.before_other.send(self.requests.load(Ordering::Relaxed));
            }
            _ => _ = self.requests.fetch_add(1, Ordering::Relaxed),
        }
        reply(StatusCode::OK, HeaderValue::from_static("text/plain"), "")
    }

    fn refuse_for_memory(&self, _: Request<RequestBody>) -> Response<ReplyBody> {
        unreachable!("memory has no limit")
    }
}

pub(super) fn start(
    runtime: &Runtime,
    options: ServerOptions,
    resources: ServerResources,
    handler: impl Handler,
) -> SocketAddr {
    let listener = Address::Tcp("127.0.0.1:0".to_owned(), Family::Any);
    let listener = runtime.block_on(Listener::bind(&listener)).expect("a port");
    let address = listener.local_address().expect("an address");
    let (counters, shutdown) = (Arc::default(), CancellationToken::new());
    let serving = Serving { options, tls: None, counters, resources, shutdown };
    runtime.spawn(serve(listener, serving, handler));
    address
}

fn connect(address: SocketAddr, requests: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("listens");
    stream.write_all(requests.as_bytes()).expect("is sent");
    stream
}

/// Scenario: the sockets of many connections are full of requests when another client sends one.
/// Guarantee: that one is read after a few of each connection, not after all that they have sent.
#[test]
fn pipelined_requests_keep_no_other_connection_out() {
    const CONNECTIONS: usize = 64;
    const EACH: usize = 400;
    const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let (before_other, result) = channel();
    let (go, go_on) = channel();
    let scheduler = ReadScheduler::new();
    let mut builder = Builder::new_multi_thread();
    let runtime = scheduler.install(builder.worker_threads(1).enable_all()).expect("a runtime");
    let (requests, go_on) = (AtomicUsize::new(0), Mutex::new(go_on));
    let handler = Counting { requests, before_other, go_on };
    let resources = ServerResources { scheduler, ..ServerResources::unlimited() };
    let options = ServerOptions::new(Protocols::Http1);
    let address = start(&runtime, options, resources, handler);
    let open = |requests: &str| {
        let mut stream = connect(address, requests);
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).expect("is answered");
        stream
    };
    // They are accepted, so that only reading is left.
    let mut flood: Vec<TcpStream> = (0..CONNECTIONS).map(|_| open(REQUEST)).collect();
    let mut other = open(REQUEST);
    let _waits = connect(address, "GET /wait HTTP/1.1\r\nhost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(100));
    for stream in &mut flood {
        stream.write_all(REQUEST.repeat(EACH).as_bytes()).expect("is sent");
    }
    other.write_all(b"GET /other HTTP/1.1\r\nhost: a\r\n\r\n").expect("is sent");
    go.send(()).expect("it waits");
    let before = result.recv_timeout(Duration::from_secs(20)).expect("is answered");
    assert!(before < CONNECTIONS * 20, "{before} of {} first", CONNECTIONS * EACH);
    runtime.shutdown_background();
}

/// Knows one path.
struct Refusing;

impl Handler for Refusing {
    type Connection = ();

    fn connected(&self, _: Option<SocketAddr>) {}

    async fn handle(&self, (): &(), request: Request<RequestBody>) -> Response<ReplyBody> {
        let is_known = request.uri().path() == "/good";
        let status = if is_known { StatusCode::OK } else { StatusCode::NOT_FOUND };
        reply(status, HeaderValue::from_static("text/plain"), "there is no such path")
    }

    fn refuse_for_memory(&self, _: Request<RequestBody>) -> Response<ReplyBody> {
        unreachable!("HTTP/1 has no streams to refuse")
    }
}

/// Scenario: more connections than there is memory for send requests that are refused, and read no
/// answer. Guarantee: they make room for each new connection.
#[test]
fn requests_behind_unread_answers_keep_no_connection() {
    const PLACES: usize = 32;
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    const EVICTED_AFTER: Duration = Duration::from_millis(100);
    let scheduler = ReadScheduler::new();
    let mut builder = Builder::new_multi_thread();
    let runtime = scheduler.install(builder.worker_threads(2).enable_all()).expect("a runtime");
    let connections = OpenConnections::new(ConnectionBudget::new(PLACES * OPEN_BYTES, 1 << 20));
    let options =
        ServerOptions { evicted_after: EVICTED_AFTER, ..ServerOptions::new(Protocols::Http1) };
    let resources = ServerResources { connections, scheduler };
    let address = start(&runtime, options, resources, Refusing);
    let requests = REQUEST.repeat(1000);
    let mut flood: Vec<_> = (0..2 * PLACES)
        .map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            socket.set_recv_buffer_size(2 << 10).expect("is set");
            socket.connect(&address.into()).expect("listens");
            socket.set_nonblocking(true).expect("is set");
            socket
        })
        .collect();
    let send_more = |flood: &mut Vec<Socket>| {
        flood.iter_mut().for_each(|socket| while socket.write(&requests).is_ok() {});
    };
    for _ in 0..20 {
        send_more(&mut flood);
        std::thread::sleep(Duration::from_millis(20));
    }
    for newcomer in 0..20 {
        send_more(&mut flood);
        let mut stream = connect(address, "GET /good HTTP/1.1\r\nhost: a\r\n\r\n");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("is set");
        let mut answer = [0; 12];
        let read = stream.read_exact(&mut answer);
        assert!(read.is_ok() && answer.ends_with(b"200"), "{newcomer}: {read:?}");
    }
    runtime.shutdown_background();
}
