//! From configuration files to a plan, with everything that is wrong on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use sluice_config::document::{Document, LogEncoding, LogLevel, OwnLogs, PrometheusReader};
use sluice_config::{Class, Component, Diagnostics, Environment, Node, PipelineSignal, Value, read_component};
use sluice_otlp::Signal;
use sluice_processors::Settings;
use sluice_receivers::ReceiverConfig;
use sluice_telemetry::exposition::Naming;
use sluice_telemetry::logging::{Encoding, LoggingOptions, Sampling};

use super::{ExporterPlan, MetricsPlan, PipelineSpec, Plan, ReceiverPlan, build};
use crate::catalog::Components;
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

/// Reads, checks and plans the configuration at the given locations. There is a plan only if nothing is wrong.
pub fn load(locations: &[String], environment: &dyn Environment) -> (Option<Plan>, Diagnostics) {
    let (document, mut diagnostics) = sluice_config::load(locations, environment, &Components);
    let Some(document) = document else { return (None, diagnostics) };
    let read = Read::components(&document, &mut diagnostics);
    if diagnostics.has_errors() {
        return (None, diagnostics);
    }
    let metrics = metrics(&document, &mut diagnostics);
    let logging = logging(&document.telemetry.logs, &mut diagnostics);
    let plan = build::build(&document, read, metrics, logging, &mut diagnostics);
    ((!diagnostics.has_errors()).then_some(plan), diagnostics)
}

impl Read {
    fn components(document: &Document, diagnostics: &mut Diagnostics) -> Read {
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
                read.check_authenticator(component, name, ExtensionPlan::authenticates_senders, diagnostics);
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
                read.check_authenticator(component, name, ExtensionPlan::authenticates_requests, diagnostics);
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
        component: &Component,
        name: &str,
        fits: fn(&ExtensionPlan) -> bool,
        diagnostics: &mut Diagnostics,
    ) {
        let problem = match self.extensions.get(name) {
            Some(extension) if fits(extension) => return,
            Some(_) => format!("{}: the extension `{name}` cannot authenticate here", component.path),
            None => format!("{}: `auth` names `{name}`, which is not among `service.extensions`", component.path),
        };
        diagnostics.error(component.span, problem);
    }
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

fn metrics(document: &Document, diagnostics: &mut Diagnostics) -> Option<MetricsPlan> {
    let own = &document.telemetry.metrics;
    let PrometheusReader { host, port, without_type_suffix, without_units, .. } = own.readers.first()?.clone();
    if own.readers.len() > 1 {
        diagnostics.warning(None, "service.telemetry.metrics.readers: only the first reader is served");
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let constant_labels = document
        .telemetry
        .resource
        .iter()
        .filter_map(|(name, value)| Some((name.replace(['.', '-', '/'], "_"), value.clone()?)))
        .collect();
    let naming = Naming { without_type_suffix, without_units, constant_labels };
    Some(MetricsPlan { endpoint: format!("{host}:{port}"), naming })
}

fn logging(logs: &OwnLogs, diagnostics: &mut Diagnostics) -> LoggingOptions {
    if logs.output_paths.len() > 1 {
        diagnostics.warning(None, "service.telemetry.logs.output_paths: only the first path is written to");
    }
    if !logs.initial_fields.is_empty() {
        diagnostics
            .warning(None, "service.telemetry.logs.initial_fields has no effect: log lines have a fixed set of fields");
    }
    let level = match logs.level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    };
    LoggingOptions {
        level: level.to_owned(),
        encoding: match logs.encoding {
            LogEncoding::Console => Encoding::Console,
            LogEncoding::Json => Encoding::Json,
        },
        output: logs.output_paths.first().cloned().unwrap_or_else(|| "stderr".to_owned()),
        sampling: logs.sampling.map(|sampling| Sampling {
            window: sampling.tick.max(Duration::from_millis(1)),
            burst: sampling.initial,
            thereafter: sampling.thereafter,
        }),
    }
}
