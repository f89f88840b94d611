//! The watches of one configuration, and what they know.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use sluice_config::Pattern;
use sluice_kubernetes::objects::{self, Partial};
use sluice_kubernetes::{Client, Event, Index, Query, Resource, Sink, Telling, Timing, follow};
use tokio::task::JoinSet;

use super::association::{Association, Identifier};
use super::config::Options;
use super::pod::{Keeping, Pod};
use super::related::{Interner, Related};
use super::rules::{From, MetadataField, Rules, Text};

/// Memory of all pods, and of all objects of another kind.
const LIMIT_BYTES: usize = 256 << 20;
/// Pods are listed after the objects around them, but no later than this.
const PODS_WAIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// Pods that are gone are forgotten this often.
const EXPIRE: Duration = Duration::from_secs(5);
const KUBE_SYSTEM: &str = "kube-system";

/// Watches, which end with it, and what they know.
pub(super) struct Cluster {
    known: Arc<Known>,
    _tasks: JoinSet<()>,
}

pub(super) struct Known {
    pods: RwLock<Index<Pod>>,
    /// By [`From`]; `None` for kinds that are not needed.
    related: [Option<RwLock<Index<Related>>>; From::ALL.len()],
    rules: Rules,
    associations: Vec<Association>,
    excluded: Vec<Pattern>,
    texts: Interner,
    /// The reason for which a watch fails, if one does.
    failure: Mutex<Option<String>>,
}

impl Cluster {
    /// Starts the watches, within a tokio runtime.
    pub(super) fn start(options: &Options) -> Arc<Cluster> {
        let queries = queries(options);
        let known = Arc::new(Known::new(options, queries.iter().map(|(from, _)| *from)));
        let client = Client::new(options.access.clone());
        let mut tasks = JoinSet::new();
        let pods = queries.into_iter().filter_map(|(from, query)| {
            let telling = Telling::new(query.to_string());
            if from == From::Pod {
                return Some((query, telling));
            }
            let sink = RelatedSink { known: known.clone(), from, telling };
            tasks.spawn(follow::<Partial>(client.clone(), query, Timing::default(), sink));
            None
        });
        let pods: Vec<_> = pods.collect();
        for (query, telling) in pods {
            let (known, client) = (known.clone(), client.clone());
            tasks.spawn(async move {
                // Else the pods that are listed first lack what the objects around them say.
                let _ = tokio::time::timeout(PODS_WAIT, known.related_listed()).await;
                let sink = PodSink { known, telling };
                follow::<objects::Pod>(client, query, Timing::default(), sink).await;
            });
        }
        let of_expiry = known.clone();
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(EXPIRE).await;
                of_expiry.pods.write().expire(Instant::now());
            }
        });
        Arc::new(Cluster { known, _tasks: tasks })
    }

    pub(super) fn known(&self) -> &Known {
        &self.known
    }

    /// Waits until all objects have been listed.
    ///
    /// # Errors
    /// They are not within the limit.
    pub(super) async fn listed(&self, limit: Duration) -> Result<(), String> {
        let known = &self.known;
        let listed = async {
            known.related_listed().await;
            while !known.pods.read().is_listed() {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(limit, listed).await.map_err(|_| {
            let reason = known.failure.lock().clone();
            let reason = reason.unwrap_or_else(|| "the lists are not complete".to_owned());
            format!("there is no metadata of Kubernetes within {limit:?}: {reason}")
        })
    }
}

impl Known {
    pub(super) fn new(options: &Options, needed: impl Iterator<Item = From>) -> Known {
        let needed: Vec<From> = needed.collect();
        let related = From::ALL.map(|from| {
            let is_needed = from != From::Pod && needed.contains(&from);
            is_needed.then(|| RwLock::new(Index::new(Duration::ZERO, LIMIT_BYTES)))
        });
        Known {
            pods: RwLock::new(Index::new(options.grace, LIMIT_BYTES)),
            related,
            rules: options.rules.clone(),
            associations: options.associations.clone(),
            excluded: options.excluded.clone(),
            texts: Interner::default(),
            failure: Mutex::default(),
        }
    }

    pub(super) fn pod(&self, identifier: Identifier) -> Option<Arc<Pod>> {
        self.pods.read().find(&identifier).filter(|pod| !pod.is_ignored).cloned()
    }

    /// An object around pods, if its kind is watched.
    pub(super) fn related(&self, from: From, key: &str) -> Option<Arc<Related>> {
        self.related[from as usize].as_ref()?.read().get(key).cloned()
    }

    pub(super) fn cluster_uid(&self) -> Option<Text> {
        if !self.rules.metadata.has(MetadataField::ClusterUid) {
            return None;
        }
        self.related(From::Namespace, KUBE_SYSTEM).map(|namespace| namespace.uid.clone())
    }

    pub(super) fn pod_event(&self, event: Event<objects::Pod>) -> usize {
        let event = event.map(|pod| self.keep(&pod));
        let mut pods = self.pods.write();
        pods.apply(event, Instant::now());
        pods.refused()
    }

    pub(super) fn related_event(&self, from: From, event: Event<Partial>) -> usize {
        let event = event.map(|it| Related::new(from, &it, &self.rules, &self.texts));
        let Some(index) = &self.related[from as usize] else { return 0 };
        let mut index = index.write();
        index.apply(event, Instant::now());
        index.refused()
    }

    fn keep(&self, pod: &objects::Pod) -> Pod {
        let parent = |kind: From, uid: &str| {
            let owner = self.related(kind, uid)?;
            Some(owner.parent.as_ref().map(|it| (it.name.clone(), it.uid.clone())))
        };
        let is_excluded = |name: &str| self.excluded.iter().any(|it| it.matches(name.as_bytes()));
        Pod::new(
            pod,
            &Keeping {
                rules: &self.rules,
                associations: &self.associations,
                is_excluded: &is_excluded,
                intern: &|text| self.texts.intern(text),
                parent: &parent,
                cluster_uid: self.cluster_uid(),
            },
        )
    }

    async fn related_listed(&self) {
        let is_listed = |index: &RwLock<Index<Related>>| index.read().is_listed();
        while !self.related.iter().flatten().all(is_listed) {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// The objects that a configuration needs.
pub(super) fn queries(options: &Options) -> Vec<(From, Query)> {
    let Options { rules, namespace, node, .. } = options;
    let has = |field| rules.metadata.has(field);
    let name_of = |name: &str| format!("metadata.name={name}");
    let mut queries = Vec::new();
    let mut add = |from: From, resource: Resource, fields: String, purpose: &str| {
        let query = Query::all(resource, purpose);
        let namespace = namespace.clone();
        queries.push((from, Query { namespace, fields, only_metadata: true, ..query }));
    };
    if rules.has(From::Namespace) {
        let purpose = "labels and annotations of namespaces";
        add(From::Namespace, Resource::Namespaces, String::new(), purpose);
    } else if has(MetadataField::ClusterUid) {
        let purpose = "`k8s.cluster.uid`, the UID of the namespace kube-system";
        add(From::Namespace, Resource::Namespaces, name_of(KUBE_SYSTEM), purpose);
    }
    if rules.has(From::Node) || has(MetadataField::NodeUid) {
        let fields = node.as_deref().map(name_of).unwrap_or_default();
        add(From::Node, Resource::Nodes, fields, "`k8s.node.uid`, labels and annotations of nodes");
    }
    let needs_replica_sets = has(MetadataField::DeploymentUid)
        || rules.has(From::Deployment)
        || rules.has(From::ReplicaSet);
    let needs_jobs =
        has(MetadataField::CronJobUid) || rules.has(From::Job) || rules.has(From::CronJob);
    for (from, resource, is_needed, purpose) in [
        (
            From::ReplicaSet,
            Resource::ReplicaSets,
            needs_replica_sets,
            "the deployments of pods, and attributes of replica sets",
        ),
        (
            From::Deployment,
            Resource::Deployments,
            rules.has(From::Deployment),
            "labels and annotations of deployments",
        ),
        (
            From::StatefulSet,
            Resource::StatefulSets,
            rules.has(From::StatefulSet),
            "labels and annotations of stateful sets",
        ),
        (
            From::DaemonSet,
            Resource::DaemonSets,
            rules.has(From::DaemonSet),
            "labels and annotations of daemon sets",
        ),
        (From::Job, Resource::Jobs, needs_jobs, "the cron jobs of pods, and attributes of jobs"),
        (
            From::CronJob,
            Resource::CronJobs,
            rules.has(From::CronJob),
            "labels and annotations of cron jobs",
        ),
    ] {
        if is_needed {
            add(from, resource, String::new(), purpose);
        }
    }
    let pods = Query {
        namespace: namespace.clone(),
        labels: options.label_selector.clone(),
        fields: options.field_selector.clone(),
        ..Query::all(Resource::Pods, "attributes of pods")
    };
    queries.push((From::Pod, pods));
    queries
}

struct PodSink {
    known: Arc<Known>,
    telling: Telling,
}

struct RelatedSink {
    known: Arc<Known>,
    from: From,
    telling: Telling,
}

impl Sink<objects::Pod> for PodSink {
    fn event(&mut self, event: Event<objects::Pod>) {
        let refused = self.known.pod_event(event);
        self.telling.refused(refused, LIMIT_BYTES);
    }

    fn failed(&mut self, reason: String) {
        *self.known.failure.lock() = Some(reason.clone());
        self.telling.failed(reason);
    }

    fn works(&mut self) {
        self.telling.works();
    }
}

impl Sink<Partial> for RelatedSink {
    fn event(&mut self, event: Event<Partial>) {
        let refused = self.known.related_event(self.from, event);
        self.telling.refused(refused, LIMIT_BYTES);
    }

    fn failed(&mut self, reason: String) {
        *self.known.failure.lock() = Some(reason.clone());
        self.telling.failed(reason);
    }

    fn works(&mut self) {
        self.telling.works();
    }
}
