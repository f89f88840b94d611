//! The watches of one receiver, and what they know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use sluice_flow::BoxFuture;
use sluice_kubernetes::objects::Object;
use sluice_kubernetes::{Client, Event, Index, Query, Resource, Sink, Telling, Timing, follow};
use tokio::task::JoinSet;

use super::config::Options;
use super::record::{Endpoints, Kept};

/// Memory of the objects that a watch knows.
const LIMIT_BYTES: usize = 256 << 20;
const POLL: Duration = Duration::from_millis(50);

pub(super) struct Watches(Vec<Watch>);

/// A watch of one kind of objects, in all namespaces or in one.
pub(super) struct Watch {
    query: Query,
    follow: Follow,
    index: RwLock<Index<Kept>>,
    /// The API server does not give these objects to us.
    is_denied: AtomicBool,
    is_failing: AtomicBool,
}

type Follow = fn(Arc<Watches>, usize, Client) -> BoxFuture<'static, ()>;

/// The way in which objects of a kind are followed.
macro_rules! kept_as {
    ($kind:ident) => {
        |watches, at, client| Box::pin(follow_as(watches, at, client, Kept::$kind))
    };
}

impl Watches {
    /// Those that the options need.
    pub(super) fn new(options: &Options) -> Watches {
        let Options { choice, nodes, is_openshift, namespaces, .. } = options;
        let has = |prefix| choice.has(prefix);
        let kinds: [(Resource, bool, Follow); 17] = [
            (Resource::Pods, has("k8s.pod.") || has("k8s.container."), kept_as!(Pod)),
            (Resource::Nodes, has("k8s.node.") || !nodes.is_empty(), kept_as!(Node)),
            (Resource::Namespaces, has("k8s.namespace."), kept_as!(Namespace)),
            (Resource::Deployments, has("k8s.deployment."), kept_as!(Deployment)),
            (Resource::ReplicaSets, has("k8s.replicaset."), kept_as!(ReplicaSet)),
            (Resource::StatefulSets, has("k8s.statefulset."), kept_as!(StatefulSet)),
            (Resource::DaemonSets, has("k8s.daemonset."), kept_as!(DaemonSet)),
            (Resource::Jobs, has("k8s.job."), kept_as!(Job)),
            (Resource::CronJobs, has("k8s.cronjob."), kept_as!(CronJob)),
            (Resource::HorizontalPodAutoscalers, has("k8s.hpa."), kept_as!(Autoscaler)),
            (
                Resource::ReplicationControllers,
                has("k8s.replication_controller."),
                kept_as!(ReplicationController),
            ),
            (Resource::ResourceQuotas, has("k8s.resource_quota."), kept_as!(ResourceQuota)),
            (
                Resource::ClusterResourceQuotas,
                *is_openshift && has("openshift."),
                kept_as!(ClusterQuota),
            ),
            (Resource::Services, has("k8s.service."), kept_as!(Service)),
            (Resource::EndpointSlices, has("k8s.service.endpoint."), kept_as!(Slice)),
            (Resource::PersistentVolumes, has("k8s.persistentvolume."), kept_as!(Volume)),
            (Resource::PersistentVolumeClaims, has("k8s.persistentvolumeclaim."), kept_as!(Claim)),
        ];
        let mut watches = Vec::new();
        for (resource, _, follow) in kinds.into_iter().filter(|(_, is_needed, _)| *is_needed) {
            let query = Query::all(resource, &format!("metrics of {}", resource.name()));
            let watch = |namespace| Watch::new(Query { namespace, ..query.clone() }, follow);
            if namespaces.is_empty() {
                watches.push(watch(None));
            } else if resource.is_namespaced() {
                watches.extend(namespaces.iter().map(|name| watch(Some(name.clone()))));
            }
        }
        Watches(watches)
    }

    /// Starts them, within a tokio runtime. They end with what this returns.
    pub(super) fn start(self: &Arc<Watches>, client: &Client) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for (at, watch) in self.0.iter().enumerate() {
            tasks.spawn((watch.follow)(self.clone(), at, client.clone()));
        }
        tasks
    }

    /// Waits until each kind has been listed, or is not given to us. Says so if that takes longer
    /// than the limit.
    pub(super) async fn settled(&self, limit: Duration) {
        let all = async {
            while !self.0.iter().all(Watch::is_settled) {
                tokio::time::sleep(POLL).await;
            }
        };
        if tokio::time::timeout(limit, all).await.is_err() {
            let missing = self.0.iter().filter(|watch| !watch.is_settled());
            let missing: Vec<String> = missing.map(|watch| watch.query.to_string()).collect();
            let objects = missing.join(", ");
            tracing::warn!(%objects, "not listed within {limit:?}: metrics begin without them");
        }
    }

    /// The objects of each kind that has been listed.
    pub(super) fn objects(&self) -> impl Iterator<Item = Vec<Arc<Kept>>> {
        self.0.iter().map(|watch| {
            let index = watch.index.read();
            if index.is_listed() { index.iter().cloned().collect() } else { Vec::new() }
        })
    }

    pub(super) fn endpoints(&self) -> Endpoints {
        let mut endpoints = Endpoints::default();
        let slices = self.0.iter().filter(|it| it.query.resource == Resource::EndpointSlices);
        for watch in slices {
            for object in watch.index.read().iter() {
                if let Kept::Slice(slice) = &**object {
                    endpoints.add(slice);
                }
            }
        }
        endpoints
    }

    /// Lists objects as an API server would, which gives us only this kind.
    #[cfg(test)]
    pub(super) fn list(&self, resource: Resource, objects: Vec<Kept>) {
        for watch in &self.0 {
            watch.is_denied.store(watch.query.resource != resource, Ordering::Relaxed);
        }
        let Some(watch) = self.0.iter().find(|watch| watch.query.resource == resource) else {
            return;
        };
        let (mut index, now) = (watch.index.write(), Instant::now());
        index.apply(Event::Restarted, now);
        objects.into_iter().for_each(|object| index.apply(Event::Added(object), now));
        index.apply(Event::Listed, now);
    }

    /// One of each kind, with what all watches of the kind have together.
    pub(super) fn states(&self) -> Vec<(&'static str, State)> {
        let mut states: Vec<(&'static str, State)> = Vec::new();
        for watch in &self.0 {
            let (name, index) = (watch.query.resource.name(), watch.index.read());
            if states.last().is_none_or(|(last, _)| *last != name) {
                states.push((name, State::default()));
            }
            if let Some((_, state)) = states.last_mut() {
                state.objects += index.len();
                state.bytes += index.weight();
                state.refused += index.refused();
                state.failing += usize::from(watch.is_failing.load(Ordering::Relaxed));
            }
        }
        states
    }
}

/// The objects of a kind, in numbers.
#[derive(Default)]
pub(super) struct State {
    pub(super) objects: usize,
    pub(super) bytes: usize,
    /// Objects that are not held, as the limit is reached.
    pub(super) refused: usize,
    /// Watches that fail.
    pub(super) failing: usize,
}

impl Watch {
    fn new(query: Query, follow: Follow) -> Watch {
        Watch {
            query,
            follow,
            index: RwLock::new(Index::new(Duration::ZERO, LIMIT_BYTES)),
            is_denied: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
        }
    }

    fn is_settled(&self) -> bool {
        self.is_denied.load(Ordering::Relaxed) || self.index.read().is_listed()
    }
}

async fn follow_as<T: Object>(
    watches: Arc<Watches>,
    at: usize,
    client: Client,
    keep: fn(T) -> Kept,
) {
    let query = watches.0[at].query.clone();
    let telling = Telling::new(query.to_string());
    follow(client, query, Timing::default(), KindSink { watches, at, keep, telling }).await;
}

struct KindSink<T> {
    watches: Arc<Watches>,
    /// The watch's place.
    at: usize,
    keep: fn(T) -> Kept,
    telling: Telling,
}

impl<T> KindSink<T> {
    fn watch(&self) -> &Watch {
        &self.watches.0[self.at]
    }
}

impl<T: Object> Sink<T> for KindSink<T> {
    fn event(&mut self, event: Event<T>) {
        let event = event.map(|object| {
            let mut kept = (self.keep)(object);
            kept.keep_needed();
            kept
        });
        let refused = {
            let mut index = self.watch().index.write();
            index.apply(event, Instant::now());
            index.refused()
        };
        self.telling.refused(refused, LIMIT_BYTES);
    }

    fn denied(&mut self) {
        self.watch().is_denied.store(true, Ordering::Relaxed);
    }

    fn failed(&mut self, reason: String) {
        self.watch().is_failing.store(true, Ordering::Relaxed);
        self.telling.failed(reason);
    }

    fn works(&mut self) {
        self.watch().is_failing.store(false, Ordering::Relaxed);
        self.telling.works();
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::*;

    fn queries(yaml: &str) -> Vec<String> {
        let (options, diagnostics) = read_text("receivers.k8s_cluster", yaml, Options::read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        Watches::new(&options).0.iter().map(|watch| watch.query.to_string()).collect()
    }

    /// Guarantee: only kinds are asked for of which a metric is sent, and in namespaces only kinds
    /// that are in namespaces.
    #[test]
    fn kinds_without_metrics_are_not_asked_for() {
        let all = queries("");
        assert_eq!(all.len(), 12, "{all:?}");
        assert!(!all.iter().any(|it| it == "services" || it == "clusterresourcequotas"));
        let off = "metrics:\n  k8s.job.active_pods: {enabled: false}\n  \
                   k8s.cronjob.active_jobs: {enabled: false}\n  \
                   k8s.namespace.phase: {enabled: false}\nnode_conditions_to_report: []\n";
        let some = queries(off);
        assert_eq!(some.len(), 9, "{some:?}");
        assert!(some.contains(&"jobs".to_owned()), "its other metrics are sent");
        let endpoints = "metrics: {k8s.service.endpoint.count: {enabled: true}}\n\
                         distribution: openshift\nallocatable_types_to_report: [cpu]";
        let more = queries(endpoints);
        for kind in ["services", "endpointslices", "clusterresourcequotas", "nodes"] {
            assert!(more.contains(&kind.to_owned()), "{kind}: {more:?}");
        }
        let own = queries("namespaces: [a, b]\nmetrics: {k8s.pod.phase: {enabled: false}}");
        assert_eq!(own.len(), 20, "{own:?}");
        assert_eq!(own[..2], ["pods of the namespace a", "pods of the namespace b"]);
    }
}
