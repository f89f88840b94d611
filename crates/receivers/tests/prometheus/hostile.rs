//! Targets that do harm.

use std::time::Duration;

use sluice_net::compress;
use sluice_otlp::Encoding;

use crate::engine::Engine;
use crate::scene::{Scene, job, until};
use crate::server::{Reply, Server, answer, open_head, packed, page};

/// Longest page of these jobs.
const LIMIT: &str = "body_size_limit: 1MB\n";

fn bomb(encoding: Encoding) -> Vec<u8> {
    let zeros = [bytes::Bytes::from(vec![b'#'; 20 << 20])];
    compress::compress(encoding, &zeros, None).expect("is packed").to_vec()
}

/// Scenario: pages that never end, or never begin, or are bombs, or are no pages, beside a good
/// target. Guarantee: each is down for its reason; memory stays small, and the good target is
/// scraped at each of its times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_targets_are_down_and_others_are_on_time() {
    let text = |body: &'static str| page(body);
    let gzip = packed("gzip", &bomb(Encoding::Gzip));
    let zstd = packed("zstd", &bomb(Encoding::Zstd));
    let labels: String = (0..20_000).map(|at| format!("l{at}=\"v\",")).collect();
    let long = format!("a{{{labels}}} 1\n");
    let hostile = [
        ("endless", Reply::Endless([open_head(), b"a 1\n#".to_vec()].concat()), "body_size"),
        ("announces", answer_of_length(1 << 40), "body_size"),
        ("silent", Reply::Stalled(Vec::new()), "timeout"),
        ("stalls", Reply::Stalled([open_head(), b"a 1\n".to_vec()].concat()), "timeout"),
        ("gzip_bomb", gzip, "body_size"),
        ("zstd_bomb", zstd, "body_size"),
        ("not_gzip", packed("gzip", b"a 1\n"), "encoding"),
        ("unknown_encoding", packed("br", b"a 1\n"), "encoding"),
        ("not_http", Reply::Whole(b"SSH-2.0-x\r\n\r\n".to_vec()), "connection"),
        ("not_a_page", text("a 1\n<html>\n"), "page"),
        ("error", answer("500 Internal Server Error", "", b"a 1\n"), "status"),
        ("labels", page(&long), "label_limit"),
    ];
    let good = Server::with_page("a 1\n").await;
    let mut jobs = job("good", &[good.address], "");
    let mut servers = Vec::new();
    for (name, reply, _) in &hostile {
        let reply = reply.clone();
        let server = Server::start(move |_| reply.clone()).await;
        let more = if *name == "labels" { "label_limit: 100\n" } else { "" };
        jobs += &job(name, &[server.address], &format!("{LIMIT}{more}"));
        servers.push(server);
    }
    let engine = Engine { most_bytes: Some(64 << 20), ..Engine::default() };
    let scene = Scene::start_with(&jobs, "", engine, 64 << 20).await;
    for (name, ..) in &hostile {
        scene.until_points(&format!("{name} up{{}}"), 2).await;
        assert_eq!(scene.engine.last(&format!("{name} up{{}}")), Some(Some(0.0)), "{name}");
        assert_eq!(scene.engine.of(&format!("{name} a{{}}")), [], "{name}");
    }
    for reason in ["body_size", "timeout", "encoding", "connection", "page", "status"] {
        let label = format!("reason=\"{reason}\"");
        assert!(scene.metric("sluice_prometheus_failed_scrapes", &label) > 0.0, "{reason}");
    }
    let before = scene.engine.of("good a{}").len();
    scene.until_points("good a{}", before + 8).await;
    let times: Vec<u64> =
        scene.engine.of("good a{}")[before..].iter().map(|it| it.time_ms).collect();
    // A busy machine may be late by a slot.
    let late = times.windows(2).filter(|pair| pair[1] - pair[0] > 550).count();
    assert!(late <= 1, "{times:?}");
    let peak = scene.engine.peak_bytes.load(std::sync::atomic::Ordering::SeqCst);
    assert!(peak < 40 << 20, "{peak}");
}

fn answer_of_length(length: u64) -> Reply {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\na 1\n"
    );
    Reply::Stalled(head.into_bytes())
}

/// Scenario: a page with series twice, with a metric whose type changes, and samples far ahead.
/// Guarantee: the rest arrives, and what is left out is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_series_do_not_cost_the_good_ones() {
    let server = Server::start(|_| {
        let ahead = std::time::SystemTime::now() + Duration::from_secs(3600);
        let ahead = ahead.duration_since(std::time::UNIX_EPOCH).expect("is later").as_millis();
        page(&format!(
            "good 1\ntwice 2\ntwice 3\n# TYPE turns counter\nturns 4\nahead 5 {ahead}\n\
             # TYPE turns gauge\nturns{{a=\"b\"}} 6\n"
        ))
    })
    .await;
    let scene = Scene::start(&job("j", &[server.address], "")).await;
    scene.until_points("j good{}", 3).await;
    assert_eq!(scene.engine.last("j up{}"), Some(Some(1.0)));
    assert_eq!(scene.engine.last("j twice{}"), Some(Some(2.0)));
    assert_eq!(scene.engine.of("j ahead{}"), []);
    let discarded = scene.metric("sluice_prometheus_discarded_samples", "");
    assert!(discarded >= 6.0, "{discarded}");
}

/// Scenario: a job has more targets than `target_limit`. Guarantee: all are down, and none is
/// asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_with_too_many_targets_is_down() {
    let (first, second) = (Server::with_page("a 1\n").await, Server::with_page("a 1\n").await);
    let target = job("j", &[first.address, second.address], "target_limit: 1");
    let scene = Scene::start(&target).await;
    let failed = || scene.metric("sluice_prometheus_failed_scrapes", "reason=\"target_limit\"");
    until("both fail", || failed() >= 4.0).await;
    scene.until_last("j up{}", Some(0.0)).await;
    assert!(first.heads.lock().is_empty() && second.heads.lock().is_empty());
}
