//! Lists and watches of a real API server.

#[path = "support/cluster.rs"]
mod cluster;
#[path = "../../load-test/tests/support/component.rs"]
mod component;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::{ADMIN, Cluster, LIMITED};
use component::component;
use serde_json::json;
use sluice_kubernetes::objects::{Object as _, Partial, Pod};
use sluice_kubernetes::{
    Access, Client, Event, Index, Indexed, Query, Resource, Sink, Timing, follow,
};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(60);

struct Seen {
    key: Arc<str>,
    address: String,
}

impl Indexed for Seen {
    type Name = ();

    fn key(&self) -> Arc<str> {
        self.key.clone()
    }

    fn names(&self, _: &mut dyn FnMut(())) {}

    fn weight(&self) -> usize {
        100
    }
}

#[derive(Default)]
struct State {
    index: Option<Index<Seen>>,
    failures: Vec<String>,
    lists: usize,
    works: usize,
}

/// A sink that a test looks into.
struct Into(Arc<Mutex<State>>);

impl Into {
    fn apply(&mut self, event: Event<Seen>) {
        let mut state = self.0.lock().expect("no panic");
        state.lists += usize::from(event_is_list(&event));
        let index = state.index.get_or_insert_with(|| Index::new(Duration::ZERO, usize::MAX));
        index.apply(event, Instant::now());
    }

    fn fail(&mut self, reason: String) {
        self.0.lock().expect("no panic").failures.push(reason);
    }

    fn work(&mut self) {
        self.0.lock().expect("no panic").works += 1;
    }
}

fn event_is_list<T>(event: &Event<T>) -> bool {
    matches!(event, Event::Listed)
}

impl Sink<Pod> for Into {
    fn event(&mut self, event: Event<Pod>) {
        self.apply(event.map(|pod| Seen {
            key: pod.meta().key().into(),
            address: pod.status.pod_ip.to_string(),
        }));
    }

    fn failed(&mut self, reason: String) {
        self.fail(reason);
    }

    fn works(&mut self) {
        self.work();
    }
}

impl Sink<Partial> for Into {
    fn event(&mut self, event: Event<Partial>) {
        self.apply(event.map(|object| Seen {
            key: object.meta().key().into(),
            address: object.meta().labels.get("tier").map_or(String::new(), |it| it.to_string()),
        }));
    }

    fn failed(&mut self, reason: String) {
        self.fail(reason);
    }

    fn works(&mut self) {
        self.work();
    }
}

/// A watch that runs until it is dropped, and the objects that it knows.
struct Watched {
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Watched {
    fn start<T>(access: Access, query: Query) -> Watched
    where
        T: sluice_kubernetes::objects::Object,
        Into: Sink<T>,
    {
        let timing = Timing {
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_millis(500),
            watch: Duration::from_secs(2),
            ..Timing::default()
        };
        let state = Arc::<Mutex<State>>::default();
        let sink = Into(state.clone());
        let task = tokio::spawn(follow::<T>(Client::new(access), query, timing, sink));
        Watched { state, task }
    }

    fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.state.lock().expect("no panic"))
    }

    fn address(&self, key: &str) -> Option<String> {
        self.look(|state| Some(state.index.as_ref()?.get(key)?.address.clone()))
    }

    fn len(&self) -> usize {
        self.look(|state| state.index.as_ref().map_or(0, Index::len))
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Watched) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            let failures = self.look(|state| state.failures.clone());
            assert!(began.elapsed() < PATIENCE, "not in time: {what}; failures: {failures:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn kubeconfig(path: &Path) -> Access {
    Access::Kubeconfig { file: Some(path.to_owned()), context: None }
}

async fn cluster() -> Option<Cluster> {
    let etcd = component("SLUICE_TEST_ETCD")?;
    let api_server = component("SLUICE_TEST_KUBE_APISERVER")?;
    Some(Cluster::start([etcd, api_server]).await)
}

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Scenario: more pods than a page holds; then pods come, get an address, and end; watches end and
/// begin again all the time. Guarantee: all of it is seen, after one list only.
#[tokio::test(flavor = "multi_thread")]
async fn objects_are_listed_once_and_then_watched() {
    let Some(cluster) = cluster().await else { return };
    for number in 0..600 {
        let pod = json!({"metadata": {"name": format!("many-{number}"), "labels": {"tier": "x"}}});
        cluster.pod("default", pod, "").await;
    }
    let admin = kubeconfig(&cluster.kubeconfig(ADMIN));
    let selected = Query { labels: "tier=x".to_owned(), ..Query::all(Resource::Pods, "tests") };
    let named = Query {
        namespace: Some("default".to_owned()),
        fields: "metadata.name=many-7".to_owned(),
        only_metadata: true,
        ..Query::all(Resource::Pods, "tests")
    };
    let watched = Watched::start::<Pod>(admin.clone(), selected);
    let one = Watched::start::<Partial>(admin, named);
    watched.until("all pods", |it| it.len() == 600).await;
    one.until("the pod", |it| it.address("default/many-7").as_deref() == Some("x")).await;
    assert_eq!(one.len(), 1);
    let began = Instant::now();
    // Longer than a watch lasts.
    while began.elapsed() < Duration::from_secs(6) {
        let pod = json!({"metadata": {"name": "one", "labels": {"tier": "x"}}});
        cluster.pod("default", pod, "10.0.0.9").await;
        let is_there = |it: &Watched| it.address("default/one").as_deref() == Some("10.0.0.9");
        watched.until("its address", is_there).await;
        cluster.delete(&format!("{PODS}/one")).await;
        watched.until("its end", |it| it.address("default/one").is_none()).await;
    }
    cluster.patch(&format!("{PODS}/many-7"), json!({"metadata": {"labels": {"tier": "y"}}})).await;
    one.until("its label", |it| it.address("default/many-7").as_deref() == Some("y")).await;
    watched.until("that it is not meant any more", |it| it.len() == 599).await;
    watched.look(|state| {
        assert_eq!((state.lists, &state.failures), (1, &Vec::new()));
        assert!(state.works >= 2, "{} watches", state.works);
    });
}

/// Scenario: the API server is killed, and starts again; watches go on from a version that it no
/// longer has. Guarantee: what was known stays, and then all changes are seen.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_leaves_the_last_state() {
    let Some(mut cluster) = cluster().await else { return };
    cluster.pod("default", json!({"metadata": {"name": "a"}}), "10.0.0.1").await;
    cluster.pod("default", json!({"metadata": {"name": "b"}}), "10.0.0.2").await;
    let admin = kubeconfig(&cluster.kubeconfig(ADMIN));
    let query = Query::all(Resource::Pods, "tests");
    let watched = Watched::start::<Pod>(admin, query);
    watched.until("both pods", |it| it.address("default/b").as_deref() == Some("10.0.0.2")).await;
    for round in 0..2 {
        cluster.kill_api();
        watched.until("the failure", |it| it.look(|state| state.failures.len() > round)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(watched.address("default/a").as_deref(), Some("10.0.0.1"));
        cluster.start_api().await;
        let name = format!("new-{round}");
        cluster.pod("default", json!({"metadata": {"name": name}}), "10.0.0.3").await;
        cluster
            .delete(&format!(
                "{PODS}/{}",
                if round == 0 { "b".to_owned() } else { "new-0".to_owned() }
            ))
            .await;
        let key = format!("default/{name}");
        watched.until("the new pod", |it| it.address(&key).as_deref() == Some("10.0.0.3")).await;
        watched.until("the end of another", |it| it.len() == 2).await;
        let failures = watched.look(|state| state.failures.len());
        watched.look(|state| {
            let said = state.failures.iter().all(|it| it.contains("connection"));
            assert!(said, "{:?}", state.failures);
        });
        // It has recovered: the next round fails anew.
        watched.look(|state| assert_eq!(state.failures.len(), failures));
        watched.state.lock().expect("no panic").failures.truncate(round + 1);
    }
}

/// Guarantee: a missing permission is named with the role that would give it, credentials that are
/// not accepted are called that, and both are seen when they change.
#[tokio::test(flavor = "multi_thread")]
async fn missing_permissions_are_named() {
    let Some(cluster) = cluster().await else { return };
    cluster.pod("default", json!({"metadata": {"name": "a"}}), "10.0.0.1").await;
    let limited = kubeconfig(&cluster.kubeconfig(LIMITED));
    let all = Query::all(Resource::Pods, "attributes of pods");
    let own = Query {
        namespace: Some("default".to_owned()),
        ..Query::all(Resource::Deployments, "attributes of deployments")
    };
    let pods = Watched::start::<Pod>(limited.clone(), all);
    let deployments = Watched::start::<Partial>(limited, own);
    for (watched, said) in [
        (
            &pods,
            "a permission is missing for attributes of pods: a ClusterRole must allow `list` and \
             `watch` of the resource `pods` in the API group `` (pods is forbidden: User \
             \"limited\" cannot list resource \"pods\" in API group \"\" at the cluster scope)",
        ),
        (
            &deployments,
            "a permission is missing for attributes of deployments: a Role in the namespace \
             `default` must allow `list` and `watch` of the resource `deployments` in the API \
             group `apps` (",
        ),
    ] {
        watched.until("the refusal", |it| it.look(|state| !state.failures.is_empty())).await;
        watched.look(|state| assert!(state.failures[0].starts_with(said), "{:?}", state.failures));
    }
    cluster.allow("pods", "", "pods").await;
    pods.until("the pod", |it| it.address("default/a").is_some()).await;
    assert_eq!(deployments.len(), 0);

    let path = cluster.kubeconfig("unknown-token");
    let unknown = kubeconfig(&path);
    let watched = Watched::start::<Pod>(unknown, Query::all(Resource::Pods, "tests"));
    watched.until("the refusal", |it| it.look(|state| !state.failures.is_empty())).await;
    watched.look(|state| assert!(state.failures[0].contains("does not accept our credentials")));
    // The file gets credentials that are accepted.
    std::fs::copy(cluster.kubeconfig(ADMIN), &path).expect("copies");
    watched.until("the pod", |it| it.address("default/a").is_some()).await;
}
