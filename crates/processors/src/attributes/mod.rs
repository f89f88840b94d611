//! `attributes`: actions on the attributes of spans, data points and log records.

use bytes::Bytes;
use sluice_config::{ComponentKind, Fields, Kind};
use sluice_flow::Metadata;
use sluice_otlp::{Signal, edit_items_within};

use crate::actions::{self, Actions};
use crate::fingerprint::Fingerprint;
use crate::matching::{self, Properties, Selection};
use crate::processor::{Built, Edited, Processor, ProcessorConfig};

pub(crate) const KIND: ComponentKind<ProcessorConfig> = ComponentKind::new(
    Kind::new(
        "attributes",
        "Sets, removes, hashes, extracts and converts attributes of spans, data points and log \
         records",
    ),
    |fields| {
        let options = read(fields);
        ProcessorConfig::Edits(Box::new(move |signal| options.build(signal)))
    },
);

/// The options, and for one signal the processor.
#[derive(Clone, Debug)]
struct Attributes {
    actions: Actions,
    selection: Selection,
}

/// Reads the options. They apply to all signals: see [`restrict`].
fn read(fields: &mut Fields<'_>) -> Attributes {
    let doc = "Actions on the attributes of every selected item, in this order.";
    let actions = actions::read(fields, "actions", doc);
    let doc = "Only items with all of these properties are changed.";
    let include = fields.section_unless_empty("include", doc, matching::read);
    let doc = "Of those, items with all of these properties are not changed.";
    let exclude = fields.section_unless_empty("exclude", doc, matching::read);
    Attributes { actions, selection: Selection { include, exclude } }
}

impl Attributes {
    fn build(&self, signal: Signal) -> Result<Built, String> {
        let mut warnings = Vec::new();
        let mut restrict = |name, properties: &Option<Properties>| match properties.clone() {
            None => Ok(None),
            Some(properties) => restrict(name, properties, signal, &mut warnings),
        };
        let selection = Selection {
            include: restrict("include", &self.selection.include)?,
            exclude: restrict("exclude", &self.selection.exclude)?,
        };
        let processor = Box::new(Attributes { actions: self.actions.clone(), selection });
        Ok(Built { processor, warnings })
    }
}

/// The part of `include` or `exclude` (that is its `name`) for items of one signal; nothing if
/// there is none, which the Collector allows for metrics only.
fn restrict(
    name: &str,
    properties: Properties,
    signal: Signal,
    warnings: &mut Vec<String>,
) -> Result<Option<Properties>, String> {
    let unfit = |message: String| Err(format!("in a pipeline for {signal}, {message}"));
    let (own, foreign): (Vec<_>, Vec<_>) =
        properties.given().into_iter().partition(|(_, signals)| signals.contains(&signal));
    let is_refused = |(property, _): &&(&str, _)| match signal {
        Signal::Traces => property.starts_with("log_"),
        Signal::Logs => ["services", "span_names", "span_kinds"].contains(property),
        Signal::Metrics => false,
    };
    if let Some((property, _)) = foreign.iter().find(is_refused) {
        return unfit(format!("`{name}` cannot have `{property}`"));
    }
    if !foreign.is_empty() {
        let foreign: Vec<String> =
            foreign.iter().map(|(property, _)| format!("`{name}.{property}`")).collect();
        warnings.push(format!(
            "{} cannot be matched against {signal} and has no effect there",
            foreign.join(" and ")
        ));
    }
    if !own.is_empty() {
        return Ok(Some(properties.for_signal(signal)));
    }
    let needed = match signal {
        Signal::Traces => {
            "`services`, `span_names`, `span_kinds`, `attributes`, `resources` or `libraries`"
        }
        Signal::Logs => {
            "`attributes`, `libraries`, `resources`, `log_bodies`, `log_severity_texts` or \
             `log_severity_number`"
        }
        Signal::Metrics => {
            warnings.push(format!(
                "`{name}` without `metric_names` or `resources` selects every metric"
            ));
            return Ok(None);
        }
    };
    unfit(format!("`{name}` needs at least one of {needed}"))
}

impl Processor for Attributes {
    fn process(
        &self,
        signal: Signal,
        request: &Bytes,
        metadata: &Metadata,
        limit_bytes: usize,
    ) -> Edited {
        let mut editor = self.selection.start(self.actions.prepare(metadata));
        edit_items_within(signal, request, limit_bytes, &mut editor)
    }

    fn metadata_keys(&self) -> Vec<String> {
        self.actions.metadata_keys()
    }

    fn reads_address(&self) -> bool {
        self.actions.reads_address()
    }

    fn keeps_points(&self) -> bool {
        true
    }

    fn fingerprint(&self) -> u64 {
        let mut fingerprint = Fingerprint::new("attributes");
        self.actions.fingerprint(&mut fingerprint);
        self.selection.fingerprint(&mut fingerprint);
        fingerprint.finish()
    }
}

#[cfg(test)]
mod tests;
