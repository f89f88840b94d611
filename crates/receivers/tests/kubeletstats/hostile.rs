//! Kubelets that do harm.

use std::sync::Arc;

use crate::engine::Engine;
use crate::scene::{SERIES, Scene, node, until};
use crate::server::{Reply, Server, answer, open_head};

const MEMORY_BYTES: usize = 32 << 20;

fn answer_of_length(bytes: u64) -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
    Reply::Whole(head.into_bytes())
}

fn text(body: impl AsRef<[u8]>) -> Reply {
    answer("200 OK", "content-type: application/json\r\n", body.as_ref())
}

/// Scenario: kubelets that refuse, never end, never begin, announce too much, or answer something
/// else, beside a good one. Guarantee: each fails for its reason; memory stays within that of the
/// engine and is given back; the good one is scraped all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_kubelets_fail_and_others_are_on_time() {
    let deep = "[".repeat(10_000);
    let hostile = [
        ("forbidden", answer("403 Forbidden", "", b"Forbidden (user=x)")),
        ("unauthorized", answer("401 Unauthorized", "", b"Unauthorized")),
        ("status", answer("500 Internal Server Error", "", b"oh")),
        ("status", answer("302 Found", "location: http://127.0.0.1/\r\n", b"")),
        ("body_size", answer_of_length(1 << 40)),
        ("timeout", Reply::Stalled(Vec::new())),
        ("timeout", Reply::Stalled([open_head(), b"{\"node\":".to_vec()].concat())),
        ("connection", Reply::Whole(b"SSH-2.0-x\r\n\r\n".to_vec())),
        ("page", text("<html>")),
        ("page", text("")),
        ("page", text("{\"pods\": [")),
        ("page", text(deep)),
        ("page", text([0xff, 0xfe])),
        ("page", answer("200 OK", "content-encoding: gzip\r\n", b"\x1f\x8b")),
    ];
    let engine = Engine { most_bytes: Some(MEMORY_BYTES), ..Engine::default() };
    let engine = Arc::new(engine);
    let good = Server::start(|_| node(7)).await;
    let good = Scene::open(good.address, &engine).await;
    let mut scenes = Vec::new();
    for (reason, reply) in hostile {
        let server = Server::start(move |_| reply.clone()).await;
        let options =
            format!("auth_type: none\ntimeout: 300ms\nendpoint: http://{}\n", server.address);
        scenes.push((reason, Scene::start(&options, &engine).await, server));
    }
    for (reason, scene, _) in &scenes {
        let label = format!("reason=\"{reason}\"");
        scene.until_metric("sluice_kubeletstats_failed_scrapes", &label, 2.0).await;
        let others = scene.metric("sluice_kubeletstats_failed_scrapes", "");
        assert_eq!(others, scene.metric("sluice_kubeletstats_failed_scrapes", &label), "{reason}");
    }
    let points = engine.of(SERIES).len();
    until("the good one goes on", || engine.of(SERIES).len() >= points + 3).await;
    assert_eq!(good.metric("sluice_kubeletstats_failed_scrapes", ""), 0.0);
    for (_, mut scene, _) in scenes {
        scene.stop().await;
    }
    let peak = engine.peak_bytes.load(std::sync::atomic::Ordering::SeqCst);
    assert!(peak <= MEMORY_BYTES, "{peak}");
}

/// Scenario: a kubelet sends without an end, and one sends little that would take very much memory
/// when it is read. Guarantee: both are cut off by the engine's memory, which the lost scrapes say,
/// and give it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_that_of_the_engine() {
    let endless = Reply::Endless([open_head(), b"{\"a\": \"".to_vec(), b" ".to_vec()].concat());
    let objects = format!("{{\"pods\": [{}{{}}]}}", "{},".repeat(1_000_000));
    for reply in [endless, text(objects)] {
        let engine = Engine { most_bytes: Some(MEMORY_BYTES), ..Engine::default() };
        let engine = Arc::new(engine);
        let server = Server::start(move |_| reply.clone()).await;
        let options = format!("auth_type: none\ntimeout: 20s\nendpoint: {}\n", server.address);
        let mut scene = Scene::start(&options, &engine).await;
        scene.until_metric("sluice_receiver_refused_requests", "overloaded", 1.0).await;
        scene.stop().await;
        until("memory is given back", || engine.used_bytes() == 0).await;
        assert!(engine.points.lock().is_empty());
    }
}
