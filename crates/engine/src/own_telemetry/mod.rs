//! Own metrics and log lines, pushed over OTLP as `service.telemetry` says. They have their own
//! bounded memory and connections: a backend that takes nothing costs the pipelines nothing, and
//! what is logged about it is not pushed.

mod lines;
mod reader;
mod sender;
pub(crate) mod stats;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use http::HeaderValue;
use sluice_config::document::{LogProcessor, PeriodicReader};
use sluice_exporters::{BuildContext, Files, Pages};
use sluice_flow::Exporter;
use sluice_net::auth::client::ClientAuths;
use sluice_otlp::Signal;
use sluice_telemetry::logging::{LogQueue, LogTap, push_span};
use sluice_telemetry::otlp::metrics::Reports;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use self::lines::Lines;
use self::reader::{Reader, Status};
use self::sender::{Pauses, Sender, Source};
use self::stats::PushStats;
use crate::engine::{Engine, USER_AGENT};
use crate::error::{Result, StartError};
use crate::metrics;
use crate::plan::{OwnTelemetryPlan, Push};

/// The end, and a destination that a reload removes, may send for this long.
const LAST_SENDING: Duration = Duration::from_secs(5);

/// All destinations of own telemetry.
pub struct OwnTelemetry {
    tap: Arc<LogTap>,
    began: SystemTime,
    status: Status,
    plan: OwnTelemetryPlan,
    running: Vec<Running>,
}

/// One destination, while it runs.
struct Running {
    stats: Arc<PushStats>,
    /// None for one of log lines.
    reader: Option<Arc<Reader>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The exporters of another plan. They have not sent anything yet.
pub struct Prepared {
    plan: OwnTelemetryPlan,
    readers: Vec<Option<Arc<dyn Exporter>>>,
    processors: Vec<Option<Arc<dyn Exporter>>>,
}

impl OwnTelemetry {
    /// Log lines are sent from now on, metrics once [`OwnTelemetry::attach`] was called.
    ///
    /// # Errors
    /// If an exporter cannot be made, for example because a certificate cannot be read.
    pub fn start(plan: &OwnTelemetryPlan, tap: &Arc<LogTap>) -> Result<OwnTelemetry> {
        let mut own = OwnTelemetry {
            tap: tap.clone(),
            began: SystemTime::now(),
            status: Arc::default(),
            plan: OwnTelemetryPlan::default(),
            running: Vec::new(),
        };
        let prepared = own.prepare(plan)?;
        own.apply(prepared);
        Ok(own)
    }

    /// Metrics are those of this engine.
    pub fn attach(&self, engine: &Engine) {
        let _ = self.status.set(engine.status.clone());
        self.show();
    }

    /// Makes the exporters of another plan, of those that are new or changed.
    ///
    /// # Errors
    /// As for [`OwnTelemetry::start`]. Nothing has changed then.
    pub fn prepare(&self, plan: &OwnTelemetryPlan) -> Result<Prepared> {
        let has_changed = !plan.has_same_resource(&self.plan);
        let is_kept = |name: &str, is_same: bool| is_same && !has_changed && self.runs(name);
        let of_reader = |push: &Push<PeriodicReader>| {
            let is_same = self.plan.readers.contains(push);
            (!is_kept(&push.name, is_same)).then(|| build(push, Signal::Metrics)).transpose()
        };
        let of_processor = |push: &Push<LogProcessor>| {
            let is_same = self.plan.processors.contains(push);
            (!is_kept(&push.name, is_same)).then(|| build(push, Signal::Logs)).transpose()
        };
        Ok(Prepared {
            readers: plan.readers.iter().map(of_reader).collect::<Result<_>>()?,
            processors: plan.processors.iter().map(of_processor).collect::<Result<_>>()?,
            plan: plan.clone(),
        })
    }

    /// Takes over a plan. Destinations that stay as they are go on; those that end send the rest.
    pub fn apply(&mut self, Prepared { plan, readers, processors }: Prepared) {
        let is_replaced = |name: &str| {
            let of_plan = plan.readers.iter().map(|it| &it.name).zip(&readers);
            let of_logs = plan.processors.iter().map(|it| &it.name).zip(&processors);
            let mut all = of_plan.chain(of_logs);
            all.find(|(other, _)| *other == name).is_none_or(|(_, exporter)| exporter.is_some())
        };
        let running = std::mem::take(&mut self.running);
        let (ending, kept): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|it| is_replaced(&it.stats.name));
        self.running = kept;
        // The last report of the one and the beginning of the other are at the same moment.
        let now = SystemTime::now();
        let families = self.status.get().map(|status| metrics::families(status));
        for old in &ending {
            if let (Some(reader), Some(families)) = (&old.reader, &families) {
                reader.report(families, now);
            }
        }
        let began: Vec<_> = readers.into_iter().zip(&plan.readers).collect();
        for (exporter, push) in began {
            let Some(exporter) = exporter else { continue };
            let reader = self.start_reader(&plan, push, exporter);
            if let Some(families) = &families {
                reader.begin_at(families, now);
            }
        }
        for (exporter, push) in processors.into_iter().zip(&plan.processors) {
            if let Some(exporter) = exporter {
                self.start_processor(&plan, push, exporter);
            }
        }
        self.plan = plan;
        self.show();
        for old in ending {
            self.detach(&old);
            tokio::spawn(old.end().instrument(push_span()));
        }
    }

    /// Sends the last metrics and log lines, within a few seconds. The engine has ended.
    pub async fn shutdown(mut self) {
        let families = self.status.get().map(|status| metrics::families(status));
        let running = std::mem::take(&mut self.running);
        for it in &running {
            self.detach(it);
            if let (Some(reader), Some(families)) = (&it.reader, &families) {
                reader.report(families, SystemTime::now());
            }
        }
        join_all(running.into_iter().map(Running::end)).instrument(push_span()).await;
    }

    fn runs(&self, name: &str) -> bool {
        self.running.iter().any(|it| it.stats.name == name)
    }

    fn show(&self) {
        if let Some(status) = self.status.get() {
            let pushes = self.running.iter().map(|it| it.stats.clone()).collect();
            status.pushes.store(Arc::new(pushes));
        }
    }

    fn detach(&self, running: &Running) {
        if let Some(queue) = &running.stats.lines {
            self.tap.remove(queue);
        }
    }

    fn start_reader(
        &mut self,
        plan: &OwnTelemetryPlan,
        push: &Push<PeriodicReader>,
        exporter: Arc<dyn Exporter>,
    ) -> Arc<Reader> {
        let PeriodicReader { interval, timeout, temporality, .. } = push.options;
        let stats = Arc::new(PushStats::new(Signal::Metrics, push.name.clone(), None));
        let reports = Reports::new(plan.resource(), temporality, self.began);
        let reader = Arc::new(Reader::new(reports, plan.queue_bytes, stats));
        let stop = CancellationToken::new();
        let (ticking, status, stopped) = (reader.clone(), self.status.clone(), stop.clone());
        let ticks = async move { ticking.run(status, interval, stopped).await };
        tokio::spawn(ticks.instrument(push_span()));
        let sender = sender(push, exporter, timeout, reader.stats.clone());
        self.run(sender, reader.clone(), Some(reader.clone()), stop);
        reader
    }

    fn start_processor(
        &mut self,
        plan: &OwnTelemetryPlan,
        push: &Push<LogProcessor>,
        exporter: Arc<dyn Exporter>,
    ) {
        let LogProcessor { delay, timeout, queue_max, batch_max, .. } = push.options;
        let queue = Arc::new(LogQueue::new(queue_max, plan.queue_bytes, batch_max));
        let name = push.name.clone();
        let stats = Arc::new(PushStats::new(Signal::Logs, name, Some(queue.clone())));
        self.tap.add(queue.clone());
        let source = Arc::new(Lines { queue, resource: plan.resource(), delay, batch_max });
        let sender = sender(push, exporter, timeout, stats);
        self.run(sender, source, None, CancellationToken::new());
    }

    fn run(
        &mut self,
        sender: Sender,
        source: Arc<impl Source>,
        reader: Option<Arc<Reader>>,
        stop: CancellationToken,
    ) {
        let stats = sender.stats.clone();
        let work = sender.run(source, stop.clone());
        let task = tokio::spawn(work.instrument(push_span()));
        self.running.push(Running { stats, reader, stop, task });
    }
}

fn sender<T>(
    push: &Push<T>,
    exporter: Arc<dyn Exporter>,
    timeout: Duration,
    stats: Arc<PushStats>,
) -> Sender {
    let timeout = timeout.min(exporter.timeout());
    Sender { exporter, timeout, stats, endpoint: push.shown_endpoint(), pauses: Pauses::default() }
}

impl Running {
    /// Sends the rest, for a few seconds.
    async fn end(mut self) {
        self.stop.cancel();
        if tokio::time::timeout(LAST_SENDING, &mut self.task).await.is_err() {
            self.task.abort();
            let _ = self.task.await;
        }
        let waiting = self.stats.waiting();
        if waiting > 0 {
            let destination = &self.stats.name;
            tracing::warn!(%destination, waiting, "own telemetry is lost: it could not be sent");
        }
    }
}

fn build<T>(push: &Push<T>, signal: Signal) -> Result<Arc<dyn Exporter>> {
    // Connections are made in tasks that begin here.
    let _span = push_span().entered();
    let context = BuildContext {
        name: &push.name,
        authenticators: &ClientAuths::new(),
        servers: &Default::default(),
        listener: None,
        memory_bytes: 0,
        user_agent: HeaderValue::from_static(USER_AGENT),
        files: &Files::default(),
        pages: &Pages::default(),
    };
    let built = push.direct.config(signal).build(&context);
    built.map_err(|error| StartError(format!("service.telemetry.{}: {error}", push.name)))
}

#[cfg(test)]
mod tests;
