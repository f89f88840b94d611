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
mod growth;
mod headers;
mod packed;
mod peers;
mod scene;
mod waiting;

use std::net::SocketAddr;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

use gateway::{Gateway, SOON, alone, eventually, exporter, faulty_backend};
use sluice_load_test::{Backend, Load, LoadReport, Protocol, Retry};
use sluice_otlp::Signal;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::scene::{Reached, Scene};

const LIMIT_MIB: u64 = 128;
const THREADS: [u16; 2] = [2, 16];
/// Duration of an attack before the well-behaved client begins.
const HEAD_START: Duration = Duration::from_millis(1_300);
const SPANS_PER_S: f64 = 2_000.0;

/// A well-behaved client. It may have as many requests in flight as come in a second and more.
#[derive(Clone, Copy)]
struct Client {
    spans_per_request: u32,
    duration: Duration,
    streams: usize,
}

/// 40 requests over each transport.
const A_FEW: Client =
    Client { spans_per_request: 100, duration: Duration::from_secs(2), streams: 32 };
/// 400: enough for a 99th percentile.
const MANY: Client =
    Client { spans_per_request: 20, duration: Duration::from_secs(4), streams: 200 };

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
                crate::keep_within_memory(&SCENE, super::$attack).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "compares latencies, which needs a machine with nothing else to do"]
            async fn torture_requests_beside_it_are_answered_as_soon_as_without() {
                crate::compare(&SCENE, super::$attack).await;
            }
        }
    )*};
}
pub(crate) use withstand;

async fn keep_within_memory<A: Future<Output = ()> + Send + 'static>(
    scene: &Scene,
    attack: fn(Target) -> A,
) {
    let _alone = alone().await;
    for threads in THREADS {
        send_beside(scene, Some(attack), threads, A_FEW).await;
    }
}

/// The most by which an attack may delay the 99th percentile of the answers.
const LATER_AT_MOST: Duration = Duration::from_millis(20);

/// The machine may be busy with something else: the result of most comparisons counts.
const COMPARISONS: usize = 3;

async fn compare<A: Future<Output = ()> + Send + 'static>(scene: &Scene, attack: fn(Target) -> A) {
    let _alone = alone().await;
    let cores = available_parallelism().map_or(1, NonZero::get);
    // More threads than cores wait for each other, beside any client.
    let threads = THREADS.into_iter().filter(|threads| usize::from(*threads) <= cores.max(2));
    for threads in threads {
        let (mut as_soon, mut later) = (0, Vec::new());
        while as_soon.max(later.len()) <= COMPARISONS / 2 {
            let without = match scene.compared_with {
                Some(faults) => {
                    let delivered = Scene { faults, at_least: 0.0, ..*scene };
                    send_beside(&delivered, Some(attack), threads, MANY).await
                }
                None => {
                    let none = None::<fn(Target) -> std::future::Pending<()>>;
                    send_beside(scene, none, threads, MANY).await
                }
            };
            let beside = send_beside(scene, Some(attack), threads, MANY).await;
            println!("gRPC, HTTP: {without:.1?} without the attack, {beside:.1?} beside it");
            let mut pairs = without.iter().zip(&beside);
            if pairs.all(|(without, beside)| *beside <= *without + LATER_AT_MOST) {
                as_soon += 1;
            } else {
                later.push(format!("{beside:?} beside the attack, {without:?} without"));
            }
        }
        assert!(as_soon > COMPARISONS / 2, "gRPC, HTTP: {later:#?}");
    }
}

/// Runs an attack, if there is one, beside a well-behaved client. Returns the time within which 99
/// % of the client's requests were accepted, for each transport.
async fn send_beside<A: Future<Output = ()> + Send + 'static>(
    scene: &Scene,
    attack: Option<fn(Target) -> A>,
    threads: u16,
    client: Client,
) -> [Duration; 2] {
    let healthy = Backend::healthy().await.expect("a backend");
    let attackers = Attackers::start();
    let logs = attackers.spawn(faulty_backend((scene.faults)())).await.expect("a backend");
    let directory = tempfile::tempdir().expect("a directory");
    let options = scene.options(threads, &logs, directory.path());
    let gateway = Gateway::start_with(&config(&healthy, &logs), options).await;
    let Gateway { grpc, http, metrics, health, .. } = gateway;
    let target = Target { grpc, http, metrics, health };
    let reached = Reached::new(scene);
    let sent = async {
        tokio::time::sleep(HEAD_START).await;
        behave_well(client, target, &healthy).await
    };
    let latencies = match attack {
        Some(attack) => {
            attackers.spawn(attack(target));
            tokio::select! {
                latencies = sent => latencies,
                never = reached.watch(metrics) => never,
            }
        }
        None => sent.await,
    };
    if attack.is_some() {
        reached.assert(&gateway).await;
    }
    gateway.assert_memory_within(LIMIT_MIB);
    latencies
}

/// The threads of the attackers and of the backend that their requests go to. They get CPU time
/// after all others: in truth they have machines of their own.
struct Attackers(Option<Runtime>);

impl Attackers {
    fn start() -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder
            .worker_threads(2)
            .enable_all()
            .on_thread_start(|| _ = rustix::process::setpriority_process(None, 19))
            .build();
        Attackers(Some(runtime.expect("a runtime")))
    }

    fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.as_ref().expect("runs until it is dropped").spawn(task)
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Sends over both transports, and waits until all is delivered. The client has threads of its own:
/// those of the attackers are busy with the attack.
async fn behave_well(client: Client, target: Target, backend: &Backend) -> [Duration; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let send = move || runtime.expect("a runtime").block_on(send(client, target));
    let reports = tokio::task::spawn_blocking(send).await.expect("ends");
    for report in &reports {
        assert_eq!((report.accepted, report.never_sent), (report.offered, 0), "{report:?}");
    }
    let accepted = reports.iter().map(|report| report.accepted).sum();
    let is_delivered = async || backend.counts().items >= accepted;
    assert!(eventually(SOON, is_delivered).await, "{:?} of {accepted}", backend.counts());
    reports.map(|report| report.acknowledged_after.p99)
}

/// Retries where the gateway asks for it.
async fn send(client: Client, target: Target) -> [LoadReport; 2] {
    let retry = Retry::Backoff {
        initial: Duration::from_millis(50),
        max: Duration::from_millis(500),
        give_up_after: Duration::from_secs(10),
    };
    let grpc = Load::new(Signal::Traces, target.grpc)
        .rate(SPANS_PER_S)
        .duration(client.duration)
        .items_per_request(client.spans_per_request)
        .concurrency(2, client.streams)
        .retry(retry);
    let http = Load { protocol: Protocol::Http, target: target.http, ..grpc.clone() };
    let (grpc, http) = tokio::join!(grpc.run(), http.run());
    [grpc.expect("a load"), http.expect("a load")]
}
