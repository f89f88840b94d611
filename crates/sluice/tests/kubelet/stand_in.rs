//! A stand-in for kubelets, and for the API server of their cluster: it gives the answers of the
//! files beside it, which are written after the API's types. Each case has a kubelet of its own:
//! the first part of the path is the case's name, which takes the place of `@` in the answers.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const NODE: &str = include_str!("node.json");
const SPARSE: &str = include_str!("sparse.json");
const PODS: &str = include_str!("pods.json");

/// Claims and the volumes behind them.
const CLAIMS: [(&str, Option<&str>); 3] =
    [("data-web-0", Some("local-1")), ("csi-claim", Some("csi-1")), ("unbound-claim", None)];

enum Reply {
    Answer(&'static str, String),
    /// A watch on which nothing happens.
    Watch,
}

/// Answers until the test ends.
pub(crate) async fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.spawn(serve(stream));
        }
    });
    address
}

/// A kubeconfig of the API server.
pub(crate) fn kubeconfig(address: SocketAddr, folder: &Path) -> String {
    let path = folder.join("kubeconfig").display().to_string();
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&path, text.to_string()).expect("is written");
    path
}

async fn serve(mut stream: TcpStream) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes.drain(..end + 4);
        let target = head.split(' ').nth(1)?;
        let json = "content-type: application/json\r\n";
        match reply(target) {
            Reply::Answer(status, body) => {
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {status}\r\n{json}content-length: {length}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.ok()?;
            }
            Reply::Watch => {
                let head = format!("HTTP/1.1 200 OK\r\n{json}connection: close\r\n\r\n");
                stream.write_all(head.as_bytes()).await.ok()?;
                std::future::pending::<()>().await;
            }
        }
    }
}

fn ok(body: impl ToString) -> Reply {
    Reply::Answer("200 OK", body.to_string())
}

fn failed(status: &'static str, code: u16, reason: &str) -> Reply {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": reason});
    Reply::Answer(status, body.to_string())
}

fn reply(target: &str) -> Reply {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts[..] {
        ["api", "v1", "nodes"] => nodes(query),
        ["api", "v1", "nodes", node, "proxy", ref rest @ ..] => kubelet(node, rest),
        ["api", "v1", "namespaces", namespace, "persistentvolumeclaims", name] => {
            let claim = CLAIMS.iter().find(|(known, _)| *known == name);
            let Some((_, volume)) = claim else { return failed("404 Not Found", 404, "NotFound") };
            ok(json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"volumeName": volume.unwrap_or_default()}}))
        }
        ["api", "v1", "persistentvolumes", name] => {
            let source = match name {
                "local-1" => json!({"local": {"path": "/mnt"}}),
                _ => json!({"csi": {"driver": "d", "volumeHandle": "h"}}),
            };
            ok(json!({"kind": "PersistentVolume", "apiVersion": "v1",
                "metadata": {"name": name}, "spec": source}))
        }
        [case, ref rest @ ..] => kubelet(case, rest),
        [] => failed("404 Not Found", 404, "NotFound"),
    }
}

fn kubelet(case: &str, path: &[&str]) -> Reply {
    let answer = match path {
        ["stats", "summary"] if case.starts_with("sparse") => SPARSE,
        ["stats", "summary"] => NODE,
        ["pods"] => PODS,
        _ => return failed("404 Not Found", 404, "NotFound"),
    };
    ok(answer.replace('@', case))
}

/// Only lists and watches of a node by its name.
fn nodes(query: &str) -> Reply {
    if query.contains("sendInitialEvents") {
        return failed("422 Unprocessable Entity", 422, "Invalid");
    }
    if query.contains("watch=") {
        return Reply::Watch;
    }
    let name = query.split('&').find_map(|it| it.strip_prefix("fieldSelector=metadata.name"));
    let name = name.unwrap_or_default().trim_start_matches("%3D").trim_start_matches('=');
    ok(json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
        "items": [{"metadata": {"name": name, "uid": "n", "resourceVersion": "1"},
            "status": {"capacity": {"cpu": "3920m", "memory": "32564740Ki", "pods": "110"}}}]}))
}
