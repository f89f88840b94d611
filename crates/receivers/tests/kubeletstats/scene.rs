//! A receiver, its engine and its kubelet.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_config::load::read_text;
use sluice_net::auth::client::ClientAuths;
use sluice_net::server::ServerResources;
use sluice_receivers::kubeletstats::KubeletStatsConfig;
use sluice_receivers::{
    BindContext, ReceiverConfig, ReceiverContext, ReceiverCounters, StartedReceiver, Streams,
};
use sluice_telemetry::exposition::{Exposition, Naming};

use crate::engine::{Door, Engine};
use crate::server::{Reply, answer};

/// The points of [`node`].
pub(crate) const SERIES: &str = " k8s.node.filesystem.usage{}";

/// The answer of a node of which little is known.
pub(crate) fn node(used_bytes: u64) -> Reply {
    let body = format!(r#"{{"node": {{"nodeName": "n", "fs": {{"usedBytes": {used_bytes}}}}}}}"#);
    answer("200 OK", "content-type: application/json\r\n", body.as_bytes())
}

pub(crate) struct Scene {
    pub(crate) engine: Arc<Engine>,
    pub(crate) running: Option<Box<dyn StartedReceiver>>,
    pub(crate) counters: Arc<dyn ReceiverCounters>,
}

async fn serve(
    options: &str,
    engine: &Arc<Engine>,
    counters: Option<Arc<dyn ReceiverCounters>>,
) -> Box<dyn StartedReceiver> {
    let text = format!("collection_interval: 100ms\ninitial_delay: 0s\n{options}");
    let read = read_text("receivers.kubeletstats", &text, KubeletStatsConfig::read);
    let (config, diagnostics) = read;
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let context = ReceiverContext {
        ingress: Arc::new(Door(Arc::clone(engine))),
        authenticators: HashMap::new(),
        resources: ServerResources::unlimited(),
        counters,
        client_authenticators: ClientAuths::default(),
        user_agent: "sluice/test",
        streams: Streams::default(),
    };
    let bind = BindContext { id: "kubeletstats", ..BindContext::default() };
    config.bind(bind).await.expect("binds").serve(context)
}

impl Scene {
    /// Scrapes ten times a second.
    pub(crate) async fn start(options: &str, engine: &Arc<Engine>) -> Scene {
        let running = serve(options, engine, None).await;
        let counters = running.counters();
        Scene { engine: Arc::clone(engine), running: Some(running), counters }
    }

    /// Without credentials.
    pub(crate) async fn open(kubelet: std::net::SocketAddr, engine: &Arc<Engine>) -> Scene {
        Scene::start(&format!("auth_type: none\nendpoint: {kubelet}\n"), engine).await
    }

    /// As the engine does: the successor begins before this one ends.
    pub(crate) async fn reload(&mut self, options: &str) {
        let next = serve(options, &self.engine, Some(Arc::clone(&self.counters))).await;
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
        self.counters.write("kubeletstats", &mut exposition);
        let text = exposition.render();
        let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    pub(crate) async fn until_metric(&self, name: &str, label: &str, least: f64) {
        until(&format!("{name} {label} is {least}"), || self.metric(name, label) >= least).await;
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
