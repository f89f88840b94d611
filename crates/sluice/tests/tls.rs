//! TLS at the doors of the real binary, with real clients: certificates and authorities that change
//! while it runs, mutual TLS, versions.

mod doors;
mod gateway;

use std::path::Path;
use std::sync::Arc;

use doors::{Authority, Papers, ask, connect, exchange_symlink, export, grpc, https, spans};
use gateway::{Gateway, SOON, eventually, fan_out};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use sluice_load_test::Backend;
use sluice_otlp::Signal;
use tempfile::TempDir;

const BOTH_VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&TLS12, &TLS13];

/// A gateway whose two ports have TLS with the files of a folder.
struct Site {
    gateway: Gateway,
    backend: Backend,
    folder: TempDir,
}

impl Site {
    async fn start(folder: TempDir, more: &str) -> Site {
        let backend = Backend::healthy().await.expect("a backend");
        let path = folder.path().display();
        let tls = format!(
            "tls: {{cert_file: {path}/tls.crt, key_file: {path}/tls.key, reload_interval: 50ms{more}}}"
        );
        let doors =
            format!("receivers: {{otlp: {{protocols: {{grpc: {{{tls}}}, http: {{{tls}}}}}}}}}\n");
        let gateway =
            Gateway::start(&(doors + &fan_out(Signal::Traces, 256, &[("backend", &backend)])))
                .await;
        Site { gateway, backend, folder }
    }

    /// One export over a new connection of each port.
    async fn takes(&self, trusted: &Authority, own: Option<&Papers>) -> [bool; 2] {
        let over_grpc = grpc(self.gateway.grpc, trusted, own).export(spans(1)).await;
        [over_grpc.is_ok(), self.takes_http(&https(trusted, own, BOTH_VERSIONS)).await]
    }

    async fn takes_http(&self, config: &Arc<ClientConfig>) -> bool {
        // With TLS 1.3 a client learns only from the first answer that its certificate was refused.
        let answer = async { export(&mut connect(self.gateway.http, config).await?).await };
        matches!(answer.await, Ok(200))
    }
}

/// A folder as Kubernetes mounts a secret: the files are links into `..data`, which is a link to a
/// version's folder.
fn mounted(first: &Papers, second: &Papers) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    for (version, papers) in [("..v1", first), ("..v2", second)] {
        std::fs::create_dir(folder.path().join(version)).expect("a folder");
        papers.write(&folder.path().join(version));
    }
    exchange_symlink(folder.path(), "..v1");
    for name in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(format!("..data/{name}"), folder.path().join(name))
            .expect("a symlink");
    }
    folder
}

fn written(papers: &Papers) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    papers.write(folder.path());
    folder
}

/// Scenario: while clients are connected, the certificate is replaced by one of another authority.
/// Guarantee: new connections to both ports see the new one and only that; the open ones go on;
/// nothing is lost.
async fn a_certificate_changes(make: fn(&Papers, &Papers) -> TempDir, change: fn(&Path, &Papers)) {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let second = new.issue();
    let site = Site::start(make(&old.issue(), &second), "").await;
    let mut open_grpc = grpc(site.gateway.grpc, &old, None);
    open_grpc.export(spans(1)).await.expect("is accepted");
    let mut open_http =
        connect(site.gateway.http, &https(&old, None, BOTH_VERSIONS)).await.expect("connects");
    assert_eq!(export(&mut open_http).await.expect("is answered"), 200);
    assert_eq!(site.takes(&new, None).await, [false, false]);

    change(site.folder.path(), &second);
    let taken = eventually(SOON, async || site.takes(&new, None).await == [true, true]).await;
    assert!(taken, "{}", site.gateway.output());
    assert_eq!(site.takes(&old, None).await, [false, false]);
    // A client that had to connect again would not trust the new certificate.
    open_grpc.export(spans(1)).await.expect("is accepted");
    assert_eq!(export(&mut open_http).await.expect("is answered"), 200);
    let accepted = site.gateway.metric("otelcol_receiver_accepted_spans", &[]).await as u64;
    assert!(accepted >= 6, "{accepted}");
    assert!(
        eventually(SOON, async || site.backend.counts().items == accepted).await,
        "{:?}",
        site.backend.counts()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_certificate_files_take_effect() {
    a_certificate_changes(|first, _| written(first), |folder, second| second.write(folder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_kubernetes_updates_takes_effect() {
    a_certificate_changes(mounted, |folder, _| exchange_symlink(folder, "..v2")).await;
}

/// Guarantee: a health check that has TLS answers over TLS, and over nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_health_check_may_have_tls() {
    let authority = Authority::new("own");
    let folder = written(&authority.issue());
    let path = folder.path().display();
    let check = format!(
        "extensions: {{health_check: {{tls: {{cert_file: {path}/tls.crt, key_file: {path}/tls.key}}}}}}\n"
    );
    let backend = Backend::healthy().await.expect("a backend");
    let config = check + &fan_out(Signal::Traces, 256, &[("backend", &backend)]);
    let gateway = Gateway::start(&config).await;
    let trusting = https(&authority, None, BOTH_VERSIONS);
    let is_up = async || {
        let Ok(mut stream) = connect(gateway.health, &trusting).await else { return false };
        ask(&mut stream, "GET /", &[], b"").await.is_ok_and(|answer| answer.status == 200)
    };
    assert!(eventually(SOON, is_up).await, "{}", gateway.output());
    assert_eq!(gateway.health().await.map(|(status, _)| status), None);
}

/// Scenario: half of a renewal (a certificate without its key), then a file that is no certificate,
/// then no file. Guarantee: each is reported, the old certificate stays in use, and the whole
/// renewal takes effect at last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_cannot_be_used_changes_nothing() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let second = new.issue();
    let site = Site::start(written(&old.issue()), "").await;
    let file = site.folder.path().join("tls.crt");
    let bad: [&dyn Fn(); 3] = [
        &|| std::fs::write(&file, &second.certificate).expect("is written"),
        &|| {
            std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
                .expect("is written")
        },
        &|| std::fs::remove_file(&file).expect("is removed"),
    ];
    for (index, spoil) in bad.iter().enumerate() {
        spoil();
        // Each of the two ports reads the files.
        site.gateway.wait_for_output("cannot be used", 2 * (index + 1)).await;
        assert_eq!(site.takes(&old, None).await, [true, true]);
    }
    second.write(site.folder.path());
    assert!(
        eventually(SOON, async || site.takes(&new, None).await == [true, true]).await,
        "{}",
        site.gateway.output()
    );
}

/// Guarantee: with mutual TLS only clients of the right authority can send. When the authority's
/// file is replaced, clients of the new one can send, and clients of the old one cannot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutual_tls_follows_its_authorities() {
    let (server, old, new) =
        (Authority::new("server"), Authority::new("old"), Authority::new("new"));
    let folder = written(&server.issue());
    let file = folder.path().join("clients.pem");
    std::fs::write(&file, old.pem()).expect("a file");
    let site = Site::start(folder, &format!(", client_ca_file: {}", file.display())).await;
    let (of_old, of_new) = (old.issue(), new.issue());
    let let_in = async || {
        let mut results = Vec::new();
        for own in [Some(&of_old), Some(&of_new), None] {
            results.push(site.takes(&server, own).await);
        }
        results
    };
    let (yes, no) = ([true; 2], [false; 2]);
    assert_eq!(let_in().await, [yes, no, no]);
    std::fs::write(&file, old.pem() + &new.pem()).expect("is written");
    assert!(
        eventually(SOON, async || let_in().await == [yes, yes, no]).await,
        "{}",
        site.gateway.output()
    );
    std::fs::write(&file, new.pem()).expect("is written");
    assert!(
        eventually(SOON, async || let_in().await == [no, yes, no]).await,
        "{}",
        site.gateway.output()
    );
    let accepted = site.gateway.metric("otelcol_receiver_accepted_spans", &[]).await as u64;
    assert!(
        eventually(SOON, async || site.backend.counts().items == accepted).await,
        "{:?}",
        site.backend.counts()
    );
}

/// Guarantee: `min_version` shuts out older clients, and plain text is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_versions_and_plain_text_are_refused() {
    let authority = Authority::new("authority");
    let site = Site::start(written(&authority.issue()), ", min_version: '1.3'").await;
    assert!(site.takes_http(&https(&authority, None, &[&TLS13])).await);
    assert!(!site.takes_http(&https(&authority, None, &[&TLS12])).await);
    let mut plain = tokio::net::TcpStream::connect(site.gateway.http).await.expect("connects");
    let answer = tokio::time::timeout(SOON, export(&mut plain)).await.expect("ends");
    assert!(!matches!(answer, Ok(200)), "{answer:?}");
    assert!(site.takes_http(&https(&authority, None, &[&TLS13])).await, "others go on");
}
