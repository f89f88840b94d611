//! Series and targets that come and go, the end and reloads.

use std::fs;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::scene::{Scene, job};
use crate::server::{Server, page};

/// A target whose page can be changed.
async fn changing(body: &str) -> (Server, Arc<Mutex<String>>) {
    let body = Arc::new(Mutex::new(body.to_owned()));
    let shown = body.clone();
    (Server::start(move |_| page(&shown.lock())).await, body)
}

/// Scenario: a series leaves the page, then the target is gone. Guarantee: the series ends once,
/// and all others when the target no longer answers; then its `up` is 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_end_when_they_or_their_target_are_gone() {
    let (server, body) = changing("a 1\nb 2\n").await;
    let scene = Scene::start(&job("j", &[server.address], "")).await;
    scene.until_last("j a{}", Some(1.0)).await;
    *body.lock() = "b 3\n".to_owned();
    scene.until_last("j a{}", None).await;
    scene.until_last("j b{}", Some(3.0)).await;
    drop(server);
    scene.until_last("j b{}", None).await;
    scene.until_last("j up{}", Some(0.0)).await;
    scene.until_points("j up{}", scene.engine.of("j up{}").len() + 2).await;
    let ends = |series: &str| {
        let values = scene.engine.values(series);
        values.iter().filter(|value| value.is_none()).count()
    };
    assert_eq!((ends("j a{}"), ends("j b{}"), ends("j up{}")), (1, 1, 0));
}

/// Scenario: targets of a file; one is taken out of it. Guarantee: all of its series end, those of
/// the report with them, and it is not asked any more. The other one stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_end_when_their_target_is_no_longer_wanted() {
    let (first, second) = (Server::with_page("a 1\n").await, Server::with_page("b 2\n").await);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("targets.yml");
    let write = |targets: &[&Server]| {
        let targets: Vec<_> = targets.iter().map(|it| format!("'{}'", it.address)).collect();
        fs::write(&file, format!("- targets: [{}]\n", targets.join(","))).expect("is written");
    };
    write(&[&first, &second]);
    let jobs = format!(
        "    - job_name: j\n      scrape_interval: 250ms\n      scrape_timeout: 250ms\n      \
         file_sd_configs: [{{files: ['{}'], refresh_interval: 50ms}}]\n      \
         relabel_configs: [{{source_labels: [__address__], target_label: at}}]\n",
        file.display()
    );
    let scene = Scene::start(&jobs).await;
    let series = |name: &str, server: &Server| format!("j {name}{{at={}}}", server.address);
    scene.until_last(&series("a", &first), Some(1.0)).await;
    scene.until_last(&series("b", &second), Some(2.0)).await;
    write(&[&second]);
    for name in ["a", "up", "scrape_duration_seconds"] {
        scene.until_last(&series(name, &first), None).await;
    }
    let (asked, points) = (first.heads.lock().len(), scene.engine.of(&series("b", &second)).len());
    scene.until_points(&series("b", &second), points + 4).await;
    assert_eq!(first.heads.lock().len(), asked);
    assert_eq!(scene.engine.last(&series("a", &first)), Some(None));
    assert_eq!(scene.metric("sluice_prometheus_targets", ""), 1.0);
}

/// Guarantee: at the end all series end; with `scrape_on_shutdown` after one more scrape.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_end_with_the_receiver() {
    for (more, value) in [("", 1.0), ("scrape_on_shutdown: true\n", 2.0)] {
        let (server, body) = changing("a 1\n").await;
        let target = job("j", &[server.address], "").replace("250ms", "5s");
        let mut scene = Scene::start_with(&target, more, Default::default(), 64 << 20).await;
        scene.until_last("j a{}", Some(1.0)).await;
        *body.lock() = "a 2\n".to_owned();
        scene.stop().await;
        let values = scene.engine.values("j a{}");
        assert_eq!(values[values.len() - 2..], [Some(value), None], "{values:?}");
        assert_eq!(scene.engine.last("j up{}"), Some(None));
    }
}

/// Scenario: a reload adds a job, changes one and removes one. Guarantee: the unchanged job's
/// series go on as known ones, and never end. Those of the others end, and the changed job's come
/// back with their new labels.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_ends_only_series_that_change() {
    let server = Server::with_page("a 1\n").await;
    let of = |name: &str, more: &str| job(name, &[server.address], more);
    let jobs = of("stays", "") + &of("changes", "") + &of("leaves", "");
    let mut scene = Scene::start(&jobs).await;
    for name in ["stays", "changes", "leaves"] {
        scene.until_last(&format!("{name} a{{}}"), Some(1.0)).await;
    }
    let more = "metric_relabel_configs: [{target_label: b, replacement: c}]";
    scene.reload(&(of("stays", "") + &of("changes", more) + &of("comes", ""))).await;
    scene.until_last("comes a{}", Some(1.0)).await;
    scene.until_last("changes a{}", None).await;
    scene.until_last("changes a{b=c}", Some(1.0)).await;
    scene.until_points("stays a{}", scene.engine.of("stays a{}").len() + 2).await;
    assert!(scene.engine.values("stays a{}").iter().all(Option::is_some));
    let added = scene.engine.values("stays scrape_series_added{}");
    assert_eq!(added[0], Some(1.0));
    assert!(added[1..].iter().all(|value| *value == Some(0.0)), "{added:?}");
    // The target may be found again: its series end later, or with the receiver.
    assert_eq!(scene.engine.last("leaves a{}"), Some(Some(1.0)));
    scene.stop().await;
    assert_eq!(scene.engine.last("leaves a{}"), Some(None));
    assert_eq!(scene.engine.last("stays a{}"), Some(None));
}
