//! A receiver, its engine and its targets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_config::load::read_text;
use sluice_net::auth::client::ClientAuths;
use sluice_net::server::ServerResources;
use sluice_receivers::prometheus::PrometheusConfig;
use sluice_receivers::{
    BindContext, ReceiverConfig, ReceiverContext, ReceiverCounters, StartedReceiver, Streams,
};
use sluice_telemetry::exposition::{Exposition, Naming};

use crate::engine::{Door, Engine};

/// Memory for series, if a test is not about it.
const MEMORY_BYTES: usize = 64 << 20;

pub(crate) struct Scene {
    pub(crate) engine: Arc<Engine>,
    running: Option<Box<dyn StartedReceiver>>,
    pub(crate) counters: Arc<dyn ReceiverCounters>,
    pub(crate) memory_bytes: usize,
}

/// A job whose targets are scraped four times a second. `more`: lines of options.
pub(crate) fn job(name: &str, targets: &[std::net::SocketAddr], more: &str) -> String {
    let targets: Vec<String> = targets.iter().map(|it| format!("'{it}'")).collect();
    let more: String = more.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "    - job_name: {name}\n      scrape_interval: 250ms\n      scrape_timeout: 250ms\n      \
         static_configs: [{{targets: [{}]}}]\n{more}",
        targets.join(", ")
    )
}

fn config(jobs: &str, more: &str) -> PrometheusConfig {
    let text = format!("{more}config:\n  scrape_configs:\n{jobs}");
    let (config, diagnostics) = read_text("receivers.prometheus", &text, PrometheusConfig::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    config
}

async fn serve(
    config: PrometheusConfig,
    engine: &Arc<Engine>,
    counters: Option<Arc<dyn ReceiverCounters>>,
    memory_bytes: usize,
) -> Box<dyn StartedReceiver> {
    let context = ReceiverContext {
        ingress: Arc::new(Door(Arc::clone(engine))),
        authenticators: HashMap::new(),
        resources: ServerResources::unlimited(),
        counters,
        client_authenticators: ClientAuths::default(),
        user_agent: "sluice/test",
        streams: Streams::default(),
    };
    let bind = BindContext { id: "prometheus", memory_bytes, ..BindContext::default() };
    config.bind(bind).await.expect("binds").serve(context)
}

impl Scene {
    pub(crate) async fn start(jobs: &str) -> Scene {
        Scene::start_with(jobs, "", Engine::default(), MEMORY_BYTES).await
    }

    /// `more`: options beside the jobs.
    pub(crate) async fn start_with(
        jobs: &str,
        more: &str,
        engine: Engine,
        memory_bytes: usize,
    ) -> Scene {
        let engine = Arc::new(engine);
        let running = serve(config(jobs, more), &engine, None, memory_bytes).await;
        let counters = running.counters();
        Scene { engine, running: Some(running), counters, memory_bytes }
    }

    /// As the engine does: the successor begins before this one ends.
    pub(crate) async fn reload(&mut self, jobs: &str) {
        let before = Some(self.counters.clone());
        let next = serve(config(jobs, ""), &self.engine, before, self.memory_bytes).await;
        self.stop().await;
        self.running = Some(next);
    }

    pub(crate) async fn stop(&mut self) {
        let running = self.running.take().expect("it runs");
        let ended = tokio::time::timeout(Duration::from_secs(20), running.shutdown()).await;
        ended.expect("it ends");
    }

    /// The value of a metric: the sum of the series with this label, or of all.
    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let naming = Naming::default();
        let mut exposition = Exposition::new(&naming);
        self.counters.write("prometheus", &mut exposition);
        let text = exposition.render();
        let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    pub(crate) async fn until_last(&self, series: &str, value: Option<f64>) {
        until(&format!("{series} is {value:?}"), || self.engine.last(series) == Some(value)).await;
    }

    pub(crate) async fn until_points(&self, series: &str, count: usize) {
        let what = format!("{series} has {count} points");
        until(&what, || self.engine.of(series).len() >= count).await;
    }
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
