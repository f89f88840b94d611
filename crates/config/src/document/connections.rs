//! Checks of references: every component in use is defined, every defined component is used, and
//! connectors connect pipelines.

use super::components::Definitions;
use super::pipelines::{Pipeline, Reference};
use crate::catalog::Class;
use crate::component_id::ComponentId;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::nearest::nearest;

/// Which side of a pipeline a list of ids is.
const SIDES: [(&str, Class); 3] = [
    ("receivers", Class::Receiver),
    ("processors", Class::Processor),
    ("exporters", Class::Exporter),
];

fn side(pipeline: &Pipeline, class: Class) -> &[Reference] {
    match class {
        Class::Receiver => &pipeline.receivers,
        Class::Processor => &pipeline.processors,
        Class::Exporter => &pipeline.exporters,
        Class::Extension | Class::Connector => &[],
    }
}

pub(super) fn check_references(
    pipelines: &[Pipeline],
    extensions: &[Reference],
    definitions: &Definitions<'_>,
    diagnostics: &mut Diagnostics,
) {
    for pipeline in pipelines {
        for (key, class) in SIDES {
            for reference in side(pipeline, class) {
                let path = format!("service.pipelines.{}.{key}", pipeline.id);
                check_reference(&path, class, Some(pipeline), reference, definitions, diagnostics);
            }
        }
    }
    for reference in extensions {
        let (path, class) = ("service.extensions", Class::Extension);
        check_reference(path, class, None, reference, definitions, diagnostics);
    }
}

fn check_reference(
    path: &str,
    class: Class,
    pipeline: Option<&Pipeline>,
    reference: &Reference,
    definitions: &Definitions<'_>,
    diagnostics: &mut Diagnostics,
) {
    let Reference { id, span } = reference;
    let connector =
        definitions.find(Class::Connector, id).filter(|found| is_connectable(found.class, class));
    let own = definitions.find(class, id);
    if let (Some(own), Some(connector)) = (own, connector) {
        let error = Diagnostic::error(
            *span,
            format!("`{path}`: `{id}` is both {} and a connector", class.with_article()),
        );
        diagnostics.push(
            error.with_related(own.span, class.name()).with_related(connector.span, "connector"),
        );
        return;
    }
    let Some(definition) = own.or(connector) else {
        diagnostics.push(undefined(path, class, reference, definitions));
        return;
    };
    if let (Some(pipeline), Some(kind)) = (pipeline, definition.kind)
        && !kind.signals.contains(&pipeline.signal)
    {
        let carried: Vec<&str> = kind.signals.iter().map(|signal| signal.as_str()).collect();
        let (own, signal) = (definition.class.name(), pipeline.signal);
        let message = format!("`{path}`: the {own} `{id}` does not support {signal}");
        let error = Diagnostic::error(*span, message);
        diagnostics.push(error.with_hint(format!("it supports {}", carried.join(" and "))));
    }
}

fn undefined(
    path: &str,
    class: Class,
    reference: &Reference,
    definitions: &Definitions<'_>,
) -> Diagnostic {
    let id = &reference.id;
    let error = Diagnostic::error(
        reference.span,
        format!("`{path}` names the {} `{id}`, which is not defined", class.name()),
    );
    if let Some(other) = definitions.all().find(|definition| definition.id == *id) {
        return error.with_hint(format!("it is one of the `{}`", other.class.key()));
    }
    let names: Vec<String> = definitions
        .all()
        .filter(|definition| definition.class == class || is_connectable(definition.class, class))
        .map(|definition| definition.id.to_string())
        .collect();
    let hint = match nearest(&id.to_string(), names.iter().map(String::as_str)) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("define it under `{}`", class.key()),
    };
    error.with_hint(hint)
}

fn is_connectable(class: Class, wanted: Class) -> bool {
    class == Class::Connector && matches!(wanted, Class::Receiver | Class::Exporter)
}

/// A connector takes data from pipelines that have it as exporter, and passes it to pipelines of
/// the same signal that have it as receiver. Both must exist, and the pipelines must not form a
/// cycle.
pub(super) fn check_connectors(
    pipelines: &[Pipeline],
    definitions: &Definitions<'_>,
    diagnostics: &mut Diagnostics,
) {
    let connectors = definitions
        .all()
        .filter(|definition| definition.class == Class::Connector && definition.kind.is_some());
    for connector in connectors {
        let id = &connector.id;
        let place = |pipeline: &Pipeline, class| {
            let references = &mut side(pipeline, class).iter();
            references.find(|reference| reference.id == *id).map(|reference| reference.span)
        };
        let directions = [(Class::Exporter, Class::Receiver), (Class::Receiver, Class::Exporter)];
        for (pipeline, (own, other)) in
            pipelines.iter().flat_map(|pipeline| directions.map(|direction| (pipeline, direction)))
        {
            let signal = pipeline.signal;
            let is_connected = pipelines
                .iter()
                .any(|another| another.signal == signal && place(another, other).is_some());
            if let (Some(span), false) = (place(pipeline, own), is_connected) {
                let message = format!(
                    "the connector `{id}` is {} of `{}` but no {} of any {signal} pipeline",
                    own.with_article(),
                    pipeline.id,
                    other.name()
                );
                diagnostics.error(span, message);
            }
        }
    }
    for cycle in cycles(pipelines, definitions) {
        let ids: Vec<String> = cycle
            .iter()
            .map(|(pipeline, via)| format!("{} → {via}", pipelines[*pipeline].id))
            .collect();
        let first = &pipelines[cycle[0].0];
        let message = format!("data would circulate for ever: {} → {}", ids.join(" → "), first.id);
        diagnostics.error(first.span, message);
    }
}

/// Cycles of pipelines, each once, as (pipeline, connector to the next).
fn cycles(pipelines: &[Pipeline], definitions: &Definitions<'_>) -> Vec<Vec<(usize, ComponentId)>> {
    let edges_from = |from: &Pipeline| {
        let mut edges = Vec::new();
        for Reference { id, .. } in &from.exporters {
            if definitions.find(Class::Connector, id).is_none() {
                continue;
            }
            let is_fed = |to: &Pipeline| {
                to.signal == from.signal && to.receivers.iter().any(|other| other.id == *id)
            };
            let fed = pipelines.iter().enumerate().filter(|(_, to)| is_fed(to));
            edges.extend(fed.map(|(to, _)| (to, id.clone())));
        }
        edges
    };
    let edges: Vec<Vec<(usize, ComponentId)>> = pipelines.iter().map(edges_from).collect();
    let mut found = Vec::new();
    let mut finished = vec![false; pipelines.len()];
    for start in 0..pipelines.len() {
        walk(start, &edges, &mut finished, &mut found);
    }
    found
}

/// Depth-first search without recursion: a configuration may chain thousands of pipelines.
fn walk(
    start: usize,
    edges: &[Vec<(usize, ComponentId)>],
    finished: &mut [bool],
    found: &mut Vec<Vec<(usize, ComponentId)>>,
) {
    if finished[start] {
        return;
    }
    // (pipeline, how many of its edges were followed)
    let mut path: Vec<(usize, usize)> = vec![(start, 0)];
    while let Some((pipeline, followed)) = path.last_mut() {
        let Some((next, _)) = edges[*pipeline].get(*followed) else {
            finished[*pipeline] = true;
            path.pop();
            continue;
        };
        *followed += 1;
        let next = *next;
        match path.iter().position(|(pipeline, _)| *pipeline == next) {
            Some(position) => {
                let step = |(pipeline, followed): &(usize, usize)| {
                    (*pipeline, edges[*pipeline][*followed - 1].1.clone())
                };
                found.push(path[position..].iter().map(step).collect());
            }
            None if !finished[next] => path.push((next, 0)),
            None => {}
        }
    }
}

pub(super) fn warn_of_unused(
    pipelines: &[Pipeline],
    extensions: &[Reference],
    definitions: &Definitions<'_>,
    diagnostics: &mut Diagnostics,
) {
    for definition in definitions.all() {
        let is_in = |list: &[Reference]| list.iter().any(|reference| reference.id == definition.id);
        let is_used = match definition.class {
            Class::Extension => is_in(extensions),
            Class::Connector => pipelines
                .iter()
                .any(|pipeline| is_in(&pipeline.receivers) || is_in(&pipeline.exporters)),
            class => pipelines.iter().any(|pipeline| is_in(side(pipeline, class))),
        };
        if is_used || definition.kind.is_none() {
            continue;
        }
        let message =
            format!("the {} `{}` is defined but not used", definition.class.name(), definition.id);
        let hint = (definition.class == Class::Extension)
            .then(|| "name it under `service.extensions`".to_owned());
        diagnostics.push(Diagnostic::warning(definition.span, message).with_hint_if(hint));
    }
}
