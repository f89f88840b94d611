//! The options of all components of a document.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use sluice_config::document::Document;
use sluice_config::{
    Class, Component, Diagnostic, Diagnostics, Node, PipelineSignal, Span, Value, nearest, read_component,
};
use sluice_otlp::Signal;
use sluice_processors::Settings;
use sluice_receivers::ReceiverConfig;

use super::{ExporterPlan, PipelineSpec, ReceiverPlan};
use crate::extensions::{self, ExtensionPlan};
use crate::steps::Step;

/// All components of a document with their options read.
pub(super) struct Read {
    pub receivers: Vec<ReceiverPlan>,
    pub processors: BTreeMap<String, Settings>,
    pub steps: BTreeMap<(String, Signal), Arc<Step>>,
    pub exporters: BTreeMap<String, ExporterPlan>,
    pub extensions: BTreeMap<String, ExtensionPlan>,
    pub pipelines: Vec<PipelineSpec>,
}

impl Read {
    pub(super) fn components(document: &Document, diagnostics: &mut Diagnostics) -> Read {
        let pipelines: Vec<PipelineSpec> = document.pipelines.iter().map(spec).collect();
        let used = |ids: fn(&PipelineSpec) -> &Vec<String>| -> BTreeSet<&str> {
            pipelines.iter().flat_map(|pipeline| ids(pipeline).iter().map(String::as_str)).collect()
        };
        let used_receivers = used(|pipeline| &pipeline.receivers);
        let used_exporters = used(|pipeline| &pipeline.exporters);
        let extensions = read_extensions(document, diagnostics);
        let mut read = Read {
            receivers: Vec::new(),
            processors: BTreeMap::new(),
            steps: BTreeMap::new(),
            exporters: BTreeMap::new(),
            extensions,
            pipelines: pipelines.clone(),
        };
        for component in &document.receivers {
            let id = component.id.to_string();
            let config = read_component(component, diagnostics, |fields| {
                ReceiverConfig::read(component.kind, fields).expect("the catalogue lists what can be read")
            });
            for name in config.authenticators() {
                read.check_authenticator(document, component, name, ExtensionPlan::authenticates_senders, diagnostics);
            }
            if used_receivers.contains(id.as_str()) {
                let fingerprint = fingerprint(component, document, config.authenticators());
                read.receivers.push(ReceiverPlan { id, config, fingerprint });
            }
        }
        read.processors(document, diagnostics);
        for component in &document.exporters {
            let id = component.id.to_string();
            let config = read_component(component, diagnostics, |fields| {
                sluice_exporters::read(component.kind, fields).expect("the catalogue lists what can be read")
            });
            if let Some(name) = config.authenticator() {
                read.check_authenticator(document, component, name, ExtensionPlan::authenticates_requests, diagnostics);
            }
            if used_exporters.contains(id.as_str()) {
                let fingerprint = fingerprint(component, document, config.authenticator().into_iter().collect());
                read.exporters.insert(id, ExporterPlan { config, span: component.span, fingerprint });
            }
        }
        read
    }

    fn processors(&mut self, document: &Document, diagnostics: &mut Diagnostics) {
        for component in &document.processors {
            let id = component.id.to_string();
            let settings = read_component(component, diagnostics, |fields| {
                sluice_processors::read(component.kind, fields).expect("the catalogue lists what can be read")
            });
            let signals: BTreeSet<Signal> = self
                .pipelines
                .iter()
                .filter(|pipeline| pipeline.processors.contains(&id))
                .map(|pipeline| pipeline.signal)
                .collect();
            for signal in signals {
                match settings.build(signal) {
                    Ok(Some(built)) => {
                        for warning in built.warnings {
                            diagnostics.warning(component.span, format!("{}: {warning}", component.path));
                        }
                        let fingerprint = built.processor.fingerprint();
                        let step = Step { id: id.clone(), fingerprint, processor: built.processor };
                        self.steps.insert((id.clone(), signal), Arc::new(step));
                    }
                    Ok(None) => {}
                    Err(error) => diagnostics.error(component.span, format!("{}: {error}", component.path)),
                }
            }
            self.processors.insert(id, settings);
        }
    }

    fn check_authenticator(
        &self,
        document: &Document,
        component: &Component,
        name: &str,
        fits: fn(&ExtensionPlan) -> bool,
        diagnostics: &mut Diagnostics,
    ) {
        let is_defined = || document.extensions.iter().any(|extension| extension.id.to_string() == name);
        let fitting = self.extensions.iter().filter(|(_, extension)| fits(extension)).map(|(id, _)| id.as_str());
        let (problem, hint) = match self.extensions.get(name) {
            Some(extension) if fits(extension) => return,
            Some(_) => ("cannot authenticate here", None),
            None if is_defined() => ("is not started", Some(format!("add `{name}` to `service.extensions`"))),
            None => ("is not there", nearest(name, fitting).map(|meant| format!("did you mean `{meant}`?"))),
        };
        let span = authenticator_span(&component.node, name).unwrap_or(component.span);
        let message = format!("{}: the extension `{name}` {problem}", component.path);
        diagnostics.push(Diagnostic::error(span, message).with_hint_if(hint));
    }
}

/// Where an option `authenticator` has this name.
fn authenticator_span(node: &Node, name: &str) -> Option<Span> {
    node.as_mapping()?.iter().find_map(|entry| match entry.value.as_scalar() {
        Some(scalar) if entry.key == "authenticator" && scalar.text == name => Some(entry.value.span),
        _ => authenticator_span(&entry.value, name),
    })
}

fn spec(pipeline: &sluice_config::Pipeline) -> PipelineSpec {
    let ids = |references: &[sluice_config::document::Reference]| {
        references.iter().map(|reference| reference.id.to_string()).collect()
    };
    PipelineSpec {
        id: pipeline.id.clone(),
        signal: match pipeline.signal {
            PipelineSignal::Traces => Signal::Traces,
            PipelineSignal::Metrics => Signal::Metrics,
            PipelineSignal::Logs => Signal::Logs,
        },
        receivers: ids(&pipeline.receivers),
        processors: ids(&pipeline.processors),
        exporters: ids(&pipeline.exporters),
    }
}

/// Those that `service.extensions` starts. All are read, so that errors in the others show too.
fn read_extensions(document: &Document, diagnostics: &mut Diagnostics) -> BTreeMap<String, ExtensionPlan> {
    let mut plans = BTreeMap::new();
    for component in &document.extensions {
        let plan = read_component(component, diagnostics, |fields| extensions::read(component.kind, fields));
        if document.started_extensions.iter().any(|reference| reference.id == component.id) {
            plans.insert(component.id.to_string(), plan);
        }
    }
    plans
}

/// Changes when the component's options change, or those of the extensions that it uses; not when lines move.
fn fingerprint(component: &Component, document: &Document, uses: Vec<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    component.kind.hash(&mut hasher);
    hash_node(&component.node, &mut hasher);
    for name in uses {
        let used = document.components(Class::Extension).iter().find(|extension| extension.id.to_string() == name);
        if let Some(extension) = used {
            hash_node(&extension.node, &mut hasher);
        }
    }
    hasher.finish()
}

fn hash_node(node: &Node, hasher: &mut DefaultHasher) {
    match &node.value {
        Value::Scalar(scalar) => (0u8, scalar.kind(), &scalar.text).hash(hasher),
        Value::List(items) => {
            (1u8, items.len()).hash(hasher);
            items.iter().for_each(|item| hash_node(item, hasher));
        }
        Value::Mapping(entries) => {
            (2u8, entries.len()).hash(hasher);
            for entry in entries {
                entry.key.hash(hasher);
                hash_node(&entry.value, hasher);
            }
        }
    }
}
