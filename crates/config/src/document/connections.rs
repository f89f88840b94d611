//! Checks of references: every component in use is defined, every defined component is used, and
//! connectors connect pipelines.

use super::components::{Definition, Definitions};
use super::pipelines::{Pipeline, Reference};
use crate::catalog::Class;
use crate::component_id::ComponentId;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::nearest::did_you_mean;

/// The side of a pipeline that a list of ids is.
const SIDES: [Class; 3] = [Class::Receiver, Class::Processor, Class::Exporter];

fn side(pipeline: &Pipeline, class: Class) -> &[Reference] {
    match class {
        Class::Receiver => &pipeline.receivers,
        Class::Processor => &pipeline.processors,
        Class::Exporter => &pipeline.exporters,
        Class::Extension | Class::Connector => &[],
    }
}

/// Pipelines, started extensions and definitions, and the diagnostics for errors about them.
pub(super) struct Connections<'a> {
    pub(super) pipelines: &'a [Pipeline],
    pub(super) extensions: &'a [Reference],
    pub(super) definitions: &'a Definitions,
    pub(super) diagnostics: &'a mut Diagnostics,
}

impl Connections<'_> {
    pub(super) fn check(&mut self) {
        for pipeline in self.pipelines {
            for class in SIDES {
                let path = format!("service.pipelines.{}.{}", pipeline.id, class.key());
                for reference in side(pipeline, class) {
                    self.check_reference(&path, class, Some(pipeline), reference);
                }
            }
        }
        for reference in self.extensions {
            self.check_reference("service.extensions", Class::Extension, None, reference);
        }
        self.check_connectors();
        // A misspelt reference explains most of these. Without errors they are worth a look.
        if !self.diagnostics.has_errors() {
            self.warn_of_unused();
        }
    }

    fn check_reference(
        &mut self,
        path: &str,
        class: Class,
        pipeline: Option<&Pipeline>,
        reference: &Reference,
    ) {
        let Reference { id, span } = reference;
        let own = self.definitions.find(class, id);
        let connector = self.definitions.find(Class::Connector, id);
        let connector = connector.filter(|_| is_connectable(Class::Connector, class));
        if let (Some(own), Some(connector)) = (own, connector) {
            let one = class.with_article();
            let message = format!("`{path}`: `{id}` is both {one} and a connector");
            let error = Diagnostic::error(*span, message).with_related(own.span, class.name());
            return self.diagnostics.push(error.with_related(connector.span, "connector"));
        }
        let Some(definition) = own.or(connector) else {
            return self.diagnostics.push(self.undefined(path, class, reference));
        };
        if let (Some(pipeline), Some(kind)) = (pipeline, definition.kind)
            && !kind.signals.contains(&pipeline.signal)
        {
            let carried: Vec<&str> = kind.signals.iter().map(|signal| signal.as_str()).collect();
            let (own, signal) = (definition.class.name(), pipeline.signal);
            let message = format!("`{path}`: the {own} `{id}` does not support {signal}");
            let hint = format!("it supports {}", carried.join(" and "));
            self.diagnostics.push(Diagnostic::error(*span, message).with_hint(hint));
        }
    }

    fn undefined(&self, path: &str, class: Class, reference: &Reference) -> Diagnostic {
        let all = &self.definitions.0;
        let Reference { id, span } = reference;
        let message = format!("`{path}` names the {} `{id}`, which is not defined", class.name());
        let error = Diagnostic::error(*span, message);
        if let Some(other) = all.iter().find(|definition| definition.id == *id) {
            return error.with_hint(format!("it is one of the `{}`", other.class.key()));
        }
        let fitting =
            all.iter().filter(|one| one.class == class || is_connectable(one.class, class));
        let names: Vec<String> = fitting.map(|definition| definition.id.to_string()).collect();
        let hint = did_you_mean(&id.to_string(), names.iter().map(String::as_str))
            .unwrap_or_else(|| format!("define it under `{}`", class.key()));
        error.with_hint(hint)
    }

    /// A connector takes data from pipelines that have it as exporter, and passes it to pipelines
    /// of the same signal that have it as receiver. Both must exist, without a cycle.
    fn check_connectors(&mut self) {
        let directions = [(Class::Exporter, Class::Receiver), (Class::Receiver, Class::Exporter)];
        for Definition { class, id, kind, .. } in &self.definitions.0 {
            if *class != Class::Connector || kind.is_none() {
                continue;
            }
            let place = |pipeline: &Pipeline, class| {
                side(pipeline, class).iter().find(|one| one.id == *id).map(|one| one.span)
            };
            for pipeline in self.pipelines {
                let signal = pipeline.signal;
                for (own, other) in directions {
                    let connects =
                        |to: &Pipeline| to.signal == signal && place(to, other).is_some();
                    if let Some(span) = place(pipeline, own)
                        && !self.pipelines.iter().any(connects)
                    {
                        let (own, other) = (own.with_article(), other.name());
                        let message = format!(
                            "the connector `{id}` is {own} of `{}` but no {other} of any {signal} \
                             pipeline",
                            pipeline.id
                        );
                        self.diagnostics.error(span, message);
                    }
                }
            }
        }
        for cycle in cycles(self.pipelines, self.definitions) {
            let name = |(pipeline, via): &Edge| format!("{} → {via}", self.pipelines[*pipeline].id);
            let ids: Vec<String> = cycle.iter().map(name).collect();
            let first = &self.pipelines[cycle[0].0];
            let steps = ids.join(" → ");
            let message = format!("data would circulate for ever: {steps} → {}", first.id);
            self.diagnostics.error(first.span, message);
        }
    }

    fn warn_of_unused(&mut self) {
        for Definition { class, id, kind, span, .. } in &self.definitions.0 {
            let is_in = |list: &[Reference]| list.iter().any(|reference| reference.id == *id);
            let is_in_pipeline = |pipeline: &Pipeline| match class {
                Class::Connector => is_in(&pipeline.receivers) || is_in(&pipeline.exporters),
                class => is_in(side(pipeline, *class)),
            };
            let is_extension = *class == Class::Extension;
            let is_started = is_extension && is_in(self.extensions);
            if is_started || kind.is_none() || self.pipelines.iter().any(is_in_pipeline) {
                continue;
            }
            let message = format!("the {} `{id}` is defined but not used", class.name());
            let hint = is_extension.then(|| "name it under `service.extensions`".to_owned());
            self.diagnostics.push(Diagnostic::warning(*span, message).with_hint_if(hint));
        }
    }
}

fn is_connectable(class: Class, wanted: Class) -> bool {
    class == Class::Connector && matches!(wanted, Class::Receiver | Class::Exporter)
}

/// The number of a pipeline, and the connector to the next.
type Edge = (usize, ComponentId);

/// Cycles of pipelines, each once.
fn cycles(pipelines: &[Pipeline], definitions: &Definitions) -> Vec<Vec<Edge>> {
    let edges_from = |from: &Pipeline| -> Vec<Edge> {
        let ids = from.exporters.iter().map(|reference| &reference.id);
        let connectors = ids.filter(|id| definitions.find(Class::Connector, id).is_some());
        let edges = connectors.flat_map(|id| {
            let is_fed = move |to: &Pipeline| {
                to.signal == from.signal && to.receivers.iter().any(|other| other.id == *id)
            };
            let fed = pipelines.iter().enumerate().filter(move |(_, to)| is_fed(to));
            fed.map(move |(to, _)| (to, id.clone()))
        });
        edges.collect()
    };
    let edges: Vec<Vec<Edge>> = pipelines.iter().map(edges_from).collect();
    let mut found = Vec::new();
    let mut finished = vec![false; pipelines.len()];
    for start in 0..pipelines.len() {
        // Depth first, without recursion: a configuration may chain thousands of pipelines. Each
        // step is a pipeline, and how many of its edges were followed.
        let mut path = if finished[start] { Vec::new() } else { vec![(start, 0)] };
        while let Some((pipeline, followed)) = path.last_mut() {
            let Some(&(next, _)) = edges[*pipeline].get(*followed) else {
                finished[*pipeline] = true;
                path.pop();
                continue;
            };
            *followed += 1;
            if let Some(position) = path.iter().position(|(pipeline, _)| *pipeline == next) {
                let step = |&(pipeline, followed): &(usize, usize)| {
                    (pipeline, edges[pipeline][followed - 1].1.clone())
                };
                found.push(path[position..].iter().map(step).collect());
            } else if !finished[next] {
                path.push((next, 0));
            }
        }
    }
    found
}
