//! Attacks on the real binary, one for each way in which a peer can make it hold memory or do work.
//! Guarantee for each: resident memory stays within the limit and a tenth, with few threads and
//! with many, and a well-behaved client beside the attack gets every request accepted and
//! delivered.

mod admin;
mod bodies;
mod bombs;
mod compressed;
mod connections;
mod dead_letters;
#[path = "../gateway/mod.rs"]
mod gateway;
mod headers;
mod packed;
mod peers;
mod scene;
mod waiting;

use std::net::SocketAddr;
use std::time::Duration;

use gateway::{Gateway, SOON, alone, eventually, exporter};
use sluice_load_test::{Backend, BackendOptions, Load, Protocol, Retry};
use sluice_otlp::Signal;

use crate::scene::{Reached, Scene};

const LIMIT_MIB: u64 = 128;
const THREADS: [u16; 2] = [2, 16];
/// Duration of an attack before the well-behaved client begins.
const HEAD_START: Duration = Duration::from_millis(1_300);
const SPANS_PER_S: f64 = 2_000.0;
const DURATION: Duration = Duration::from_secs(2);
/// Enough for all requests, so that none waits for the answer of another.
const STREAMS: usize = 32;

/// Addresses of the gateway. Traces are delivered, the backend of logs is that of the scene, and no
/// pipeline takes metrics.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) metrics: SocketAddr,
    pub(crate) health: SocketAddr,
}

fn config(healthy: &Backend, dead: &Backend) -> String {
    let exporters = exporter("healthy", healthy) + &exporter("dead", dead);
    format!(
        "receivers:\n  otlp:\n    protocols:\n      grpc:\n        include_metadata: true\n      \
         http:\n        include_metadata: true\n\
         exporters:\n{exporters}buffer:\n  memory:\n    limit_mib: {LIMIT_MIB}\n\
         service:\n  pipelines:\n    traces:\n      receivers: [otlp]\n      exporters: [otlp/healthy]\n    \
         logs:\n      receivers: [otlp]\n      exporters: [otlp/dead]\n"
    )
}

/// The tests of an attack, which is an `async fn(Target)` and goes on until it is dropped, in its
/// scene.
macro_rules! withstand {
    ($($attack:ident in $scene:expr),* $(,)?) => {$(
        mod $attack {
            use super::*;

            const SCENE: crate::scene::Scene = $scene;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn beside_it_each_request_is_accepted_within_the_memory_limit() {
                crate::send_beside(&SCENE, Some(super::$attack)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "compares latencies, which needs a machine with nothing else to do"]
            async fn torture_requests_beside_it_are_answered_as_soon_as_without() {
                let without = crate::send_beside(&SCENE, None::<crate::NoAttack>).await;
                let beside = crate::send_beside(&SCENE, Some(super::$attack)).await;
                crate::assert_as_soon(&without, &beside);
            }
        }
    )*};
}
pub(crate) use withstand;

type NoAttack = fn(Target) -> std::future::Pending<()>;

/// The most by which an attack may delay the 99th percentile of the answers.
const LATER_AT_MOST: Duration = Duration::from_millis(20);

fn assert_as_soon(without: &[Duration], beside: &[Duration]) {
    for (without, beside) in without.iter().zip(beside) {
        assert!(
            *beside <= *without + LATER_AT_MOST,
            "{beside:?} beside the attack, {without:?} without"
        );
    }
}

/// Runs an attack, if there is one, beside a well-behaved client. Returns the time within which 99
/// % of the client's requests were accepted, for each number of threads and transport.
async fn send_beside<A: Future<Output = ()>>(
    scene: &Scene,
    attack: Option<fn(Target) -> A>,
) -> Vec<Duration> {
    let _alone = alone().await;
    let mut latencies = Vec::new();
    for threads in THREADS {
        let healthy = Backend::healthy().await.expect("a backend");
        let logs = Backend::start(BackendOptions::default().faults((scene.faults)()))
            .await
            .expect("a backend");
        let directory = tempfile::tempdir().expect("a directory");
        let options = scene.options(threads, &logs, directory.path());
        let gateway = Gateway::start_with(&config(&healthy, &logs), options).await;
        let Gateway { grpc, http, metrics, health, .. } = gateway;
        let target = Target { grpc, http, metrics, health };
        let reached = Reached::new(scene);
        let client = async {
            tokio::time::sleep(HEAD_START).await;
            behave_well(&gateway, &healthy).await
        };
        let attacked = async {
            match attack {
                Some(attack) => tokio::join!(attack(target), reached.watch(metrics)),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            p99 = client => latencies.extend(p99),
            _ = attacked => {}
        }
        if attack.is_some() {
            reached.assert(&gateway).await;
        }
        gateway.assert_memory_within(LIMIT_MIB);
    }
    latencies
}

/// Sends over both transports, and retries where the gateway asks for it.
async fn behave_well(gateway: &Gateway, backend: &Backend) -> [Duration; 2] {
    let retry = Retry::Backoff {
        initial: Duration::from_millis(50),
        max: Duration::from_millis(500),
        give_up_after: Duration::from_secs(10),
    };
    let load = || {
        let load = gateway
            .load(Signal::Traces)
            .rate(SPANS_PER_S)
            .duration(DURATION)
            .concurrency(2, STREAMS);
        load.retry(retry)
    };
    let http = Load { protocol: Protocol::Http, target: gateway.http, ..load() };
    let (grpc, http) = tokio::join!(load().run(), http.run());
    let reports = [grpc.expect("a load"), http.expect("a load")];
    for report in &reports {
        assert_eq!((report.accepted, report.never_sent), (report.offered, 0), "{report:?}");
    }
    let accepted = reports.iter().map(|report| report.accepted).sum();
    let is_delivered = async || backend.counts().items >= accepted;
    assert!(eventually(SOON, is_delivered).await, "{:?} of {accepted}", backend.counts());
    reports.map(|report| report.acknowledged_after.p99)
}
