//! Requests that come before the answers to those before them (HTTP/1).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use parking_lot::Mutex;
use tokio::runtime::Builder;

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
    let listener = Address::Tcp("127.0.0.1:0".to_owned(), Family::Any);
    let listener = runtime.block_on(Listener::bind(&listener)).expect("a port");
    let address = listener.local_address().expect("an address");
    let serving = Serving {
        options: ServerOptions::new(Protocols::Http1),
        tls: None,
        counters: Arc::default(),
        resources,
        shutdown: CancellationToken::new(),
    };
    runtime.spawn(serve(listener, serving, handler));
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
