//! Where an attack takes place, and what shows that it reached its target.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_load_test::scrape::Scrape;
use sluice_load_test::{Backend, Faults};

use crate::gateway::{Gateway, Options, delaying, eventually};

type Labels = &'static [(&'static str, &'static str)];

/// The backend of logs, the configuration of an attack, and its target.
#[derive(Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) faults: fn() -> Faults,
    /// Is merged over the configuration that all attacks share. May name `${env:BACKEND}`, the
    /// backend of logs, and `${env:DIRECTORY}`, which is empty.
    pub(crate) config: &'static str,
    /// The sum of this metric shows that the attack reached its target. Without a name: the number
    /// of calls of [`hit`].
    pub(crate) metric: &'static str,
    pub(crate) labels: Labels,
    pub(crate) at_least: f64,
    /// The answers beside the attack are compared with those beside nothing, or beside the same
    /// requests to a backend with these faults.
    pub(crate) compared_with: Option<fn() -> Faults>,
}

pub(crate) const CONNECTIONS_TOTAL: &str = "sluice_receiver_connections_total";

/// The backend of logs is dead.
pub(crate) const DEAD_LOGS: Scene = Scene {
    faults: Faults::dead,
    config: "{}",
    metric: "",
    labels: &[],
    at_least: 0.0,
    compared_with: None,
};

/// The log is in the directory of the attack.
pub(crate) const ON_DISK: &str = "buffer: {directory: '${env:DIRECTORY}'}";

/// A backend for which requests wait with all that was made of them.
pub(crate) fn slow() -> Faults {
    Faults { discard: true, ..delaying(Duration::from_millis(500)) }
}

impl Scene {
    pub(crate) const fn reaches(self, metric: &'static str, labels: Labels, least: f64) -> Self {
        Scene { metric, labels, at_least: least, ..self }
    }

    /// As many requests are refused for this reason.
    pub(crate) const fn refuses(self, reason: Labels, at_least: f64) -> Self {
        self.reaches("sluice_receiver_refused_requests_total", reason, at_least)
    }

    /// For targets that no metric shows.
    pub(crate) const fn hits(self, at_least: f64) -> Self {
        self.reaches("", &[], at_least)
    }

    pub(crate) fn options(&self, threads: u16, backend: &Backend, directory: &Path) -> Options {
        let args = ["--config", "env:ATTACK", "--threads"].map(str::to_owned).to_vec();
        let env = [
            ("ATTACK", self.config.to_owned()),
            ("BACKEND", backend.addr().to_string()),
            ("DIRECTORY", directory.display().to_string()),
        ];
        Options {
            args: [args, vec![threads.to_string()]].concat(),
            env: env.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            ..Options::default()
        }
    }
}

static HITS: AtomicU64 = AtomicU64::new(0);

/// An attacker saw that it reached its target. Counts for the attack that runs.
pub(crate) fn hit() {
    HITS.fetch_add(1, Ordering::Relaxed);
}

/// The most of its metric that an attack has reached.
pub(crate) struct Reached<'a> {
    scene: &'a Scene,
    most: Cell<f64>,
}

impl<'a> Reached<'a> {
    pub(crate) fn new(scene: &'a Scene) -> Self {
        HITS.store(0, Ordering::Relaxed);
        Reached { scene, most: Cell::new(0.0) }
    }

    /// Looks at the metric from time to time, until enough was seen, and then for ever.
    pub(crate) async fn watch<T>(&self, metrics: SocketAddr) -> T {
        const PAUSE: Duration = Duration::from_millis(200);
        while self.most.get() < self.scene.at_least {
            tokio::time::sleep(PAUSE).await;
            self.look(metrics).await;
        }
        std::future::pending().await
    }

    async fn look(&self, metrics: SocketAddr) {
        let Scene { metric, labels, .. } = *self.scene;
        let now = if metric.is_empty() {
            Some(HITS.load(Ordering::Relaxed) as f64)
        } else {
            let scrape = Scrape::fetch(metrics, "/metrics").await;
            scrape.ok().and_then(|scrape| scrape.sum(metric, labels))
        };
        self.most.set(self.most.get().max(now.unwrap_or(0.0)));
    }

    /// The attack goes on meanwhile: a busy machine takes longer until it reaches its target.
    pub(crate) async fn assert(&self, gateway: &Gateway) {
        const PATIENCE: Duration = Duration::from_secs(60);
        let Scene { metric, labels, at_least, .. } = *self.scene;
        let is_reached = async || {
            self.look(gateway.metrics).await;
            self.most.get() >= at_least
        };
        let is_reached = eventually(PATIENCE, is_reached).await;
        let most = self.most.get();
        assert!(
            is_reached,
            "the attack missed its target: {most} of {at_least} {metric} {labels:?}; now {:?}",
            gateway.scrape().await.sum(metric, labels)
        );
    }
}
