//! A stand-in for the services that detectors ask: EC2, ECS, Google's metadata, Docker's daemon and
//! Kubernetes' API server, all at one address, told apart by their paths.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};

const TEXTS: [(&str, &str); 21] = [
    ("/latest/meta-data/instance-id", "i-123"),
    ("/latest/meta-data/hostname", "ip-10-0-0-1.internal"),
    ("/latest/meta-data/tags/instance", "team\ncost-center\nother"),
    ("/latest/meta-data/tags/instance/team", "blue"),
    ("/latest/meta-data/tags/instance/cost-center", "42"),
    ("/computeMetadata/v1/project/project-id", "project"),
    ("/computeMetadata/v1/instance/id", "4711"),
    ("/computeMetadata/v1/instance/name", "vm"),
    ("/computeMetadata/v1/instance/hostname", "vm.c.project.internal"),
    ("/computeMetadata/v1/instance/zone", "projects/1/zones/us-central1-b"),
    ("/computeMetadata/v1/instance/region", "projects/1/regions/us-central1"),
    ("/computeMetadata/v1/instance/machine-type", "projects/1/machineTypes/e2-medium"),
    ("/computeMetadata/v1/instance/attributes/cluster-name", "cluster"),
    ("/computeMetadata/v1/instance/attributes/cluster-location", "us-central1-b"),
    (
        "/computeMetadata/v1/instance/attributes/created-by",
        "projects/1/regions/us-central1/instanceGroupManagers/group",
    ),
    ("/", "computeMetadata/"),
    ("/_ping", "OK"),
    ("/latest/meta-data/placement/region", "eu-west-1"),
    ("/latest/meta-data/ami-id", "ami-1"),
    ("/computeMetadata/v1/", "instance/\nproject/"),
    ("/computeMetadata/v1/universe/universe-domain", "googleapis.com"),
];

/// The stand-in's addresses.
pub(crate) struct Services {
    pub(crate) http: SocketAddr,
    pub(crate) docker: PathBuf,
    pub(crate) kubeconfig: PathBuf,
}

/// Answers until the test ends. `folder`: for the socket and the kubeconfig.
pub(crate) async fn start(folder: &Path) -> Services {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let http = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    let docker = folder.join("docker.sock");
    let listener = UnixListener::bind(&docker).expect("binds");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    let kubeconfig = folder.join("kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{http}")}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&kubeconfig, text.to_string()).expect("is written");
    Services { http, docker, kubeconfig }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes.drain(..end + 4);
        let (method, target) = (head.split(' ').next()?, head.split(' ').nth(1)?);
        let (status, kind, body) = answer(method, target);
        let (body, length) = (if method == "HEAD" { "" } else { &body }, body.len());
        let reply = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nmetadata-flavor: Google\r\n\
             api-version: 1.47\r\nostype: linux\r\ncontent-length: {length}\r\n\
             x-aws-ec2-metadata-token-ttl-seconds: 300\r\n\r\n{body}"
        );
        stream.write_all(reply.as_bytes()).await.ok()?;
    }
}

fn answer(method: &str, target: &str) -> (&'static str, &'static str, String) {
    let path = target.split('?').next().unwrap_or_default();
    if (method, path) == ("PUT", "/latest/api/token") {
        return ("200 OK", "text/plain", "token".to_owned());
    }
    if let Some((_, text)) = TEXTS.iter().find(|(known, _)| *known == path) {
        return ("200 OK", "text/plain", (*text).to_owned());
    }
    match document(path) {
        Some(document) => ("200 OK", "application/json", document.to_string()),
        None => ("404 Not Found", "text/plain", "there is no such thing".to_owned()),
    }
}

fn document(path: &str) -> Option<serde_json::Value> {
    let container = |id: &str, kind: &str, group: &str| {
        json!({
            "DockerId": id, "Type": kind, "KnownStatus": "RUNNING", "LogDriver": "awslogs",
            "LogOptions": {
                "awslogs-group": group, "awslogs-region": "us-west-2",
                "awslogs-stream": format!("{group}-stream"),
            },
        })
    };
    Some(match path {
        "/latest/dynamic/instance-identity/document" => json!({
            "accountId": "123456789012", "architecture": "x86_64", "imageId": "ami-1",
            "availabilityZone": "eu-west-1c", "instanceId": "i-123", "instanceType": "m5.large",
            "region": "eu-west-1", "version": "2017-09-30", "privateIp": "10.0.0.1",
        }),
        "/ecs/task" => json!({
            "Cluster": "shop", "Family": "family", "Revision": "7", "LaunchType": "FARGATE",
            "TaskARN": "arn:aws:ecs:us-west-2:123456789012:task/shop/abc",
            "AvailabilityZone": "us-west-2a",
            "Containers": [
                container("own", "NORMAL", "own"), container("app", "NORMAL", "app"),
                container("side", "NORMAL", "side"), container("pause", "CNI_PAUSE", "pause"),
            ],
        }),
        "/ecs" => container("own", "NORMAL", "own"),
        "/api/v1/nodes/node-1" => json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-1", "uid": "node-uid"},
        }),
        "/api/v1/namespaces/kube-system" => json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "kube-system", "uid": "cluster-uid"},
        }),
        "/api/v1/namespaces/kube-system/configmaps/kubeadm-config" => json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config"},
            "data": {"ClusterConfiguration":
                "apiServer:\n  timeoutForControlPlane: 4m0s\napiVersion: kubeadm.k8s.io/v1beta3\n\
                 clusterName: my-cluster\nkind: ClusterConfiguration\nnetworking: {}\n"},
        }),
        path if path.ends_with("/info") => json!({"Name": "docker-host", "OSType": "linux"}),
        path if path.contains("/containers/") && path.ends_with("/json") => {
            json!({"Id": "1", "Name": "/agent", "Image": "sha256:abc"})
        }
        _ => return None,
    })
}
