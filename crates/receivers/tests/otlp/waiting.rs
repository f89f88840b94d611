//! Requests that wait, for memory or for a check of their credentials: what they may hold meanwhile
//! is asked for, and nothing beyond it is held.

use std::collections::HashMap;
use std::sync::Arc;
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

/// Beyond any window.
const LONG: usize = 3 << 20;

async fn gated() -> Receiver {
    let intake = MockIntake { gate: Some(Notify::new()), ..MockIntake::default() };
    Receiver::start(BOTH, intake).await
}

fn open(receiver: &Receiver) {
    receiver.intake.gate.as_ref().expect("has a gate").notify_one();
}

async fn until_it_waits(receiver: &Receiver) -> usize {
    loop {
        if let Some(held_bytes) = receiver.intake.waited.lock().expect("is not poisoned").pop() {
            return held_bytes;
        }
        sleep(Duration::from_millis(1)).await;
    }
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

/// Guarantee: a message that fits the window is read while its request waits, and the peer cannot
/// send more than it announced. A longer one is left to flow control.
#[tokio::test]
async fn a_message_is_held_as_far_as_it_was_announced() {
    let receiver = gated().await;
    let client = connect_h2(receiver.grpc).await;
    let body = framed(0, &traces(1));

    let (first, rest) = body.split_at(8);
    let (response, mut stream) = begin(&client, first.to_vec()).await;
    assert_eq!(until_it_waits(&receiver).await, body.len() - 5);
    stream.send_data(Bytes::copy_from_slice(rest), true).expect("is sent");
    sleep(Duration::from_millis(20)).await;
    open(&receiver);
    let head = response.await.expect("is answered");
    assert!(Status::read_from(head.headers()).is_none_or(|status| status.is_ok()), "{head:?}");
    assert_eq!(receiver.intake.taken().len(), 1);

    let (response, mut stream) = begin(&client, body.clone()).await;
    until_it_waits(&receiver).await;
    stream.send_data(Bytes::from_static(&[7]), false).expect("is sent");
    let head = timeout(Duration::from_secs(10), response).await.expect("in time").expect("is one");
    let status = Status::read_from(head.headers()).expect("is refused at once");
    assert_eq!(status.code, Code::InvalidArgument, "{status}");

    let long = [&[0][..], &(LONG as u32).to_be_bytes(), &[7; 1_000]].concat();
    let (_response, _stream) = begin(&client, long).await;
    let window_bytes = until_it_waits(&receiver).await;
    assert!((64 << 10..1 << 20).contains(&window_bytes), "{window_bytes}");
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

/// Guarantee: a request whose credentials are being checked waits only if there is room for what
/// its sender may send meanwhile. Otherwise it is told to come back.
#[tokio::test]
async fn a_request_that_waits_for_its_check_is_charged() {
    const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
    for is_crowded in [false, true] {
        let slow: Arc<dyn ServerAuth> = Arc::new(Slow(HeaderValue::from_static("Basic")));
        let authenticators = HashMap::from([("own".to_owned(), slow)]);
        let intake = MockIntake { authenticators, is_crowded, ..MockIntake::default() };
        let text = BOTH.replace("'localhost:0'", "'localhost:0', auth: {authenticator: own}");
        let receiver = Receiver::start(&text, intake).await;
        let (code, _, _) = post(receiver.http, "/v1/traces", &[PROTOBUF], &traces(1)).await;
        assert_eq!(code, if is_crowded { 503 } else { 200 });
        assert_eq!(until_it_waits(&receiver).await, traces(1).len());
        let mut client = connect_h2(receiver.grpc).await;
        let status = unary(&mut client, Signal::Traces, &[], &framed(0, &traces(1))).await;
        assert_eq!(status.code, if is_crowded { Code::Unavailable } else { Code::Ok });
        assert!(until_it_waits(&receiver).await >= 64 << 10, "its length is not known");
    }
}
