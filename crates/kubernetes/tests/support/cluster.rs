//! A real API server with its store, on loopback, for tests. No kubelet: pods have the status that
//! a test gives them.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http::{Method, Request};
use kube::Config;
use kube::config::AuthInfo;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Time for a server to start on a busy machine.
const START: Duration = Duration::from_secs(90);

/// Tokens of users, as [`Cluster::kubeconfig`] takes them. The first one may do everything, the
/// others what a test allows them.
pub(crate) const ADMIN: &str = "admin-token";
pub(crate) const LIMITED: &str = "limited-token";
const USERS: &str = "admin-token,admin,1,\"system:masters\"\nlimited-token,limited,2\n";

pub(crate) struct Cluster {
    folder: TempDir,
    api_server: PathBuf,
    ports: Ports,
    /// Killed with it.
    etcd: Child,
    running: Option<Child>,
    admin: kube::Client,
}

struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api: u16,
}

impl Cluster {
    /// `components`: the paths of etcd and of the API server.
    pub(crate) async fn start(components: [PathBuf; 2]) -> Cluster {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path();
        let [etcd, api_server] = components;
        let key = rcgen::KeyPair::generate().expect("a key");
        std::fs::write(path.join("sa.key"), key.serialize_pem()).expect("writes");
        std::fs::write(path.join("sa.pub"), key.public_key_pem()).expect("writes");
        std::fs::write(path.join("tokens.csv"), USERS).expect("writes");
        let [etcd_port, etcd_peer, api] = free_ports();
        let ports = Ports { etcd: etcd_port, etcd_peer, api };
        let mut etcd = start_etcd(&etcd, path, &ports);
        await_etcd(&mut etcd, path).await;
        let admin = client(&Cluster::url_of(ports.api), ADMIN).await;
        let running = None;
        let mut cluster = Cluster { folder, api_server, ports, etcd, running, admin };
        cluster.start_api().await;
        cluster
    }

    /// Starts the API server, on the same port as before.
    pub(crate) async fn start_api(&mut self) {
        let path = self.folder.path();
        let log = std::fs::File::create(path.join("api.log")).expect("a file");
        let flag = |name: &str, file: &str| format!("--{name}={}", path.join(file).display());
        let running = Command::new(&self.api_server)
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--secure-port={}", self.ports.api))
            .arg(flag("cert-dir", "certs"))
            .arg("--service-cluster-ip-range=10.99.0.0/24")
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(flag("service-account-key-file", "sa.pub"))
            .arg(flag("service-account-signing-key-file", "sa.key"))
            .arg(flag("token-auth-file", "tokens.csv"))
            .args(["--authorization-mode=RBAC", "--endpoint-reconciler-type=none"])
            .args(["--disable-admission-plugins=ServiceAccount", "--etcd-compaction-interval=0"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.running = Some(running.expect("starts"));
        let until = Instant::now() + START;
        loop {
            let ready = Request::get("/readyz").body(Vec::new()).expect("a request");
            let answer = self.admin.request_text(ready).await;
            if answer.is_ok_and(|answer| answer == "ok") {
                return;
            }
            let ended = self.running.as_mut().and_then(|running| running.try_wait().ok().flatten());
            let is_alive = ended.is_none() && Instant::now() < until;
            assert!(is_alive, "the API server is not ready: {}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Kills the API server; its store goes on.
    pub(crate) fn kill_api(&mut self) {
        self.running.take().iter_mut().for_each(end);
    }

    pub(crate) fn url(&self) -> String {
        Cluster::url_of(self.ports.api)
    }

    pub(crate) fn port(&self) -> u16 {
        self.ports.api
    }

    /// The certificate that the API server has made for itself.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join("certs/apiserver.crt")
    }

    /// A kubeconfig for a token.
    pub(crate) fn kubeconfig(&self, token: &str) -> PathBuf {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": self.url(), "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let path = self.folder.path().join(format!("kubeconfig-{token}"));
        std::fs::write(&path, text.to_string()).expect("writes");
        path
    }

    /// Creates an object in a collection: `/api/v1/namespaces/default/pods`.
    pub(crate) async fn create(&self, path: &str, object: Value) -> Value {
        self.ask(Method::POST, path, "application/json", &object).await
    }

    /// Creates an object of a manifest, as it is written. Refused if a field is unknown, given
    /// twice or of the wrong type.
    pub(crate) async fn create_strictly(&self, path: &str, yaml: &str) -> Result<(), String> {
        let request = Request::post(format!("{path}?fieldValidation=Strict"))
            .header(http::header::CONTENT_TYPE, "application/yaml")
            .header(http::header::ACCEPT, "application/json")
            .body(yaml.as_bytes().to_vec())
            .expect("a request");
        let answer = self.admin.request_text(request).await;
        answer.map(drop).map_err(|error| error.to_string())
    }

    /// Changes the fields of an object or of its status.
    pub(crate) async fn patch(&self, path: &str, change: Value) -> Value {
        self.ask(Method::PATCH, path, "application/merge-patch+json", &change).await
    }

    pub(crate) async fn delete(&self, path: &str) {
        let options = json!({"gracePeriodSeconds": 0});
        self.ask(Method::DELETE, path, "application/json", &options).await;
    }

    /// Creates a pod in a namespace, with this address if there is one. Returns its UID.
    pub(crate) async fn pod(&self, namespace: &str, mut pod: Value, address: &str) -> String {
        if pod["spec"]["containers"].is_null() {
            pod["spec"]["containers"] = json!([{"name": "main", "image": "example.com/app:1.0"}]);
        }
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let made = self.create(&pods, pod).await;
        let name = made["metadata"]["name"].as_str().expect("a name");
        if !address.is_empty() {
            let status = json!({"status": {"phase": "Running", "podIP": address,
                "podIPs": [{"ip": address}], "startTime": "2026-11-28T07:00:00Z"}});
            self.patch(&format!("{pods}/{name}/status"), status).await;
        }
        made["metadata"]["uid"].as_str().expect("a UID").to_owned()
    }

    /// Lets the limited user list and watch a kind of objects in all namespaces.
    pub(crate) async fn allow(&self, name: &str, group: &str, resource: &str) {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let rule = json!({"apiGroups": [group], "resources": [resource],
            "verbs": ["list", "watch"]});
        let role = json!({"metadata": {"name": name}, "rules": [rule]});
        self.create(&format!("{RBAC}/clusterroles"), role).await;
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
                "name": "limited"}],
        });
        self.create(&format!("{RBAC}/clusterrolebindings"), binding).await;
    }

    /// Waits until the API server serves a collection, whose definition it has just got.
    pub(crate) async fn is_served(&self, path: &str) {
        let until = Instant::now() + START;
        let get = || Request::get(path).body(Vec::new()).expect("a request");
        while self.admin.request_text(get()).await.is_err() {
            assert!(Instant::now() < until, "{path} is not served");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn ask(&self, method: Method, path: &str, kind: &str, body: &Value) -> Value {
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(http::header::CONTENT_TYPE, kind)
            .body(body.to_string().into_bytes())
            .expect("a request");
        let answer = self.admin.request_text(request).await;
        let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        serde_json::from_str(&answer).unwrap_or_default()
    }

    fn url_of(port: u16) -> String {
        format!("https://127.0.0.1:{port}")
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("api.log"));
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_api();
        end(&mut self.etcd);
    }
}

/// Waits until etcd serves: the API server gives up on a store that is slower than it.
async fn await_etcd(etcd: &mut Child, path: &Path) {
    let until = Instant::now() + START;
    let log = || std::fs::read_to_string(path.join("etcd.log")).unwrap_or_default();
    while !log().contains("ready to serve client requests") {
        let is_alive = etcd.try_wait().is_ok_and(|ended| ended.is_none());
        assert!(is_alive && Instant::now() < until, "etcd does not serve: {}", log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn start_etcd(etcd: &Path, path: &Path, ports: &Ports) -> Child {
    let (client, peer) = (
        format!("http://127.0.0.1:{}", ports.etcd),
        format!("http://127.0.0.1:{}", ports.etcd_peer),
    );
    let log = std::fs::File::create(path.join("etcd.log")).expect("a file");
    let started = Command::new(etcd)
        .arg(format!("--data-dir={}", path.join("etcd").display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=default={peer}"))
        .arg("--unsafe-no-fsync")
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    started.expect("starts")
}

fn end(process: &mut Child) {
    let ended: io::Result<_> = process.kill().and_then(|()| process.wait());
    // It may have ended by itself.
    drop(ended);
}

/// Ports below those that the kernel gives to outgoing connections: of these, one may be taken
/// between this call and the start of its server.
fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let free = || loop {
        let number =
            std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + u16::try_from(number % 20_000).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    };
    [(); N].map(|()| free())
}

async fn client(url: &str, token: &str) -> kube::Client {
    let mut config = Config::new(url.parse().expect("a URL"));
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    kube::Client::try_from(config).expect("a client")
}
