//! Tools of the attackers: connections by hand, and encoded requests.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use sluice_otlp::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Target;

/// An attacker that came back sooner would only use up the CPU, also that of the other client.
pub(crate) const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// An HTTP/2 connection. `None`: it was refused.
pub(crate) async fn connect(address: SocketAddr) -> Option<SendRequest<Bytes>> {
    let socket = TcpStream::connect(address).await.ok()?;
    let (client, connection) = h2::client::handshake(socket).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

/// Begins a gRPC call whose body is left to the caller. `None`: the connection has ended.
pub(crate) async fn begin(
    client: &SendRequest<Bytes>,
    signal: Signal,
    headers: &[(&str, &str)],
) -> Option<(ResponseFuture, SendStream<Bytes>)> {
    begin_call(client, signal.grpc_path(), headers).await
}

/// As [`begin`], of any method.
pub(crate) async fn begin_call(
    client: &SendRequest<Bytes>,
    path: &str,
    headers: &[(&str, &str)],
) -> Option<(ResponseFuture, SendStream<Bytes>)> {
    let request = http::Request::post(format!("http://localhost{path}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let mut client = client.clone().ready().await.ok()?;
    client.send_request(request.body(()).expect("is valid"), false).ok()
}

/// The `grpc-status` of an answer without a message.
pub(crate) async fn status(response: ResponseFuture) -> Option<String> {
    let head = response.await.ok()?;
    Some(head.headers().get("grpc-status")?.to_str().ok()?.to_owned())
}

/// A gRPC message of this length, as far as its prefix.
pub(crate) fn prefix(flag: u8, length: usize) -> Bytes {
    let length = u32::try_from(length).expect("is short").to_be_bytes();
    Bytes::from([&[flag], &length[..]].concat())
}

/// The beginning of an HTTP/2 connection: the preface and empty settings.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// On this many connections: sends these frames, reads until the other side ends the connection,
/// and starts again after a pause.
pub(crate) async fn send_frames(
    target: Target,
    connections: usize,
    frames: Vec<u8>,
    pause: Duration,
) {
    let sent = Bytes::from([PREFACE, &frames].concat());
    let attackers = (0..connections).map(|_| {
        let sent = sent.clone();
        async move {
            loop {
                let Ok(mut socket) = TcpStream::connect(target.grpc).await else { return };
                let _ = socket.write_all(&sent).await;
                while socket.read(&mut [0; 1 << 10]).await.is_ok_and(|length| length > 0) {}
                sleep(pause).await;
            }
        }
    });
    attackers.collect::<JoinSet<()>>().join_all().await;
}

/// The beginning of an HTTP/2 connection, up to the head of a frame of this length and of an
/// unknown type.
pub(crate) fn unknown_frame(length: u16) -> Vec<u8> {
    const TYPE_AND_STREAM: &[u8] = &[0xee, 0, 0, 0, 0, 0];
    [PREFACE, &[0], &length.to_be_bytes(), TYPE_AND_STREAM].concat()
}

/// The head of a POST of protobuf over HTTP/1.1.
pub(crate) fn post_head(signal: Signal, headers: &str, length: usize) -> String {
    format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\n{headers}content-length: {length}\r\n\r\n",
        signal.http_path()
    )
}

/// Posts logs over and over again, from as many senders at a time. `header`: further header lines.
pub(crate) async fn post_for_ever(target: Target, senders: usize, header: &str, body: Vec<u8>) {
    let head = post_head(Signal::Logs, header, body.len());
    post_so_for_ever(target, senders, head, body).await;
}

/// As [`post_for_ever`], with this head.
pub(crate) async fn post_so_for_ever(target: Target, senders: usize, head: String, body: Vec<u8>) {
    let body = Bytes::from(body);
    let attackers = (0..senders).map(|_| {
        let (head, body) = (head.clone(), body.clone());
        async move {
            loop {
                post(target.http, &head, &body).await;
            }
        }
    });
    attackers.collect::<JoinSet<()>>().join_all().await;
}

/// Sends a request over a connection of its own. The status, if it was answered.
pub(crate) async fn post(address: SocketAddr, head: &str, body: &[u8]) -> Option<u16> {
    let mut socket = TcpStream::connect(address).await.ok()?;
    socket.write_all(head.as_bytes()).await.ok()?;
    // The answer may come before the body is read.
    let _ = socket.write_all(body).await;
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.ok()?;
    String::from_utf8_lossy(&answer[9..]).parse().ok()
}

pub(crate) fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
    bytes
}

/// A request of one log record whose body has this many equal letters.
pub(crate) fn log_of(letters: usize) -> Vec<u8> {
    log_with(field(1, &vec![b'a'; letters]))
}

/// A request of one log record whose body is this many random bytes.
pub(crate) fn random_log_of(length: usize) -> Vec<u8> {
    let bytes: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(length).collect();
    log_with(field(7, &bytes))
}

/// A request of one log record with this body, an encoded `AnyValue`.
fn log_with(body: Vec<u8>) -> Vec<u8> {
    [5, 2, 2, 1].iter().fold(body, |content, number| field(*number, &content))
}
