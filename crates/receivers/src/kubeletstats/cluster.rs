//! The API server's part: the capacity of the node, and the volumes behind claims.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use sluice_kubernetes::objects::{Meta, Object};
use sluice_kubernetes::{
    Client, Event, Failure, Query, Resource, Sink, Telling, Timing, follow, segment,
};
use sluice_net::client::Secrets;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::convert::{Amounts, Capacity, Claim, Claims, Source};

const JSON: &str = "application/json";

/// An API server, and all that is known from it.
pub(super) struct Cluster {
    client: Client,
    node: Arc<Mutex<Capacity>>,
    /// Follows the node, if its capacity is needed.
    watch: Option<JoinHandle<()>>,
    volumes: HashMap<Claim, Source>,
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    metadata: Meta,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    capacity: Option<Amounts>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PersistentVolumeClaim {
    spec: ClaimSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSpec {
    volume_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PersistentVolume {
    spec: Source,
}

impl Object for Node {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Cluster {
    /// `node`: its capacity is followed.
    pub(super) fn new(client: Client, node: Option<&str>) -> Cluster {
        let capacity = Arc::<Mutex<Capacity>>::default();
        let watch = node.map(|node| {
            let query = Query {
                fields: format!("metadata.name={node}"),
                ..Query::all(Resource::Nodes, "the capacity of the node")
            };
            let telling = Telling::new(format!("the node {node}"));
            let sink = Known { capacity: capacity.clone(), telling };
            tokio::spawn(follow::<Node>(client.clone(), query, Timing::default(), sink))
        });
        Cluster { client, node: capacity, watch, volumes: HashMap::new() }
    }

    pub(super) fn capacity(&self) -> Capacity {
        *self.node.lock()
    }

    /// The volumes of claims. Each is asked for once, until no claim means it any more.
    pub(super) async fn claims(&mut self, wanted: Vec<Claim>, until: Instant) -> Claims {
        let mut claims = Claims::new();
        // An API server that does not answer would cost each claim its time.
        let mut unanswered = None;
        for claim in wanted {
            if claims.contains_key(&claim) {
                continue;
            }
            let found = match (self.volumes.remove(&claim), &unanswered) {
                (Some(source), _) => Ok(source),
                (None, Some(reason)) => Err(String::clone(reason)),
                (None, None) => match timeout_at(until, self.volume(&claim)).await {
                    Ok(Ok(source)) => Ok(source),
                    Ok(Err((reason, is_answered))) => {
                        unanswered = (!is_answered).then(|| reason.clone());
                        Err(reason)
                    }
                    Err(_) => {
                        let reason = "the API server did not answer in time".to_owned();
                        unanswered = Some(reason.clone());
                        Err(reason)
                    }
                },
            };
            claims.insert(claim, found);
        }
        let known = |(claim, found): (&Claim, &Result<Source, String>)| {
            Some((claim.clone(), found.as_ref().ok()?.clone()))
        };
        self.volumes = claims.iter().filter_map(known).collect();
        claims
    }

    /// Also tells whether the API server has answered, if there is no volume.
    async fn volume(&self, claim: &Claim) -> Result<Source, (String, bool)> {
        let Claim { namespace, name } = claim;
        let path = format!(
            "/api/v1/namespaces/{}/persistentvolumeclaims/{}",
            segment(namespace),
            segment(name)
        );
        let found: PersistentVolumeClaim = self.object(&path, "persistentvolumeclaims").await?;
        let volume = found.spec.volume_name.filter(|volume| !volume.is_empty());
        let unbound = || ("its claim has no volume yet".to_owned(), true);
        let volume = volume.ok_or_else(unbound)?;
        let path = format!("/api/v1/persistentvolumes/{}", segment(&volume));
        let found: PersistentVolume = self.object(&path, "persistentvolumes").await?;
        Ok(found.spec)
    }

    async fn object<T: for<'de> Deserialize<'de>>(
        &self,
        path: &str,
        resource: &str,
    ) -> Result<T, (String, bool)> {
        let body = self.client.page(path, JSON).await.map_err(|failure| match failure {
            Failure::Forbidden(said) => {
                let role = format!(
                    "a permission is missing: a ClusterRole must allow `get` of the resource \
                     `{resource}` in the API group `` ({said})"
                );
                (role, true)
            }
            Failure::Unauthorized(said) => {
                (format!("the API server does not accept our credentials ({said})"), false)
            }
            Failure::Busy { reason, .. } => {
                (format!("the API server has no time ({reason})"), false)
            }
            Failure::Gone | Failure::TooLarge => ("it cannot be read".to_owned(), true),
            Failure::NotFound(said) => (said, true),
            Failure::Unavailable(reason) | Failure::Other(reason) => (reason, false),
        })?;
        serde_json::from_slice(&body).map_err(|error| {
            let error = Secrets::default().peer_text(&error.to_string());
            (format!("the answer cannot be understood: {error}"), true)
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// Keeps the capacity as it was known last.
struct Known {
    capacity: Arc<Mutex<Capacity>>,
    telling: Telling,
}

impl Sink<Node> for Known {
    fn event(&mut self, event: Event<Node>) {
        if let Event::Added(node) | Event::Modified(node) = event
            && let Some(Amounts { cpu, memory }) = node.status.capacity
        {
            *self.capacity.lock() =
                Capacity { cores: cpu.value(), memory_bytes: memory.units() as f64 };
        }
    }

    fn failed(&mut self, reason: String) {
        self.telling.failed(reason);
    }

    fn works(&mut self) {
        self.telling.works();
    }
}
