//! HTTP/2 streams by hand: senders that leave a request half sent.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use sluice_otlp::Signal;
use tokio::net::TcpStream;

/// A connection that the gateway has taken. `None`: it was closed.
pub(crate) async fn connect(address: SocketAddr) -> Option<SendRequest<Bytes>> {
    let socket = TcpStream::connect(address).await.expect("connects");
    let (client, connection) = h2::client::handshake(socket).await.ok()?;
    let (ended, mut is_ended) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let _ = connection.await;
        let _ = ended.send(());
    });
    // A request that is not admitted is refused at once.
    let ended = tokio::time::timeout(Duration::from_secs(1), &mut is_ended).await.is_ok();
    (!ended).then_some(client)
}

/// Begins a request whose body is sent by the caller.
pub(crate) async fn begin(client: SendRequest<Bytes>) -> (ResponseFuture, SendStream<Bytes>) {
    let path = format!("http://localhost{}", Signal::Traces.grpc_path());
    let request = http::Request::post(path)
        .header("content-type", "application/grpc")
        .body(())
        .expect("is valid");
    let mut client = client.ready().await.expect("is open");
    client.send_request(request, false).expect("is sent")
}

/// The `grpc-status` of an answer, in its headers or its trailers.
pub(crate) async fn status(response: ResponseFuture) -> Option<String> {
    let (head, mut body) = response.await.ok()?.into_parts();
    let text =
        |headers: &http::HeaderMap| Some(headers.get("grpc-status")?.to_str().ok()?.to_owned());
    if let Some(status) = text(&head.headers) {
        return Some(status);
    }
    while let Some(data) = body.data().await {
        body.flow_control().release_capacity(data.ok()?.len()).ok()?;
    }
    text(&body.trailers().await.ok()??)
}
