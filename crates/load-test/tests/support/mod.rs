//! A relay that behaves in a known way: forwards requests to a backend, some of them never or twice.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};

/// What becomes of request number n (from 0).
pub(crate) type Behaviour = Arc<dyn Fn(u64) -> Action + Send + Sync>;

pub(crate) enum Action {
    /// Forwarded so many times, after a while, then answered OK.
    Forward { times: u32, after: Duration },
}

#[allow(dead_code, reason = "each test file uses one of the two")]
pub(crate) async fn start_relay(backend: SocketAddr, behaviour: Behaviour) -> SocketAddr {
    start_relay_on("127.0.0.1:0".parse().unwrap(), backend, behaviour).await
}

pub(crate) async fn start_relay_on(listen: SocketAddr, backend: SocketAddr, behaviour: Behaviour) -> SocketAddr {
    let listener = TcpListener::bind(listen).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let number = Arc::new(AtomicU64::new(0));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, backend, Arc::clone(&behaviour), Arc::clone(&number)));
        }
    });
    addr
}

async fn serve(stream: TcpStream, backend: SocketAddr, behaviour: Behaviour, number: Arc<AtomicU64>) {
    // A connection that only asked whether anybody listens says nothing.
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let (behaviour, number) = (Arc::clone(&behaviour), Arc::clone(&number));
        tokio::spawn(async move {
            let (head, body) = request.into_parts();
            let frame = read(body).await;
            let Action::Forward { times, after } = behaviour(number.fetch_add(1, Ordering::Relaxed));
            tokio::time::sleep(after).await;
            for _ in 0..times {
                forward(backend, &head, frame.clone()).await;
            }
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            stream.send_data(Bytes::from_static(&[0; 5]), false).unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            stream.send_trailers(trailers).unwrap();
        });
    }
}

async fn read(mut body: RecvStream) -> Bytes {
    let mut frame = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.unwrap();
        body.flow_control().release_capacity(chunk.len()).unwrap();
        frame.extend_from_slice(&chunk);
    }
    frame.into()
}

async fn forward(backend: SocketAddr, head: &http::request::Parts, frame: Bytes) {
    let stream = TcpStream::connect(backend).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::from_parts(head.clone(), ());
    let (response, mut body) = sender.ready().await.unwrap().send_request(request, false).unwrap();
    body.send_data(frame, true).unwrap();
    let mut answer = response.await.unwrap().into_body();
    while answer.data().await.is_some() {}
    let trailers = answer.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
}
