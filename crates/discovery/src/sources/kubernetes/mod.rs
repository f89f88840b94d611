//! `kubernetes_sd_configs`: targets from objects of Kubernetes, which are watched.
//!
//! `access` says where the API server is. `state` has the objects. `names` makes labels of their
//! metadata; `pods`, `services`, `endpoints`, `nodes` and `ingresses` make groups, one an object.

mod access;
mod endpoints;
mod ingresses;
mod names;
mod nodes;
mod pods;
mod services;
mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_kubernetes::objects::Object;
use sluice_kubernetes::{
    Client, Event, Index, Query, Resource, Sink, Timing, follow, own_namespace,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::outlet::Outlet;
use crate::scrape_config::{KubernetesSd, Role};
use state::{Held, Indexes, State};

/// Many objects change at a time.
const PAUSE: Duration = Duration::from_millis(500);
/// Memory of the objects of one query.
const LIMIT_BYTES: usize = 256 << 20;

/// News of a watch.
enum Message {
    Change(Box<dyn FnOnce(&mut State) + Send>),
    Failed(String, String),
    Works(String),
}

pub(super) async fn run(config: KubernetesSd, mut outlet: Outlet) {
    let shown = format!("kubernetes role {}", config.role.name());
    let mut namespaces: Vec<Option<String>> = config.namespaces.iter().cloned().map(Some).collect();
    if config.own_namespace {
        match own_namespace() {
            Ok(own) => namespaces.push(Some(own)),
            Err(reason) => return outlet.failed(&shown, reason),
        }
    }
    if namespaces.is_empty() {
        namespaces.push(None);
    }
    let (sender, receiver) = unbounded_channel();
    let watches = Watches {
        client: Client::new(access::of(&config)),
        config: &config,
        sender,
        tasks: JoinSet::new(),
        state: State::new(&config),
    };
    let (state, _tasks) = watches.start(&namespaces);
    report(state, receiver, &shown, &mut outlet).await;
}

/// Takes changes in, and tells the groups that there are.
async fn report(
    mut state: State,
    mut receiver: UnboundedReceiver<Message>,
    shown: &str,
    outlet: &mut Outlet,
) {
    let mut reported = None;
    while let Some(message) = receiver.recv().await {
        take(message, &mut state, outlet);
        let until = tokio::time::Instant::now() + PAUSE;
        // Each at once: those that wait have memory, too, and no limit.
        while let Ok(Some(message)) = timeout_at(until, receiver.recv()).await {
            take(message, &mut state, outlet);
            if tokio::time::Instant::now() >= until {
                break;
            }
        }
        if !state.is_listed() || reported == Some(state.version()) {
            continue;
        }
        reported = Some(state.version());
        // Labels of many objects take a while.
        let made = tokio::task::spawn_blocking(move || {
            let groups = state.groups();
            (state, groups)
        });
        let Ok((back, groups)) = made.await else { return };
        state = back;
        outlet.found(shown, groups.into_iter().map(Arc::new).collect());
    }
}

fn take(message: Message, state: &mut State, outlet: &mut Outlet) {
    match message {
        Message::Change(change) => change(state),
        Message::Failed(what, reason) => outlet.failed(&what, reason),
        Message::Works(what) => outlet.works(&what),
    }
}

struct Watches<'a> {
    client: Client,
    config: &'a KubernetesSd,
    sender: UnboundedSender<Message>,
    tasks: JoinSet<()>,
    state: State,
}

impl Watches<'_> {
    /// Starts the watches that a role needs. They end with the set.
    fn start(mut self, namespaces: &[Option<String>]) -> (State, JoinSet<()>) {
        let config = self.config;
        let has_pods = matches!(config.role, Role::Pod | Role::Endpoints | Role::EndpointSlice);
        for namespace in namespaces {
            let namespace = namespace.as_deref();
            match config.role {
                Role::Pod => {}
                Role::Service => self.watch(Resource::Services, namespace, |it| &mut it.services),
                Role::Endpoints => {
                    self.watch(Resource::Endpoints, namespace, |it| &mut it.endpoints);
                    self.watch(Resource::Services, namespace, |it| &mut it.services);
                }
                Role::EndpointSlice => {
                    self.watch(Resource::EndpointSlices, namespace, |it| &mut it.slices);
                    self.watch(Resource::Services, namespace, |it| &mut it.services);
                }
                Role::Node => {}
                Role::Ingress => {
                    self.watch(Resource::Ingresses, namespace, |it| &mut it.ingresses);
                }
            }
            if has_pods {
                self.watch(Resource::Pods, namespace, |it| &mut it.pods);
            }
            if has_pods && config.attach_deployment {
                self.watch(Resource::ReplicaSets, namespace, |it| &mut it.replica_sets);
            }
            if has_pods && config.attach_cron_job {
                self.watch(Resource::Jobs, namespace, |it| &mut it.jobs);
            }
        }
        if config.role == Role::Node {
            self.watch(Resource::Nodes, None, |it| &mut it.nodes);
        } else if has_pods && config.attach_node {
            self.watch(Resource::Nodes, None, |it| &mut it.nodes);
        }
        if config.role != Role::Node && config.attach_namespace {
            self.watch(Resource::Namespaces, None, |it| &mut it.namespaces);
        }
        (self.state, self.tasks)
    }

    fn watch<T: Object + Sync>(
        &mut self,
        resource: Resource,
        namespace: Option<&str>,
        indexes: fn(&mut State) -> &mut Indexes<T>,
    ) {
        let role = role_of(resource);
        let selector = self.config.selectors.iter().find(|it| Some(it.role) == role);
        let (labels, fields) =
            selector.map(|it| (it.label.clone(), it.field.clone())).unwrap_or_default();
        let purpose = format!("targets of the role `{}`", self.config.role.name());
        let query = Query {
            namespace: namespace.map(str::to_owned),
            labels,
            fields,
            only_metadata: role.is_none(),
            ..Query::all(resource, &purpose)
        };
        let known = &mut indexes(&mut self.state).0;
        known.push(Index::new(Duration::ZERO, LIMIT_BYTES));
        let (at, what) = (known.len() - 1, format!("kubernetes {query}"));
        let sink = ToState { sender: self.sender.clone(), indexes, at, what };
        self.tasks.spawn(follow::<T>(self.client.clone(), query, Timing::default(), sink));
    }
}

/// The role whose selectors are those of a kind of objects. Kinds without one are looked at for
/// their metadata only.
fn role_of(resource: Resource) -> Option<Role> {
    Some(match resource {
        Resource::Pods => Role::Pod,
        Resource::Services => Role::Service,
        Resource::Endpoints => Role::Endpoints,
        Resource::EndpointSlices => Role::EndpointSlice,
        Resource::Nodes => Role::Node,
        Resource::Ingresses => Role::Ingress,
        _ => return None,
    })
}

struct ToState<T: Object> {
    sender: UnboundedSender<Message>,
    indexes: fn(&mut State) -> &mut Indexes<T>,
    /// Which of the indexes.
    at: usize,
    what: String,
}

impl<T: Object> ToState<T> {
    /// Without a receiver the source has ended, and soon this task will.
    fn send(&self, message: Message) {
        let _ = self.sender.send(message);
    }
}

impl<T: Object + Sync> Sink<T> for ToState<T> {
    fn event(&mut self, event: Event<T>) {
        let event = event.map(Held::new);
        let (indexes, at, what) = (self.indexes, self.at, self.what.clone());
        let sender = self.sender.clone();
        self.send(Message::Change(Box::new(move |state| {
            let index = &mut indexes(state).0[at];
            let before = index.refused();
            index.apply(event, Instant::now());
            if before == 0 && index.refused() > 0 {
                let mib = LIMIT_BYTES >> 20;
                let reason =
                    format!("its objects would take more than {mib} MiB: some are left out");
                let _ = sender.send(Message::Failed(what, reason));
            }
        })));
    }

    fn failed(&mut self, reason: String) {
        self.send(Message::Failed(self.what.clone(), reason));
    }

    fn works(&mut self) {
        self.send(Message::Works(self.what.clone()));
    }
}

#[cfg(test)]
mod tests;
