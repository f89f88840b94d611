//! The objects that are known, and the groups that they make.

use std::sync::Arc;

use sluice_kubernetes::objects::{
    EndpointSlice, Endpoints, Ingress, Node, Object, Partial, Pod, Service,
};
use sluice_kubernetes::{Index, Indexed};

use super::names::Names;
use super::{endpoints, ingresses, nodes, pods, services};
use crate::group::Group;
use crate::scrape_config::{KubernetesSd, Role};

/// An object with its key: `namespace/name`, or its name.
pub(super) struct Held<T> {
    key: Arc<str>,
    pub(super) object: T,
}

impl<T: Object> Held<T> {
    pub(super) fn new(object: T) -> Held<T> {
        Held { key: object.meta().key().into(), object }
    }
}

impl<T: Object> Indexed for Held<T> {
    type Name = ();

    fn key(&self) -> Arc<str> {
        self.key.clone()
    }

    fn names(&self, _: &mut dyn FnMut(())) {}

    fn weight(&self) -> usize {
        size_of::<Held<T>>() + self.key.len() + self.object.heap_bytes()
    }
}

/// The objects of a kind, of each namespace that is looked at.
pub(super) struct Indexes<T: Object>(pub(super) Vec<Index<Held<T>>>);

impl<T: Object> Indexes<T> {
    pub(super) fn get(&self, key: &str) -> Option<&T> {
        self.0.iter().find_map(|index| index.get(key)).map(|held| &held.object)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(Index::iter).map(|held| &held.object)
    }

    fn version(&self) -> u64 {
        self.0.iter().map(Index::version).sum()
    }

    fn is_listed(&self) -> bool {
        self.0.iter().all(Index::is_listed)
    }
}

impl<T: Object> Default for Indexes<T> {
    fn default() -> Self {
        Indexes(Vec::new())
    }
}

/// The objects that are known. Kinds that the role does not need have no index.
pub(super) struct State {
    role: Role,
    pub(super) attach_node: bool,
    pub(super) attach_deployment: bool,
    pub(super) attach_job: bool,
    pub(super) attach_cron_job: bool,
    pub(super) pods: Indexes<Pod>,
    pub(super) services: Indexes<Service>,
    pub(super) endpoints: Indexes<Endpoints>,
    pub(super) slices: Indexes<EndpointSlice>,
    pub(super) nodes: Indexes<Node>,
    pub(super) ingresses: Indexes<Ingress>,
    pub(super) namespaces: Indexes<Partial>,
    pub(super) replica_sets: Indexes<Partial>,
    pub(super) jobs: Indexes<Partial>,
    pub(super) names: Names,
}

impl State {
    pub(super) fn new(config: &KubernetesSd) -> State {
        State {
            role: config.role,
            attach_node: config.attach_node,
            attach_deployment: config.attach_deployment,
            attach_job: config.attach_job,
            attach_cron_job: config.attach_cron_job,
            pods: Indexes::default(),
            services: Indexes::default(),
            endpoints: Indexes::default(),
            slices: Indexes::default(),
            nodes: Indexes::default(),
            ingresses: Indexes::default(),
            namespaces: Indexes::default(),
            replica_sets: Indexes::default(),
            jobs: Indexes::default(),
            names: Names::default(),
        }
    }

    /// Whether all objects have been listed: before, targets would lack labels.
    pub(super) fn is_listed(&self) -> bool {
        self.pods.is_listed()
            && self.services.is_listed()
            && self.endpoints.is_listed()
            && self.slices.is_listed()
            && self.nodes.is_listed()
            && self.ingresses.is_listed()
            && self.namespaces.is_listed()
            && self.replica_sets.is_listed()
            && self.jobs.is_listed()
    }

    /// A number that grows with each change.
    pub(super) fn version(&self) -> u64 {
        self.pods.version()
            + self.services.version()
            + self.endpoints.version()
            + self.slices.version()
            + self.nodes.version()
            + self.ingresses.version()
            + self.namespaces.version()
            + self.replica_sets.version()
            + self.jobs.version()
    }

    /// The groups that there are, by their keys; those without targets are left out.
    pub(super) fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = match self.role {
            Role::Pod => self.pods.iter().map(|it| pods::group(self, it)).collect(),
            Role::Service => self.services.iter().map(|it| services::group(self, it)).collect(),
            Role::Endpoints => {
                self.endpoints.iter().map(|it| endpoints::of_endpoints(self, it)).collect()
            }
            Role::EndpointSlice => {
                self.slices.iter().map(|it| endpoints::of_slice(self, it)).collect()
            }
            Role::Node => self.nodes.iter().map(|it| nodes::group(self, it)).collect(),
            Role::Ingress => self.ingresses.iter().map(|it| ingresses::group(self, it)).collect(),
        };
        groups.retain(|group| !group.targets.is_empty());
        groups.sort_by(|one, other| one.key.cmp(&other.key));
        groups
    }
}
