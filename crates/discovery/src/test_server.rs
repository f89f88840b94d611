//! A server of HTTP for tests.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) fn answer(kind: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// Reads the head of a request.
pub(crate) async fn request(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.is_ok_and(|read| read > 0) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A listener on a free port, and its URL without a path.
pub(crate) async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    (listener, format!("http://{address}"))
}

/// Answers one request on each connection: `route` gets the head, and returns the answer.
pub(crate) fn serve(
    listener: TcpListener,
    mut route: impl FnMut(&str) -> String + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = request(&mut stream).await;
            let _ = stream.write_all(route(&head).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    })
}
