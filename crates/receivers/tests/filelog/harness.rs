//! A mock of the engine, and a receiver that reads the files of a directory into it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message as _;
use sluice_config::load::read_text;
use sluice_flow::hop::Fetched;
use sluice_flow::source::{
    ArrivedBody, Ingress, IngressRoute, MemoryPool, Permit, Position, Receipt, Request,
};
use sluice_flow::{BoxFuture, Refusal};
use sluice_net::auth::client::ClientAuths;
use sluice_net::server::{ConnectionBudget, OpenConnections, ReadScheduler, ServerResources};
use sluice_otlp::{Encoding, Signal};
use sluice_receivers::filelog::{Counters, FilelogConfig};
use sluice_receivers::{BindContext, ReceiverConfig, ReceiverContext, StartedReceiver, Streams};

/// The engine. Chances are in percent.
#[derive(Default)]
pub(crate) struct Engine {
    pub(crate) records: std::sync::Mutex<Vec<LogRecord>>,
    /// Positions of requests that are not resolved.
    pub(crate) held: std::sync::Mutex<Vec<Position>>,
    pub(crate) holds: AtomicBool,
    /// Requests are not admitted, after this many milliseconds.
    pub(crate) is_closed: AtomicBool,
    pub(crate) refuses_after_ms: AtomicU64,
    pub(crate) refusals: AtomicU64,
    pub(crate) drops: AtomicU64,
    pub(crate) delays: AtomicU64,
    /// The most memory of a request, if it has a limit.
    pub(crate) most_bytes: Option<usize>,
    /// An exporter sends to another Sluice.
    pub(crate) names: AtomicBool,
    pub(crate) gateway: std::sync::Mutex<Gateway>,
    /// A record with this text is refused for good.
    pub(crate) poison: Option<&'static str>,
    pub(crate) memory_bytes: AtomicUsize,
    pub(crate) peak_bytes: AtomicUsize,
    pub(crate) requests: AtomicU64,
    /// Times that memory was asked for.
    pub(crate) admissions: AtomicU64,
}

/// The other Sluice, which stores what it has not had.
#[derive(Default)]
pub(crate) struct Gateway {
    /// The records of a name, whether or not it has had them.
    named: HashMap<(u128, u64), Vec<String>>,
    had: HashMap<(u128, u64), usize>,
    /// Bodies.
    pub(crate) stored: BTreeMap<String, u32>,
    pub(crate) repeated_requests: usize,
    pub(crate) unnamed_records: usize,
}

impl Gateway {
    /// Guarantee: a name stands for the same records in the same order, for ever.
    fn check(&mut self, name: Option<Fetched>, records: &[LogRecord]) {
        let Some(Fetched { run, number }) = name else { return };
        let bodies: Vec<String> = records.iter().map(body).collect();
        let before = self.named.entry((run, number)).or_insert_with(|| bodies.clone());
        assert_eq!(*before, bodies, "the name {run}/{number}");
    }

    fn take(&mut self, name: Option<Fetched>, records: &[LogRecord]) {
        if let Some(Fetched { run, number }) = name {
            let times = self.had.entry((run, number)).or_default();
            *times += 1;
            if *times > 1 {
                self.repeated_requests += 1;
                return;
            }
        } else {
            self.unnamed_records += records.len();
        }
        records.iter().for_each(|it| *self.stored.entry(body(it)).or_default() += 1);
    }
}

fn chance(percent: &AtomicU64) -> bool {
    fastrand::u64(0..100) < percent.load(Ordering::SeqCst)
}

fn refusal() -> Refusal {
    let delay = Duration::from_millis(fastrand::u64(1..5));
    Refusal::Retry { delay, reason: "at random".to_owned() }
}

impl Engine {
    /// Resolves what is held, and all that comes.
    pub(crate) fn release(&self) {
        self.holds.store(false, Ordering::SeqCst);
        self.held.lock().expect("is whole").drain(..).for_each(|position| position.resolve());
    }

    pub(crate) fn lines(&self) -> BTreeMap<String, u32> {
        let mut lines = BTreeMap::new();
        for record in self.records.lock().expect("is whole").iter() {
            *lines.entry(body(record)).or_default() += 1;
        }
        lines
    }

    pub(crate) fn count(&self) -> usize {
        self.records.lock().expect("is whole").len()
    }
}

pub(crate) fn body(record: &LogRecord) -> String {
    match record.body.as_ref().and_then(|body| body.value.clone()) {
        Some(Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
}

impl MemoryPool for Engine {
    fn take(&self, held_bytes: usize, bytes: usize) -> Result<(), Refusal> {
        if self.most_bytes.is_some_and(|most| held_bytes + bytes > most) {
            return Err(Refusal::TooLarge { reason: "it is too large".to_owned() });
        }
        let now = self.memory_bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.peak_bytes.fetch_max(now, Ordering::SeqCst);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.memory_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }
}

struct Door(Arc<Engine>);

impl Ingress for Door {
    fn route(&self, signal: Signal) -> Option<Arc<dyn IngressRoute>> {
        (signal == Signal::Logs).then(|| Arc::new(Door(Arc::clone(&self.0))) as _)
    }

    fn waiting(&self, _: bool) -> Arc<dyn MemoryPool> {
        Arc::clone(&self.0) as _
    }
}

impl IngressRoute for Door {
    fn admit<'a>(
        &'a self,
        bytes: usize,
        _: &'a ArrivedBody,
    ) -> BoxFuture<'a, Result<Permit, Refusal>> {
        Box::pin(async move {
            if self.0.is_closed.load(Ordering::SeqCst) {
                let ms = self.0.refuses_after_ms.load(Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            self.admit_at_once(bytes)
        })
    }

    fn admit_at_once(&self, bytes: usize) -> Result<Permit, Refusal> {
        self.0.admissions.fetch_add(1, Ordering::SeqCst);
        if self.0.is_closed.load(Ordering::SeqCst) || chance(&self.0.refusals) {
            return Err(refusal());
        }
        Permit::take(Arc::clone(&self.0) as Arc<dyn MemoryPool>, bytes)
    }

    fn judge_again(&self, _: &Permit) -> Result<(), Refusal> {
        Ok(())
    }

    fn keeps_compressed(&self, _: Encoding, _: usize) -> bool {
        false
    }

    fn names_ranges(&self) -> bool {
        self.0.names.load(Ordering::SeqCst)
    }

    fn metadata_keys(&self) -> &[String] {
        &[]
    }

    fn submit(self: Arc<Self>, request: Request, permit: Permit) -> Result<Receipt, Refusal> {
        let engine = &self.0;
        assert!(permit.bytes() >= request.payload.bytes.len(), "memory was asked for");
        engine.requests.fetch_add(1, Ordering::SeqCst);
        let name = request.fetched;
        assert!(name.is_none() || engine.names.load(Ordering::SeqCst), "names are not asked for");
        let position = request.position;
        let decoded = ExportLogsServiceRequest::decode(request.payload.bytes).expect("is OTLP");
        let scopes = decoded.resource_logs.into_iter().flat_map(|it| it.scope_logs);
        let records: Vec<LogRecord> = scopes.flat_map(|it| it.log_records).collect();
        assert_eq!(records.len(), request.items as usize);
        engine.gateway.lock().expect("is whole").check(name, &records);
        if chance(&engine.refusals) {
            return Err(refusal());
        }
        if engine.poison.is_some_and(|poison| records.iter().any(|it| body(it) == poison)) {
            return Err(Refusal::Invalid { reason: "it is poison".to_owned() });
        }
        let pace = chance(&engine.delays).then(|| {
            let delay = Duration::from_millis(fastrand::u64(1..20));
            Box::pin(tokio::time::sleep(delay)) as BoxFuture<'static, ()>
        });
        if chance(&engine.drops) {
            return Ok(Receipt { pace, answer: None });
        }
        engine.gateway.lock().expect("is whole").take(name, &records);
        engine.records.lock().expect("is whole").extend(records);
        if engine.holds.load(Ordering::SeqCst) {
            engine.held.lock().expect("is whole").extend(position);
        } else {
            position.iter().for_each(Position::resolve);
        }
        Ok(Receipt { pace, answer: None })
    }
}

/// A receiver and the directory that it reads.
pub(crate) struct Scene {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) engine: Arc<Engine>,
    pub(crate) options: String,
    running: Option<Box<dyn StartedReceiver>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) streams: Streams,
    /// Seconds that pass for the receiver in one.
    rate: u32,
}

impl Scene {
    /// `options` come beside `include`, which means all files of `logs/`.
    pub(crate) async fn start(options: &str) -> Scene {
        Scene::start_with(options, Engine::default()).await
    }

    pub(crate) async fn start_with(options: &str, engine: Engine) -> Scene {
        Scene::start_at(1, options, engine).await
    }

    /// A second of the receiver's time takes the `rate`th part of one.
    pub(crate) async fn start_at(rate: u32, options: &str, engine: Engine) -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("logs")).expect("is made");
        let (engine, counters) = (Arc::new(engine), Arc::default());
        let (options, streams) = (options.to_owned(), Streams::default());
        let mut scene = Scene { folder, engine, options, running: None, counters, streams, rate };
        scene.serve().await;
        scene
    }

    pub(crate) async fn serve(&mut self) {
        let logs = self.folder.path().join("logs");
        let include = match self.options.contains("include:") {
            true => String::new(),
            false => format!("include: ['{}/*'], ", logs.display()),
        };
        let text = format!("{{{include}start_at: beginning, {}}}", self.options);
        let (mut config, diagnostics) = read_text("receivers.filelog", &text, FilelogConfig::read);
        config.rate = self.rate;
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        let context = ReceiverContext {
            ingress: Arc::new(Door(Arc::clone(&self.engine))),
            authenticators: Default::default(),
            resources: ServerResources {
                connections: OpenConnections::new(ConnectionBudget::unlimited()),
                scheduler: ReadScheduler::new(),
            },
            counters: Some(Arc::clone(&self.counters) as _),
            client_authenticators: ClientAuths::default(),
            user_agent: "sluice/test",
            streams: std::mem::take(&mut self.streams),
        };
        let checkpoint = self.checkpoint();
        let mut hasher = DefaultHasher::new();
        self.options.hash(&mut hasher);
        let (checkpoint, fingerprint) = (Some(checkpoint.as_path()), hasher.finish());
        let id = "filelog";
        let bind = BindContext { id, checkpoint, fingerprint, ..BindContext::default() };
        self.running = Some(config.bind(bind).await.expect("binds").serve(context));
    }

    /// Ends the receiver. The next one begins at the checkpoint.
    pub(crate) async fn stop(&mut self) -> Streams {
        self.running.take().expect("it runs").shutdown().await
    }

    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.serve().await;
    }

    /// As a kill of the process does: what is not resolved is lost, and the checkpoint is as it is
    /// on disk now.
    pub(crate) async fn kill(&mut self) {
        let checkpoint = std::fs::read(self.checkpoint()).ok();
        let holds = self.engine.holds.swap(true, Ordering::SeqCst);
        self.stop().await;
        self.engine.held.lock().expect("is whole").clear();
        self.engine.holds.store(holds, Ordering::SeqCst);
        match checkpoint {
            Some(checkpoint) => std::fs::write(self.checkpoint(), checkpoint).expect("is written"),
            None => drop(std::fs::remove_file(self.checkpoint())),
        }
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.folder.path().join("checkpoints/filelog")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("logs").join(name)
    }

    pub(crate) fn append(&self, name: &str, text: &str) {
        append(&self.path(name), text);
    }

    pub(crate) async fn until_lines(&self, count: usize) {
        until(&format!("{count} lines arrive"), || self.engine.count() >= count).await;
    }
}

pub(crate) fn append(path: &Path, text: &str) {
    let mut file = std::fs::File::options().create(true).append(true).open(path).expect("opens");
    file.write_all(text.as_bytes()).expect("is written");
}

pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never happened that {what}");
}
