//! From a kubelet's answers to an OTLP request: bytes in, bytes out. No I/O, no clock.
//!
//! 1. `stats` and `pods` are the answers, as far as they are of use.
//! 2. [`Scrape::claims`] says which claims the API server has to be asked about.
//! 3. `metrics` is the table of all metrics, `points` reads their numbers, `resource` has the
//!    attributes of an object, and `write` writes it.
//!
//! Bounds: the caller charges [`read_bytes`] for an answer, and is asked before the request grows.

mod metrics;
mod pods;
mod points;
mod resource;
mod stats;
#[cfg(test)]
mod tests;
mod write;

use std::collections::HashMap;

use sluice_flow::Refusal;

pub(super) use metrics::METRICS;
pub(super) use pods::{Amounts, Source};
pub(super) use points::{Choice, Strategy};
pub(super) use resource::{ATTRIBUTES, AttributeChoice, Filter};

use metrics::{Metric, Of};
use pods::{Known, Pods};
use points::View;
use resource::{Attribute, Attributes};
use stats::{Container, Fs, Network, Pod, Summary};

/// Memory of an object or list of an answer while it is read, at most, beside its texts.
const OBJECT_BYTES: usize = 512;
/// The reason for which something is left out is cut there: it has names of pods.
const REASON_LIMIT_CHARS: usize = 300;

/// Options that say what becomes of answers.
#[derive(Clone)]
pub(super) struct Settings {
    /// For each of [`METRICS`].
    pub(super) metrics: Vec<Choice>,
    /// For each of [`ATTRIBUTES`].
    pub(super) attributes: Vec<AttributeChoice>,
    pub(super) groups: Groups,
    pub(super) container_ids: bool,
    pub(super) volume_types: bool,
    pub(super) all_interfaces_of_nodes: bool,
    pub(super) all_interfaces_of_pods: bool,
}

/// Objects whose metrics are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) container: bool,
    pub(super) pod: bool,
    pub(super) node: bool,
    pub(super) volume: bool,
}

/// Of a node; zero while it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Capacity {
    pub(super) cores: f64,
    pub(super) memory_bytes: f64,
}

/// A persistent volume claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

/// Claims, each with its volume or the reason for which that is not known.
pub(super) type Claims = HashMap<Claim, Result<Source, String>>;

/// The answers of one scrape.
pub(super) struct Scrape {
    summary: Summary,
    pods: Option<Pods>,
}

/// All that a request depends on beside the answers.
pub(super) struct Moment<'a> {
    pub(super) now_ns: u64,
    /// The start of the receiver, which is that of volumes' points.
    pub(super) started_ns: u64,
    pub(super) node: Capacity,
    /// Claims that the API server was asked about. Of others nothing more is said.
    pub(super) claims: &'a Claims,
}

/// A request, and what it leaves out.
#[derive(Default)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) items: u32,
    /// Containers and volumes that are left out.
    pub(super) skipped: u64,
    /// The first of them, and why.
    pub(super) reason: Option<String>,
}

impl Settings {
    /// Whether `/pods` is needed.
    pub(super) fn needs_pods(&self) -> bool {
        self.container_ids || self.volume_types || self.has(Metric::needs_pods)
    }

    /// Whether the node's capacity is needed.
    pub(super) fn needs_node(&self) -> bool {
        self.has(Metric::needs_node)
    }

    fn has(&self, is_meant: impl Fn(&Metric) -> bool) -> bool {
        METRICS.iter().zip(&self.metrics).any(|(metric, choice)| choice.is_on && is_meant(metric))
    }
}

/// Memory for an answer and what is read from it, at most.
pub(super) fn read_bytes(body: &[u8]) -> usize {
    let objects = body.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    2 * body.len() + objects * OBJECT_BYTES
}

impl Scrape {
    /// Reads the answers to `/stats/summary` and `/pods`.
    ///
    /// # Errors
    /// The path whose answer is not as it must be, and why.
    pub(super) fn read(
        summary: &[u8],
        pods: Option<&[u8]>,
    ) -> Result<Scrape, (&'static str, serde_json::Error)> {
        let summary = serde_json::from_slice(summary).map_err(|error| ("/stats/summary", error))?;
        let pods = pods.map(Pods::read).transpose().map_err(|error| ("/pods", error))?;
        Ok(Scrape { summary, pods })
    }

    /// The claims of volumes whose metrics are sent with their type.
    pub(super) fn claims(&self, settings: &Settings) -> Vec<Claim> {
        let mut claims = Vec::new();
        if !settings.groups.volume || !settings.volume_types {
            return claims;
        }
        for pod in &self.summary.pods {
            let known = self.known(pod);
            let sources = pod.volumes.iter().filter_map(|it| known?.volume(&it.name)?.claim());
            claims.extend(sources.map(|name| claim(pod, name)));
        }
        claims
    }

    /// Writes a request. `room` is asked as it grows, for memory in bytes.
    ///
    /// # Errors
    /// Those of `room`.
    pub(super) fn encode(
        &self,
        settings: &Settings,
        moment: &Moment<'_>,
        room: &mut dyn FnMut(usize) -> Result<(), Refusal>,
    ) -> Result<Encoded, Refusal> {
        let mut encoder = Encoder { settings, moment, room, encoded: Encoded::default() };
        if settings.groups.node {
            encoder.node(&self.summary.node)?;
        }
        for pod in &self.summary.pods {
            let known = self.known(pod);
            if settings.groups.pod {
                encoder.pod(pod, known)?;
            }
            for container in pod.containers.iter().filter(|_| settings.groups.container) {
                encoder.container(pod, known, container)?;
            }
            for volume in pod.volumes.iter().filter(|_| settings.groups.volume) {
                encoder.volume(pod, known, volume)?;
            }
        }
        Ok(encoder.encoded)
    }

    fn known(&self, pod: &Pod) -> Option<&Known> {
        self.pods.as_ref()?.get(&pod.pod_ref.uid)
    }
}

fn claim(pod: &Pod, name: &str) -> Claim {
    Claim { namespace: pod.pod_ref.namespace.clone(), name: name.into() }
}

struct Encoder<'a> {
    settings: &'a Settings,
    moment: &'a Moment<'a>,
    room: &'a mut dyn FnMut(usize) -> Result<(), Refusal>,
    encoded: Encoded,
}

impl Encoder<'_> {
    fn write(
        &mut self,
        of: Of,
        attributes: &Attributes<'_>,
        view: View<'_>,
    ) -> Result<(), Refusal> {
        let Moment { now_ns, node, .. } = *self.moment;
        let view = View { now_ns, node, ..view };
        let Encoded { bytes, items, .. } = &mut self.encoded;
        *items += write::resource(bytes, self.settings, of, attributes, &view);
        // Doubled, the buffer has room for the next one, too.
        (self.room)(bytes.len() * 2)
    }

    fn node(&mut self, node: &stats::Node) -> Result<(), Refusal> {
        let mut attributes = Attributes::default();
        attributes.set(Attribute::NodeName, &*node.node_name);
        let view = View {
            start_ns: node.start_ns,
            cpu: node.cpu.as_deref(),
            memory: node.memory.as_deref(),
            fs: node.fs.as_deref(),
            interfaces: interfaces(&node.network, self.settings.all_interfaces_of_nodes),
            ..View::default()
        };
        self.write(Of::Node, &attributes, view)?;
        for container in &node.system_containers {
            let mut attributes = Attributes::default();
            attributes.set(Attribute::NodeName, &*node.node_name);
            attributes.set(Attribute::SystemContainerName, &*container.name);
            self.write(Of::SystemContainer, &attributes, view_of(container))?;
        }
        Ok(())
    }

    fn pod(&mut self, pod: &Pod, known: Option<&Known>) -> Result<(), Refusal> {
        let view = View {
            start_ns: pod.start_ns,
            cpu: pod.cpu.as_deref(),
            memory: pod.memory.as_deref(),
            fs: pod.ephemeral_storage.as_deref(),
            interfaces: interfaces(&pod.network, self.settings.all_interfaces_of_pods),
            resources: known.map(|known| known.resources).unwrap_or_default(),
            ..View::default()
        };
        self.write(Of::Pod, &attributes_of(pod), view)
    }

    fn container(
        &mut self,
        pod: &Pod,
        known: Option<&Known>,
        container: &Container,
    ) -> Result<(), Refusal> {
        let mut attributes = attributes_of(pod);
        attributes.set(Attribute::ContainerName, &*container.name);
        if self.settings.container_ids {
            let id = known.ok_or("`/pods` does not have its pod");
            match id.and_then(|known| known.container_id(&container.name)) {
                Ok(id) => attributes.set(Attribute::ContainerId, id),
                Err(reason) => return self.skip("container", &container.name, pod, reason),
            }
        }
        let resources = known.map(|known| known.container(&container.name)).unwrap_or_default();
        let view = View { resources, ..view_of(container) };
        self.write(Of::Container, &attributes, view)
    }

    fn volume(&mut self, pod: &Pod, known: Option<&Known>, volume: &Fs) -> Result<(), Refusal> {
        let mut attributes = attributes_of(pod);
        attributes.set(Attribute::VolumeName, &*volume.name);
        if self.settings.volume_types {
            let Some(source) = known.and_then(|known| known.volume(&volume.name)) else {
                return self.skip("volume", &volume.name, pod, "`/pods` does not have it");
            };
            source.describe(&mut attributes);
            let claimed = source.claim().map(|name| claim(pod, name));
            match claimed.and_then(|claim| self.moment.claims.get(&claim)) {
                None => {}
                Some(Ok(persistent)) => persistent.describe_persistent(&mut attributes),
                Some(Err(reason)) => return self.skip("volume", &volume.name, pod, reason),
            }
        }
        let start_ns = Some(self.moment.started_ns);
        let view = View { start_ns, fs: Some(volume), ..View::default() };
        self.write(Of::Volume, &attributes, view)
    }

    fn skip(&mut self, kind: &str, name: &str, pod: &Pod, reason: &str) -> Result<(), Refusal> {
        self.encoded.skipped += 1;
        self.encoded.reason.get_or_insert_with(|| {
            let stats::PodRef { namespace, name: of, .. } = &pod.pod_ref;
            let text = format!("the {kind} {name:?} of the pod {namespace:?}/{of:?}: {reason}");
            text.chars().take(REASON_LIMIT_CHARS).collect()
        });
        Ok(())
    }
}

fn attributes_of(pod: &Pod) -> Attributes<'_> {
    let mut attributes = Attributes::default();
    attributes.set(Attribute::PodUid, &*pod.pod_ref.uid);
    attributes.set(Attribute::PodName, &*pod.pod_ref.name);
    attributes.set(Attribute::NamespaceName, &*pod.pod_ref.namespace);
    attributes
}

fn view_of(container: &Container) -> View<'_> {
    View {
        start_ns: container.start_ns,
        cpu: container.cpu.as_deref(),
        memory: container.memory.as_deref(),
        fs: container.rootfs.as_deref(),
        logs: container.logs.as_deref(),
        ..View::default()
    }
}

/// The interfaces whose numbers are sent.
fn interfaces(network: &Option<Box<Network>>, all: bool) -> &[Network] {
    match network {
        None => &[],
        Some(network) if all => &network.interfaces,
        Some(network) => std::slice::from_ref(network),
    }
}
