//! Pages of the state of the process, asked for while deliveries come and go: each is answered, and
//! nothing panics.

mod gateway;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gateway::{Gateway, SOON, fan_out, faulty_backend, get};
use sluice_load_test::{Backend, Faults};
use sluice_otlp::Signal;
use tokio::task::JoinSet;

const RELOADS: usize = 1_000;
const STOPS: usize = 100;

/// Tasks that ask for one page after the other.
struct Polling {
    tasks: JoinSet<()>,
    ends: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
}

impl Polling {
    /// Each page is asked for all the time, until the process has ended or this is stopped.
    fn start(gateway: &Gateway) -> Self {
        let (mut tasks, ends, answers) = (JoinSet::new(), Arc::default(), Arc::default());
        let pages = [
            (gateway.metrics, "/metrics"),
            (gateway.metrics, "/log"),
            (gateway.metrics, "/dead-letters"),
            (gateway.health, "/"),
        ];
        for (address, path) in pages {
            let (ends, answers): (Arc<AtomicBool>, Arc<AtomicU64>) =
                (Arc::clone(&ends), Arc::clone(&answers));
            tasks.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    // Without an answer the listener is closed: the process ends.
                    let Some((status, body)) = get(address, path).await else { return };
                    let is_ending = path == "/" && status == 503;
                    assert!(status == 200 || is_ending, "{path}: {status} {body}");
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Polling { tasks, ends, answers }
    }

    fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    async fn stop(mut self) {
        self.ends.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("every answer is one");
        }
    }
}

/// One backend that is up and one that is dead, so that deliveries have something to tell.
fn config(backends: &[(&str, &Backend)], directory: &Path) -> String {
    let buffer = format!("buffer:\n  directory: {}\n", directory.display());
    // Each reload is seen by its line.
    let service = "service:\n  telemetry:\n    logs:\n      sampling:\n        enabled: false\n";
    let config = fan_out(Signal::Traces, 128, backends).replace("buffer:\n", &buffer);
    config.replace("service:\n", service)
}

fn assert_no_panic(gateway: &Gateway) {
    let output = gateway.output();
    let panics: Vec<&str> = output.lines().filter(|line| line.contains("panicked")).collect();
    assert!(panics.is_empty(), "{panics:#?}");
}

/// Scenario: a pipeline is added and removed at each reload while it has a backlog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_answered_through_reloads() {
    let (up, dead) =
        (Backend::healthy().await.expect("a backend"), faulty_backend(Faults::dead()).await);
    let directory = tempfile::tempdir().expect("a directory");
    let one = config(&[("up", &up)], directory.path());
    let both = config(&[("up", &up), ("dead", &dead)], directory.path());
    let gateway = Gateway::start(&both).await;
    gateway.accepts(100).await;
    let mut polling = Polling::start(&gateway);
    for reload in 0..RELOADS {
        gateway.reload(if reload % 2 == 0 { &one } else { &both }).await;
    }
    assert!(polling.tasks.try_join_next().is_none(), "a page was not answered");
    assert!(polling.answers() > RELOADS as u64, "{} answers", polling.answers());
    polling.stop().await;
    assert_no_panic(&gateway);
    gateway.accepts(100).await;
}

/// Scenario: a process with a backlog is stopped, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_answered_until_the_process_ends() {
    let (up, dead) =
        (Backend::healthy().await.expect("a backend"), faulty_backend(Faults::dead()).await);
    let directory = tempfile::tempdir().expect("a directory");
    let both = config(&[("up", &up), ("dead", &dead)], directory.path());
    for _ in 0..STOPS {
        let mut gateway = Gateway::start(&both).await;
        let polling = Polling::start(&gateway);
        gateway.accepts(100).await;
        gateway.terminate();
        let status = gateway.ended_within(SOON).await;
        assert_eq!(status.code(), Some(0), "{}", gateway.output());
        polling.stop().await;
        assert_no_panic(&gateway);
    }
}
