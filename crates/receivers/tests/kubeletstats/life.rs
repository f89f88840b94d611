//! Scrapes, backpressure, reload, and the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::scene::{SERIES, Scene, node, until};
use crate::server::{Reply, Server, answer};

/// A node whose number grows with each scrape.
async fn counting() -> Server {
    let count = AtomicU64::new(0);
    Server::start(move |_| node(count.fetch_add(1, Ordering::SeqCst))).await
}

/// Scenario: the engine takes nothing, or refuses at submission, or deliveries are behind.
/// Guarantee: whole scrapes are lost, counted by reason, and newer ones follow; a receiver whose
/// delivery is behind waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrapes_that_find_no_room_are_lost_and_counted() {
    let engine = Arc::new(Engine::default());
    let server = counting().await;
    let mut scene = Scene::open(server.address, &engine).await;
    until("points come", || engine.of(SERIES).len() >= 2).await;
    for gate in [&engine.is_closed, &engine.refuses] {
        let refused = scene.metric("sluice_receiver_refused_requests", "overloaded");
        gate.store(true, Ordering::SeqCst);
        scene.until_metric("sluice_receiver_refused_requests", "overloaded", refused + 2.0).await;
        let points = engine.of(SERIES).len();
        gate.store(false, Ordering::SeqCst);
        until("newer points come", || engine.of(SERIES).len() > points).await;
    }
    assert!(scene.metric("otelcol_receiver_refused_metric_points", "") >= 1.0, "it was counted");
    engine.is_behind.store(true, Ordering::SeqCst);
    let waits = || {
        let before = engine.of(SERIES).len();
        std::thread::sleep(Duration::from_millis(400));
        engine.of(SERIES).len() == before
    };
    until("it waits", waits).await;
    let missed = scene.metric("sluice_kubeletstats_missed_scrapes", "");
    engine.is_behind.store(false, Ordering::SeqCst);
    let name = "sluice_kubeletstats_missed_scrapes";
    scene.until_metric(name, "", missed + 1.0).await;
    let values = engine.values(SERIES);
    assert!(values.is_sorted(), "each is newer: {values:?}");
    scene.stop().await;
    assert_eq!(engine.used_bytes(), 0);
    assert_eq!(
        scene.metric("otelcol_receiver_accepted_metric_points", ""),
        engine.of(SERIES).len() as f64
    );
}

/// Scenario: a reload, and an end while the kubelet is silent. Guarantee: counters go on, and the
/// end does not wait for the kubelet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_go_on_and_the_end_is_soon() {
    let engine = Arc::new(Engine::default());
    let server = counting().await;
    let mut scene = Scene::open(server.address, &engine).await;
    scene.until_metric("sluice_kubeletstats_scrapes", "", 2.0).await;
    let silent = Server::start(|_| Reply::Stalled(Vec::new())).await;
    let options = format!("auth_type: none\ntimeout: 1h\nendpoint: {}\n", silent.address);
    scene.reload(&options).await;
    assert!(scene.metric("sluice_kubeletstats_scrapes", "") >= 2.0);
    until("it asks", || !silent.heads.lock().is_empty()).await;
    let began = Instant::now();
    scene.stop().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Scenario: a kubelet over TLS, whose authority we know, or do not know, or do not ask for.
/// Guarantee: an unknown one is a failure; a certificate of ours is shown if there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubelets_are_asked_over_tls() {
    let folder = tempfile::tempdir().expect("a directory");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (server, authority) = Server::start_tls(|_| node(1)).await;
    let own = rcgen::generate_simple_self_signed(["sluice".to_owned()]).expect("generates");
    std::fs::write(at("ca"), authority).expect("is written");
    std::fs::write(at("cert"), own.cert.pem()).expect("is written");
    std::fs::write(at("key"), own.signing_key.serialize_pem()).expect("is written");
    let own = format!("cert_file: {}\nkey_file: {}\n", at("cert"), at("key"));
    let endpoint = format!("endpoint: {}\n", server.address);
    for (more, is_good) in [
        (format!("ca_file: {}\n", at("ca")), true),
        ("insecure_skip_verify: true\n".to_owned(), true),
        (String::new(), false),
    ] {
        let engine = Arc::new(Engine::default());
        let mut scene = Scene::start(&format!("{endpoint}{own}{more}"), &engine).await;
        if is_good {
            until("points come", || !engine.of(SERIES).is_empty()).await;
        } else {
            let reason = "reason=\"connection\"";
            scene.until_metric("sluice_kubeletstats_failed_scrapes", reason, 1.0).await;
            assert!(engine.of(SERIES).is_empty());
        }
        scene.stop().await;
    }
}

/// Guarantee: `/pods` is asked for if it is needed, a missing permission for it fails the scrape,
/// and containers without metadata are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_is_asked_for_if_it_is_wanted() {
    let summary = r#"{"pods": [{"podRef": {"name": "p", "namespace": "n", "uid": "u"},
        "containers": [{"name": "c", "rootfs": {"usedBytes": 1}},
        {"name": "new", "rootfs": {"usedBytes": 1}}]}]}"#;
    let pods = r#"{"items": [{"metadata": {"uid": "u"}, "status": {"containerStatuses":
        [{"name": "c", "containerID": "containerd://x"}]}}]}"#;
    let server = Server::start(move |head| {
        let body = if head.starts_with("GET /pods ") { pods } else { summary };
        answer("200 OK", "", body.as_bytes())
    })
    .await;
    let engine = Arc::new(Engine::default());
    let options = format!(
        "auth_type: none\nendpoint: {}/\nextra_metadata_labels: [container.id]\n",
        server.address
    );
    let mut scene = Scene::start(&options, &engine).await;
    scene.until_metric("sluice_kubeletstats_skipped_objects", "", 2.0).await;
    let of_container = |resource: &String| resource.contains("k8s.container.name=");
    let found: Vec<String> =
        engine.resources.lock().iter().filter(|it| of_container(it)).cloned().collect();
    assert!(!found.is_empty());
    assert!(
        found.iter().all(|it| it.ends_with("k8s.container.name=c,container.id=x")),
        "{found:?}"
    );
    scene.stop().await;
    assert!(server.heads.lock().iter().all(|head| !head.contains("//stats")), "one slash");
}
