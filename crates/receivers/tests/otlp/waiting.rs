//! Requests that wait, for memory or for a check of their credentials: bytes that come meanwhile
//! are charged, and no memory beyond them is used.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use sluice_flow::BoxFuture;
use sluice_net::auth::server::{AuthError, ServerAuth};
use sluice_net::grpc::{Code, Status};
use sluice_otlp::Signal;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::support::*;

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

async fn gated(limit_bytes: usize) -> Receiver {
    let waiting = WaitingMemory { limit_bytes: Some(limit_bytes), ..WaitingMemory::default() };
    let (gate, waiting) = (Some(Notify::new()), Arc::new(waiting));
    Receiver::start(BOTH, MockIntake { gate, waiting, ..MockIntake::default() }).await
}

fn open(receiver: &Receiver) {
    receiver.intake.gate.as_ref().expect("has a gate").notify_one();
}

async fn until_waiting_requests_hold(receiver: &Receiver, bytes: std::ops::RangeInclusive<usize>) {
    let used_bytes = || receiver.intake.waiting.used_bytes.load(Ordering::SeqCst);
    let held = async {
        while !bytes.contains(&used_bytes()) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), held).await.unwrap_or_else(|_| panic!("{}", used_bytes()));
}

/// Begins a gRPC call with these first bytes of its body.
async fn begin(
    client: &h2::client::SendRequest<Bytes>,
    body: Vec<u8>,
) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
    let mut ready = client.clone().ready().await.expect("is open");
    let (response, mut stream) =
        ready.send_request(grpc_request(Signal::Traces.grpc_path(), &[]), false).expect("is sent");
    stream.send_data(body.into(), false).expect("is sent");
    (response, stream)
}

/// Guarantee: bytes of a request that waits are read and charged, over both transports, and the
/// request is accepted with them.
#[tokio::test]
async fn what_comes_of_a_request_that_waits_is_charged() {
    let receiver = gated(1 << 20).await;
    let client = connect_h2(receiver.grpc).await;
    let body = framed(0, &traces(1));
    let (first, rest) = body.split_at(8);
    let (response, mut stream) = begin(&client, first.to_vec()).await;
    until_waiting_requests_hold(&receiver, 3..=8).await;
    stream.send_data(Bytes::copy_from_slice(rest), true).expect("is sent");
    until_waiting_requests_hold(&receiver, body.len() - 5..=2 * body.len()).await;
    open(&receiver);
    let head = response.await.expect("is answered");
    assert!(Status::read_from(head.headers()).is_none_or(|status| status.is_ok()), "{head:?}");

    let body = traces(1);
    let posted = post(receiver.http, "/v1/traces", &[PROTOBUF], &body);
    let opened = async {
        until_waiting_requests_hold(&receiver, body.len()..=2 * body.len()).await;
        open(&receiver);
    };
    assert_eq!(tokio::join!(posted, opened).0.0, 200);
    assert_eq!(receiver.intake.taken().len(), 2);
    until_waiting_requests_hold(&receiver, 0..=0).await;
}

/// Guarantee: a request that waits is admitted once all of it has arrived, and not before.
#[tokio::test]
async fn a_request_that_arrives_while_it_waits_is_admitted() {
    let intake =
        MockIntake { gate: Some(Notify::new()), admits_arrived: true, ..MockIntake::default() };
    let receiver = Receiver::start(BOTH, intake).await;
    let client = connect_h2(receiver.grpc).await;
    let body = framed(0, &traces(1));
    let (response, mut stream) = begin(&client, body[..8].to_vec()).await;
    until_waiting_requests_hold(&receiver, 3..=8).await;
    assert_eq!(receiver.intake.outstanding(), 0, "it waits");
    stream.send_data(Bytes::copy_from_slice(&body[8..]), true).expect("is sent");
    let head = timeout(Duration::from_secs(10), response).await.expect("in time").expect("is one");
    assert!(Status::read_from(head.headers()).is_none_or(|status| status.is_ok()), "{head:?}");
    let (code, ..) = post(receiver.http, "/v1/traces", &[PROTOBUF], &traces(1)).await;
    assert_eq!((code, receiver.intake.taken().len()), (200, 2));
    until_waiting_requests_hold(&receiver, 0..=0).await;
}

/// Guarantee: a request whose peer sends more than there is memory for while it waits is admitted
/// at once or not at all, whatever it announced. Trailers and bytes that are not kept cost nothing.
#[tokio::test]
async fn a_request_for_which_no_memory_is_left_waits_no_longer() {
    const LIMIT: usize = 10_000;
    let receiver = gated(LIMIT).await;
    let client = connect_h2(receiver.grpc).await;
    let one_byte = [0, 0, 0, 0, 1];
    let (response, mut stream) = begin(&client, one_byte.to_vec()).await;
    stream.send_data(Bytes::from(vec![7; LIMIT + 1]), false).expect("is sent");
    let head = timeout(Duration::from_secs(10), response).await.expect("in time").expect("is one");
    let status = Status::read_from(head.headers()).expect("is refused");
    assert_eq!(status.code, Code::InvalidArgument, "more than was announced: {status}");

    let body = traces(200);
    assert!(body.len() > LIMIT);
    let (code, ..) = post(receiver.http, "/v1/traces", &[PROTOBUF], &body).await;
    assert_eq!(code, 200, "there was memory to receive it");
    until_waiting_requests_hold(&receiver, 0..=0).await;
}

/// Checks credentials, and takes its time.
struct Slow(HeaderValue);

impl ServerAuth for Slow {
    fn authenticate<'a>(&'a self, _: &'a HeaderMap) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(async {
            sleep(Duration::from_millis(50)).await;
            Ok(())
        })
    }

    fn challenge(&self) -> &HeaderValue {
        &self.0
    }
}

/// Guarantee: bytes of a request whose credentials are being checked are charged. If there is no
/// memory for them, its sender gets a retryable refusal.
#[tokio::test]
async fn what_comes_during_a_check_of_credentials_is_charged() {
    for (limit_bytes, code, status) in [(1 << 20, 200, Code::Ok), (10, 503, Code::Unavailable)] {
        let slow: Arc<dyn ServerAuth> = Arc::new(Slow(HeaderValue::from_static("Basic")));
        let authenticators = HashMap::from([("own".to_owned(), slow)]);
        let waiting = WaitingMemory { limit_bytes: Some(limit_bytes), ..WaitingMemory::default() };
        let waiting = Arc::new(waiting);
        let intake = MockIntake { authenticators, waiting, ..MockIntake::default() };
        let text = BOTH.replace("'localhost:0'", "'localhost:0', auth: {authenticator: own}");
        let receiver = Receiver::start(&text, intake).await;
        let body = traces(1);
        assert_eq!(post(receiver.http, "/v1/traces", &[PROTOBUF], &body).await.0, code);
        let mut client = connect_h2(receiver.grpc).await;
        let refused = unary(&mut client, Signal::Traces, &[], &framed(0, &body)).await;
        assert_eq!(refused.code, status);
    }
}
