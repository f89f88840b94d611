//! The options of all components of a document.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use sluice_config::document::Document;
use sluice_config::{
    Component, ComponentKinds, Diagnostic, Diagnostics, Fields, Node, Span, Value, nearest,
};
use sluice_exporters::{EXPORTERS, ExporterConfig};
use sluice_extensions::{EXTENSIONS, Extension};
use sluice_otlp::Signal;
use sluice_processors::{Built, PROCESSORS, ProcessorConfig};
use sluice_receivers::{Checkpoints, ReceiverKinds};

use super::{ExporterPlan, PipelineSpec, ReceiverPlan};
use crate::steps::Step;

/// Options of processors that are only settings for the engine.
type Processors = BTreeMap<String, ProcessorConfig>;
type Steps = BTreeMap<(String, Signal), Arc<Step>>;

/// All components of a document with their options read.
pub(super) struct Read {
    pub receivers: Vec<ReceiverPlan>,
    pub processors: Processors,
    pub steps: Steps,
    pub exporters: BTreeMap<String, ExporterPlan>,
    pub extensions: BTreeMap<String, Extension>,
    pub pipelines: Vec<PipelineSpec>,
}

impl Read {
    pub(super) fn components(
        document: &Document,
        receivers: &ReceiverKinds,
        diagnostics: &mut Diagnostics,
    ) -> Read {
        let extensions = read_extensions(document, diagnostics);
        let pipelines = document.pipelines.iter().map(spec).collect();
        let mut reader = Reader { document, diagnostics, extensions, pipelines };
        let receivers = reader.receivers(receivers);
        reader.check_additional_auth();
        let (processors, steps) = reader.processors();
        let exporters = reader.exporters();
        let Reader { extensions, pipelines, .. } = reader;
        Read { receivers, processors, steps, exporters, extensions, pipelines }
    }
}

struct Reader<'a> {
    document: &'a Document,
    diagnostics: &'a mut Diagnostics,
    extensions: BTreeMap<String, Extension>,
    pipelines: Vec<PipelineSpec>,
}

impl Reader<'_> {
    fn receivers(&mut self, kinds: &ReceiverKinds) -> Vec<ReceiverPlan> {
        let mut receivers = Vec::new();
        for component in &self.document.receivers {
            let id = component.id.to_string();
            let config = options(kinds, component, self.diagnostics);
            let (servers, clients) = (config.authenticators(), config.client_authenticators());
            for name in &servers {
                self.check_authenticator(component, name, |it| it.server.is_some());
            }
            for name in &clients {
                self.check_authenticator(component, name, |it| it.client.is_some());
            }
            if self.pipelines.iter().any(|pipeline| pipeline.receivers.contains(&id)) {
                let storage = match config.checkpoints() {
                    Checkpoints::In(storage) => Some(storage),
                    _ => None,
                };
                let uses = servers.into_iter().chain(clients).chain(storage);
                let fingerprint = self.fingerprint(component, uses) ^ config.files_fingerprint();
                let place = self.diagnostics.place(component.span);
                let (span, checkpoint, memory_bytes) = (component.span, None, 0);
                let plan =
                    ReceiverPlan { id, config, place, span, checkpoint, memory_bytes, fingerprint };
                receivers.push(plan);
            }
        }
        receivers
    }

    fn processors(&mut self) -> (Processors, Steps) {
        let (mut settings_of, mut steps) = (Processors::new(), Steps::new());
        for component in &self.document.processors {
            let (id, path, span) = (component.id.to_string(), &component.path, component.span);
            let build = match options(&PROCESSORS, component, self.diagnostics) {
                ProcessorConfig::Edits(build) => build,
                settings => {
                    settings_of.insert(id, settings);
                    continue;
                }
            };
            let users = self.pipelines.iter().filter(|it| it.processors.contains(&id));
            for signal in users.map(|it| it.signal).collect::<BTreeSet<Signal>>() {
                match build(signal) {
                    Ok(Built { processor, warnings }) => {
                        for warning in warnings {
                            self.diagnostics.warning(span, format!("{path}: {warning}"));
                        }
                        let fingerprint = processor.fingerprint();
                        let counters = Default::default();
                        let (id, place) = (id.clone(), self.diagnostics.place(span));
                        let step = Step { id, place, fingerprint, processor, counters };
                        steps.insert((step.id.clone(), signal), Arc::new(step));
                    }
                    Err(error) => self.diagnostics.error(span, format!("{path}: {error}")),
                }
            }
        }
        (settings_of, steps)
    }

    fn exporters(&mut self) -> BTreeMap<String, ExporterPlan> {
        let mut exporters = BTreeMap::new();
        for component in &self.document.exporters {
            let (id, span) = (component.id.to_string(), component.span);
            let config = options(&EXPORTERS, component, self.diagnostics);
            let authenticator = config.client().and_then(|it| it.authenticator.as_deref());
            if let Some(name) = authenticator {
                self.check_authenticator(component, name, |it| it.client.is_some());
            }
            let server = config.listening().and_then(|it| it.authenticator);
            if let Some(name) = server {
                self.check_authenticator(component, name, |it| it.server.is_some());
            }
            if self.pipelines.iter().any(|pipeline| pipeline.exporters.contains(&id)) {
                let uses = authenticator.into_iter().chain(server);
                let fingerprint = self.fingerprint(component, uses);
                self.check_signals(component, &id, &*config);
                let place = self.diagnostics.place(span);
                let memory_bytes = 0;
                let plan = ExporterPlan { config, span, place, memory_bytes, fingerprint };
                exporters.insert(id, plan);
            }
        }
        exporters
    }

    /// The exporter must be able to send the signals of its pipelines.
    fn check_signals(&mut self, component: &Component, id: &String, config: &dyn ExporterConfig) {
        for pipeline in self.pipelines.iter().filter(|pipeline| pipeline.exporters.contains(id)) {
            if let Some(option) = config.missing_option(pipeline.signal) {
                let (path, pipeline) = (&component.path, &pipeline.id);
                let message = format!("`{path}.{option}` is required: `{pipeline}` sends there");
                let hint = "or give `endpoint`, to which the signals' paths are added";
                self.diagnostics.push(Diagnostic::error(component.span, message).with_hint(hint));
            }
        }
    }

    fn check_authenticator(
        &mut self,
        component: &Component,
        name: &str,
        fits: fn(&Extension) -> bool,
    ) {
        let fitting = self.extensions.iter().filter(|(_, extension)| fits(extension));
        let (problem, hint) = match self.extensions.get(name) {
            Some(extension) if fits(extension) => return,
            Some(_) => ("cannot authenticate here", None),
            None if extension(self.document, name).is_some() => {
                ("is not started", Some(format!("add `{name}` to `service.extensions`")))
            }
            None => {
                let meant = nearest(name, fitting.map(|(id, _)| id.as_str()));
                ("is not there", meant.map(|meant| format!("did you mean `{meant}`?")))
            }
        };
        let span = authenticator_span(&component.node, name).unwrap_or(component.span);
        let message = format!("{}: the extension `{name}` {problem}", component.path);
        self.diagnostics.push(Diagnostic::error(span, message).with_hint_if(hint));
    }

    /// The extension that this one builds on.
    fn builds_on(&self, name: &str) -> Option<&str> {
        self.extensions.get(name)?.client.as_ref()?.builds_on.as_deref()
    }

    /// Changes when the component's options change, or those of the extensions that it uses and of
    /// those that they build on; not when lines move.
    fn fingerprint<'a>(
        &self,
        component: &Component,
        uses: impl IntoIterator<Item = &'a str>,
    ) -> u64 {
        let mut hasher = DefaultHasher::new();
        component.kind.hash(&mut hasher);
        hash_node(&component.node, &mut hasher);
        for name in uses {
            let names = [Some(name), self.builds_on(name)];
            let extensions =
                names.into_iter().flatten().filter_map(|it| extension(self.document, it));
            extensions.for_each(|it| hash_node(&it.node, &mut hasher));
        }
        hasher.finish()
    }

    /// An extension may only build on one that has credentials itself.
    fn check_additional_auth(&mut self) {
        for component in &self.document.extensions {
            if let Some(name) = self.builds_on(&component.id.to_string()).map(str::to_owned) {
                let fits = |it: &Extension| it.client.as_ref().is_some_and(|it| it.is_foundation);
                self.check_authenticator(component, &name, fits);
            }
        }
    }
}

/// The place at which an option names this authenticator.
fn authenticator_span(node: &Node, name: &str) -> Option<Span> {
    const OPTIONS: [&str; 2] = ["authenticator", "additional_auth"];
    node.as_mapping()?.iter().find_map(|entry| match entry.value.as_scalar() {
        Some(scalar) if OPTIONS.contains(&entry.key.as_str()) && scalar.text == name => {
            Some(entry.value.span)
        }
        _ => authenticator_span(&entry.value, name),
    })
}

fn spec(pipeline: &sluice_config::Pipeline) -> PipelineSpec {
    let ids = |references: &[sluice_config::document::Reference]| {
        references.iter().map(|reference| reference.id.to_string()).collect()
    };
    PipelineSpec {
        id: pipeline.id.clone(),
        signal: pipeline.signal,
        receivers: ids(&pipeline.receivers),
        processors: ids(&pipeline.processors),
        exporters: ids(&pipeline.exporters),
    }
}

/// Reads a component's options and reports unknown ones.
fn options<C, M: Copy>(
    kinds: &ComponentKinds<C, M>,
    component: &Component,
    diagnostics: &mut Diagnostics,
) -> C {
    let Component { kind, node, span, path, .. } = component;
    Fields::read(path, node, *span, diagnostics, |fields| {
        kinds.read(kind, fields).expect("the catalogue lists what can be read")
    })
}

/// An extension as the document defines it, started or not.
pub(super) fn extension<'a>(document: &'a Document, id: &str) -> Option<&'a Component> {
    component(&document.extensions, id)
}

/// A component as the document defines it.
pub(super) fn component<'a>(components: &'a [Component], id: &str) -> Option<&'a Component> {
    components.iter().find(|component| component.id.to_string() == id)
}

/// The extensions that `service.extensions` starts. The rest are read too, to show their errors.
fn read_extensions(
    document: &Document,
    diagnostics: &mut Diagnostics,
) -> BTreeMap<String, Extension> {
    let read = document.extensions.iter();
    let read = read.map(|it| {
        let extension = options(&EXTENSIONS, it, diagnostics);
        (&it.id, Extension { place: diagnostics.place(it.span), ..extension })
    });
    let started = &document.started_extensions;
    let started = read.filter(|(id, _)| started.iter().any(|it| it.id == **id));
    started.map(|(id, plan)| (id.to_string(), plan)).collect()
}

fn hash_node(node: &Node, hasher: &mut DefaultHasher) {
    // Of a list that was a `${…}` a string option takes the text, which may change alone.
    node.text.as_ref().map(|scalar| &scalar.text).hash(hasher);
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

#[cfg(test)]
mod tests {
    use sluice_config::{Diagnostic, SystemEnvironment};

    use crate::plan::{Plan, load};

    /// An exporter with a `headers_setter` that builds on `additional`.
    fn read(additional: &str, token: &str) -> (Option<Plan>, Vec<String>) {
        let text = format!(
            "receivers: {{otlp: {{protocols: {{grpc: }}}}}}\n\
             exporters: {{otlp: {{endpoint: 'x:1', auth: {{authenticator: headers_setter}}}}}}\n\
             extensions:\n  bearertokenauth/tenant: {{token: {token}}}\n  \
             bearertokenauth/unused: {{token: t}}\n  \
             headers_setter/other: {{headers: [{{key: a, value: b}}]}}\n  \
             headers_setter:\n    additional_auth: {additional}\n    \
             headers: [{{key: a, value: b}}]\n\
             service:\n  \
             extensions: [headers_setter, headers_setter/other, bearertokenauth/tenant]\n  \
             pipelines: {{traces: {{receivers: [otlp], exporters: [otlp]}}}}\n"
        );
        let (plan, diagnostics) = load(&[format!("yaml:{text}")], &SystemEnvironment);
        let error = |error: &Diagnostic| {
            let Diagnostic { span, message, hint, .. } = error;
            let place = span.map(|span| (span.line, span.column));
            format!("{place:?} {message} ({})", hint.as_deref().unwrap_or_default())
        };
        let errors = diagnostics.errors().map(error).collect();
        (plan, errors)
    }

    /// Scenario: a `headers_setter` builds on a misspelt extension, on one that is not started, on
    /// one of its own kind. Guarantee: an error at the name, with the one that was meant.
    #[test]
    fn what_a_headers_setter_builds_on_is_checked() {
        for (additional, expected) in [
            (
                "bearertokenauth/tenent",
                "the extension `bearertokenauth/tenent` is not there \
                 (did you mean `bearertokenauth/tenant`?)",
            ),
            (
                "bearertokenauth/unused",
                "the extension `bearertokenauth/unused` is not started (add",
            ),
            (
                "headers_setter/other",
                "the extension `headers_setter/other` cannot authenticate here",
            ),
        ] {
            let (plan, errors) = read(additional, "t");
            assert!(plan.is_none() && errors.len() == 1, "{errors:?}");
            let place = "Some((8, 22)) extensions.headers_setter: ";
            assert!(errors[0].starts_with(place), "{errors:?}");
            assert!(errors[0].contains(expected), "{errors:?}");
        }
    }

    /// Scenario: an exporter of traces and metrics that has a URL for metrics only. Guarantee: an
    /// error that names the pipeline, the exporter and the option.
    #[test]
    fn an_exporter_without_a_url_for_a_signal_is_an_error() {
        let text = "receivers: {otlp: {protocols: {grpc: }}}\n\
            exporters: {otlphttp: {metrics_endpoint: 'http://x/m'}}\n\
            service:\n  pipelines:\n    \
            metrics: {receivers: [otlp], exporters: [otlphttp]}\n    \
            traces/2: {receivers: [otlp], exporters: [otlphttp]}\n";
        let (plan, diagnostics) = load(&[format!("yaml:{text}")], &SystemEnvironment);
        let errors: Vec<String> = diagnostics.errors().map(|error| error.message.clone()).collect();
        assert!(plan.is_none() && errors.len() == 1, "{errors:?}");
        let expected = "`exporters.otlphttp.traces_endpoint` is required: `traces/2` sends there";
        assert!(errors[0].contains(expected), "{errors:?}");
    }

    /// Scenario: a reload with another token in the extension that the exporter's `headers_setter`
    /// builds on. Guarantee: the exporter counts as changed, and only then.
    #[test]
    fn exporters_follow_what_their_extensions_build_on() {
        let fingerprint = |token: &str| {
            let (plan, errors) = read("bearertokenauth/tenant", token);
            plan.unwrap_or_else(|| panic!("{errors:?}")).exporters["otlp"].fingerprint
        };
        assert_eq!(fingerprint("first"), fingerprint("first"));
        assert_ne!(fingerprint("first"), fingerprint("second"));
        assert_ne!(fingerprint("'${yaml:[a]}'"), fingerprint("'${yaml:[ a]}'"));
    }
}
