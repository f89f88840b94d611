//! Requests that are refused before their bodies are read: the rest of a body is drained beside the
//! answer, and other requests of the connection go on.

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::SendRequest;
use sluice_otlp::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::*;

/// Fewer than a connection may have at a time.
const AT_ONCE: [usize; 2] = [60, 250];
/// More in all than the resets for which HTTP/2 ends a connection.
const ROUNDS: usize = 5;

/// A request whose answer comes before its body, as over a long line.
async fn refused_then_sent(
    client: &SendRequest<Bytes>,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> bool {
    let mut ready = client.clone().ready().await.expect("is open");
    let (response, mut stream) =
        ready.send_request(grpc_request(path, headers), false).expect("is sent");
    // A prefix that announces more than is allowed is refused when it is there.
    let (first, rest) = body.split_at(5);
    stream.send_data(Bytes::copy_from_slice(first), false).expect("is sent");
    let head = response.await.expect("is answered");
    let is_refused =
        head.status() != 200 || head.headers().get("grpc-status").is_some_and(|code| code != "0");
    stream.send_data(Bytes::copy_from_slice(rest), true).expect("is sent");
    is_refused
}

/// Scenario: a connection that clients share, and on which one of them has hundreds of requests
/// refused early, for each reason. Guarantee: the connection lives, and the other client's requests
/// are accepted.
#[tokio::test(flavor = "multi_thread")]
async fn early_refusals_do_not_end_a_shared_connection() {
    let text = "protocols: {grpc: {endpoint: 'localhost:0', max_recv_msg_size_mib: 1}, http: {endpoint: 'localhost:0'}}";
    let intake = MockIntake { unrouted: Some(Signal::Logs), ..MockIntake::default() };
    let receiver = Receiver::start(text, intake).await;
    let good = framed(0, &vec![7; 4_000]);
    let too_long = [&[0, 1, 0, 0, 0][..], &[7; 4_000]].concat();
    let traces_path = Signal::Traces.grpc_path();
    let none: &[(&str, &str)] = &[];
    let reasons = [
        ("no pipeline", Signal::Logs.grpc_path(), none, &good),
        ("no such method", "/no.such.Service/Export", none, &good),
        ("unknown encoding", traces_path, &[("grpc-encoding", "br")], &good),
        ("no gRPC", traces_path, &[("content-type", "text/plain")], &good),
        ("too long", traces_path, none, &too_long),
    ];
    for (reason, path, headers, body) in reasons {
        let mut client = connect_h2(receiver.grpc).await;
        for round in 0..ROUNDS {
            for at_once in AT_ONCE {
                let refused =
                    join_all((0..at_once).map(|_| refused_then_sent(&client, path, headers, body)))
                        .await;
                assert!(refused.into_iter().all(|is_refused| is_refused), "{reason}");
                let status = unary(&mut client, Signal::Traces, &[], &framed(0, &traces(1))).await;
                assert!(status.is_ok(), "{reason}, {at_once} at once, round {round}: {status}");
            }
        }
    }
}

/// Guarantee: over HTTP/1 a refused request's body is read, and the next request of the connection
/// is answered. A client that asks first whether to send its body gets the refusal, and the server
/// does not wait for the body.
#[tokio::test(flavor = "multi_thread")]
async fn over_http1_the_next_request_is_answered_after_an_early_refusal() {
    const LENGTH: usize = 3 << 20;
    let receiver = Receiver::start(BOTH, MockIntake::default()).await;
    let mut socket = TcpStream::connect(receiver.http).await.expect("connects");
    for _ in 0..3 {
        let head = format!("POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: {LENGTH}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.expect("is sent");
        assert_eq!(answer(&mut socket).await, "404");
        socket.write_all(&vec![7; LENGTH]).await.expect("is taken");
    }
    let asks = format!(
        "POST /nowhere HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {LENGTH}\r\n\r\n"
    );
    socket.write_all(asks.as_bytes()).await.expect("is sent");
    assert_eq!(answer(&mut socket).await, "404");
    assert_eq!(
        socket.read(&mut [0; 100]).await.expect("is closed"),
        0,
        "no `100 Continue` after the answer"
    );
}

/// Reads an answer to its end; its status.
async fn answer(socket: &mut TcpStream) -> String {
    const BODY: &[u8] = b"404 page not found\n";
    let mut answer = Vec::new();
    while !answer.ends_with(BODY) {
        assert!(
            socket.read_buf(&mut answer).await.expect("is read") > 0,
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    String::from_utf8_lossy(&answer[9..12]).into_owned()
}
