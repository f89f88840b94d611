//! Bodies that come late, by their peer's fault or ours.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tokio::runtime::Builder;

use super::pipelined_tests::start;
use super::*;

/// Reads a body. For the path `/queued` the connection waits for its slice meanwhile.
struct Reading;

impl Handler for Reading {
    type Connection = ();

    fn connected(&self, _: Option<SocketAddr>) {}

    async fn handle(&self, (): &(), request: Request<RequestBody>) -> Response<ReplyBody> {
        let is_queued = request.uri().path() == "/queued";
        let body = request.into_body();
        body.set_queued(is_queued);
        let (gap, total) = (Duration::from_millis(50), Duration::from_secs(20));
        let mut body = BodyReader::new(body, BodyTimeouts { gap, total });
        let status = match body.next(None).await {
            Ok(_) => StatusCode::OK,
            Err(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        reply(status, HeaderValue::from_static("text/plain"), "")
    }

    fn refuse_for_memory(&self, _: Request<RequestBody>) -> Response<ReplyBody> {
        unreachable!("memory has no limit")
    }
}

/// Scenario: a body comes a second after its headers. Guarantee: it is given up if its peer made
/// the pause, and not if it waited for us to read it.
#[test]
fn a_body_that_waits_to_be_read_is_not_slow() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (options, resources) = (ServerOptions::new(Protocols::Http1), ServerResources::unlimited());
    let address = start(&runtime, options, resources, Reading);
    for (path, expected) in [("/queued", "200"), ("/slow", "503")] {
        let mut stream = TcpStream::connect(address).expect("listens");
        let headers = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n");
        stream.write_all(headers.as_bytes()).expect("is sent");
        std::thread::sleep(Duration::from_secs(1));
        stream.write_all(b"x").expect("is sent");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("is answered");
        assert_eq!(str::from_utf8(&answer[9..]), Ok(expected), "{path}");
    }
    runtime.shutdown_background();
}
