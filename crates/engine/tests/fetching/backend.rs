//! A backend that remembers each line that it has taken, and refuses some requests: for now, or for
//! good where a line says `poison`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Lines, and how often each was taken.
pub(crate) type Taken = Arc<Mutex<HashMap<String, u32>>>;

/// Serves until the runtime ends. Of its requests it refuses one in `refuses_one_in`; none for 0.
pub(crate) fn serve(listener: TcpListener, refuses_one_in: u32) -> Taken {
    let taken = Taken::default();
    let serving = taken.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(connection(socket, serving.clone(), refuses_one_in));
        }
    });
    taken
}

/// An address on which nothing listens.
pub(crate) async fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address")
}

async fn connection(socket: TcpStream, taken: Taken, refuses_one_in: u32) -> Option<()> {
    let mut socket = BufReader::new(socket);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if socket.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.ok()?;
        let is_refused = refuses_one_in > 0 && fastrand::u32(0..refuses_one_in) == 0;
        let status = match lines_of(&body) {
            _ if is_refused => "503 Service Unavailable",
            lines if lines.iter().any(|line| line.contains("poison")) => "400 Bad Request",
            lines => {
                let mut taken = taken.lock().expect("is not poisoned");
                lines.into_iter().for_each(|line| *taken.entry(line).or_default() += 1);
                "200 OK"
            }
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"
        );
        socket.write_all(answer.as_bytes()).await.ok()?;
    }
}

fn lines_of(body: &[u8]) -> Vec<String> {
    let request = ExportLogsServiceRequest::decode(body).expect("a request of logs");
    let scopes = request.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
    let records = scopes.flat_map(|scope| scope.log_records);
    let line = |body: AnyValue| match body.value {
        Some(Value::StringValue(line)) => Some(line),
        _ => None,
    };
    records.filter_map(|record| record.body.and_then(line)).collect()
}
