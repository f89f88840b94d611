//! Collections, with a mock of the engine and without an API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use sluice_config::read_text;
use sluice_flow::source::{
    ArrivedBody, Ingress, IngressRoute, MemoryPool, Permit, Receipt, Request,
};
use sluice_flow::{BoxFuture, Refusal};
use sluice_kubernetes::Resource;
use sluice_otlp::{Encoding, Signal, scan};
use sluice_telemetry::exposition::{Exposition, Naming};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::config::Options;
use super::counters::Counters;
use super::record::Kept;
use super::task::Task;
use super::watches::Watches;
use crate::large_work::LargeWork;
use crate::receiver::ReceiverCounters as _;

#[derive(Default)]
struct Engine {
    /// Lengths and items of requests.
    requests: Mutex<Vec<(usize, u32)>>,
    is_closed: AtomicBool,
    is_slow: AtomicBool,
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl MemoryPool for Engine {
    fn take(&self, _: usize, bytes: usize) -> Result<(), Refusal> {
        let used = self.used_bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.peak_bytes.fetch_max(used, Ordering::SeqCst);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }
}

struct Door(Arc<Engine>);

impl Ingress for Door {
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>> {
        (signal == Signal::Metrics).then(|| Arc::new(Door(self.0.clone())) as _)
    }

    fn waiting(&self, _: bool) -> Arc<dyn MemoryPool> {
        self.0.clone()
    }
}

impl IngressRoute for Door {
    fn admit<'a>(
        &'a self,
        bytes: usize,
        _: &'a ArrivedBody,
    ) -> BoxFuture<'a, Result<Permit, Refusal>> {
        Box::pin(async move { self.admit_at_once(bytes) })
    }

    fn admit_at_once(&self, bytes: usize) -> Result<Permit, Refusal> {
        if self.0.is_closed.load(Ordering::SeqCst) {
            return Err(Refusal::overloaded("it is closed"));
        }
        Permit::take(self.0.clone(), bytes)
    }

    fn judge_again(&self, _: &Permit) -> Result<(), Refusal> {
        Ok(())
    }

    fn keeps_compressed(&self, _: Encoding, _: usize) -> bool {
        false
    }

    fn metadata_keys(&self) -> &[String] {
        &[]
    }

    fn submit(self: Arc<Self>, request: Request, permit: Permit) -> Result<Receipt, Refusal> {
        let bytes = &request.payload.bytes;
        assert_eq!(permit.bytes(), bytes.len(), "it is admitted for what it is");
        assert_eq!(scan(Signal::Metrics, bytes), Ok(request.items));
        self.0.requests.lock().push((bytes.len(), request.items));
        let pace: BoxFuture<'static, ()> = Box::pin(async move {
            while self.0.is_slow.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(5)).await;
            }
        });
        Ok(Receipt { pace: Some(pace), answer: None })
    }
}

struct Scene {
    engine: Arc<Engine>,
    watches: Arc<Watches>,
    counters: Arc<Counters>,
    stop: CancellationToken,
}

impl Scene {
    /// A receiver that runs, with this interval, before anything is listed.
    fn start(interval: &str) -> Scene {
        let yaml = format!("collection_interval: {interval}");
        let (options, diagnostics) = read_text("receivers.k8s_cluster", &yaml, Options::read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        let (engine, counters) = (Arc::<Engine>::default(), Arc::<Counters>::default());
        let watches = Arc::new(Watches::new(&options));
        counters.begin(&watches);
        let task = Task {
            receiver: "k8s_cluster".into(),
            ingress: Arc::new(Door(engine.clone())),
            options,
            watches: watches.clone(),
            counters: counters.clone(),
            large_work: LargeWork::new(),
            start_ns: 1,
        };
        let stop = CancellationToken::new();
        tokio::spawn(task.run(stop.clone()));
        Scene { engine, watches, counters, stop }
    }

    fn list(&self, pods: usize) {
        let pod = |number: usize| {
            let name = format!("pod-with-a-name-of-usual-length-{number}");
            let object = json!({"metadata": {"name": name, "namespace": "n",
                "uid": format!("00000000-0000-0000-0000-{number:012}")}});
            Kept::Pod(serde_json::from_value(object).expect("a pod"))
        };
        self.watches.list(Resource::Pods, (0..pods).map(pod).collect());
    }

    fn requests(&self) -> Vec<(usize, u32)> {
        self.engine.requests.lock().clone()
    }

    /// The sum of a metric.
    fn metric(&self, name: &str) -> f64 {
        let naming = Naming::default();
        let mut exposition = Exposition::new(&naming);
        self.counters.write("it", &mut exposition);
        let text = exposition.render();
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Scene) -> bool) {
        for _ in 0..2000 {
            if is_so(self) {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
        panic!("not in time: {what}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Scenario: thousands of pods are listed, and no other kind is given to us. Guarantee: nothing is
/// sent before that; then each collection is cut into requests of limited length, each of which has
/// memory from the engine, and none is lost.
#[tokio::test]
async fn a_collection_is_cut_into_requests() {
    let scene = Scene::start("200ms");
    sleep(Duration::from_millis(500)).await;
    assert_eq!(scene.requests(), []);
    scene.list(4000);
    scene.until("two collections", |it| it.requests().len() >= 8).await;
    let requests = scene.requests();
    let mut sum = 0;
    let of_first = |(_, items): &&(usize, u32)| {
        let is_of_first = sum < 4000;
        sum += items;
        is_of_first
    };
    let first: Vec<_> = requests.iter().take_while(of_first).collect();
    assert_eq!(first.iter().map(|(_, items)| items).sum::<u32>(), 4000, "{requests:?}");
    assert!(first.len() >= 3, "{requests:?}");
    assert!(requests.iter().all(|(bytes, _)| *bytes < 520 << 10), "{requests:?}");
    assert!(scene.engine.peak_bytes.load(Ordering::SeqCst) <= 1 << 20);
    assert_eq!(scene.metric("sluice_k8s_cluster_objects{"), 4000.0);
    assert!(scene.metric("sluice_k8s_cluster_memory_bytes{") > 4000.0 * 300.0);
    scene.stop.cancel();
    scene.until("its end", |it| it.engine.used_bytes.load(Ordering::SeqCst) == 0).await;
}

/// Scenario: the engine takes nothing for a while, and then makes the receiver wait. Guarantee:
/// what is refused is counted, the next collections come, and those that a wait leaves no time for
/// are left out and counted.
#[tokio::test]
async fn refusals_and_waits_cost_only_collections() {
    let scene = Scene::start("100ms");
    scene.engine.is_closed.store(true, Ordering::SeqCst);
    scene.list(3);
    let refused = "sluice_receiver_refused_requests{";
    scene.until("refusals", |it| it.metric(refused) >= 2.0).await;
    assert_eq!(scene.requests(), []);
    scene.engine.is_slow.store(true, Ordering::SeqCst);
    scene.engine.is_closed.store(false, Ordering::SeqCst);
    scene.until("a request", |it| it.requests().len() == 1).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(scene.requests().len(), 1, "it waits");
    scene.engine.is_slow.store(false, Ordering::SeqCst);
    scene.until("the next", |it| it.requests().len() >= 3).await;
    assert!(scene.requests().iter().all(|(_, items)| *items == 3));
    assert!(scene.metric("sluice_k8s_cluster_missed_collections") >= 3.0);
}
