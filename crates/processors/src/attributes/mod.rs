//! `attributes`: actions on the attributes of spans, data points and log records.

mod config;

use bytes::Bytes;
use sluice_config::{ComponentKind, Kind};
use sluice_flow::Metadata;
use sluice_otlp::{Attributes as ItemAttributes, Item, ItemEditor, Metric, Resource, Scope, Signal, count, edit_items};

pub use config::{Config, read};

use crate::actions::{Actions, Prepared};
use crate::fingerprint::Fingerprint;
use crate::matching::{Selecting, Selection};
use crate::{BuildError, Built, Edit, ProcessError, Processor, ProcessorConfig};

pub(crate) const KIND: ComponentKind<Box<dyn ProcessorConfig>> = ComponentKind::new(
    Kind::new(
        "attributes",
        "Sets, removes, hashes, extracts and converts attributes of spans, data points and log records",
    ),
    |fields| Box::new(read(fields)),
);

impl ProcessorConfig for Config {
    fn build(&self, signal: Signal) -> Result<Option<Built>, BuildError> {
        let (processor, warnings) = Attributes::new(self.clone(), signal)?;
        Ok(Some(Built { processor: Box::new(processor), warnings }))
    }
}

pub struct Attributes {
    actions: Actions,
    selection: Selection,
}

impl Attributes {
    /// Makes the processor for pipelines of one signal, with warnings.
    ///
    /// # Errors
    /// [`BuildError`] where `include` or `exclude` ask what items of the signal cannot have, as in the Collector.
    pub fn new(config: Config, signal: Signal) -> Result<(Self, Vec<String>), BuildError> {
        let mut warnings = Vec::new();
        let mut restrict = |name, properties: Option<_>| match properties {
            None => Ok(None),
            Some(properties) => config::restrict(name, properties, signal, &mut warnings),
        };
        let include = restrict("include", config.include)?;
        let exclude = restrict("exclude", config.exclude)?;
        Ok((Attributes { actions: config.actions, selection: Selection { include, exclude } }, warnings))
    }
}

impl Processor for Attributes {
    fn process(&self, signal: Signal, request: &Bytes, metadata: &Metadata) -> Result<Edit, ProcessError> {
        let mut editor = Editor { prepared: self.actions.prepare(metadata), selecting: self.selection.start() };
        match edit_items(signal, request, &mut editor)? {
            None => Ok(Edit::Unchanged),
            Some(payload) => Ok(Edit::Changed { items: count(signal, request)?, payload }),
        }
    }

    fn metadata_keys(&self) -> Vec<String> {
        self.actions.metadata_keys()
    }

    fn fingerprint(&self) -> u64 {
        let mut fingerprint = Fingerprint::new("attributes");
        self.actions.fingerprint(&mut fingerprint);
        self.selection.fingerprint(&mut fingerprint);
        fingerprint.finish()
    }
}

struct Editor<'p> {
    prepared: Prepared<'p>,
    selecting: Selecting<'p>,
}

impl ItemEditor for Editor<'_> {
    fn resource(&mut self, resource: Resource<'_>) -> bool {
        self.selecting.resource(resource)
    }

    fn scope(&mut self, scope: Scope<'_>) -> bool {
        self.selecting.scope(scope)
    }

    fn metric(&mut self, metric: Metric<'_>) -> bool {
        self.selecting.metric(metric)
    }

    fn item(&mut self, item: Item<'_>, attributes: &mut ItemAttributes<'_>) {
        if self.selecting.item(item, attributes) {
            self.prepared.apply(attributes);
        }
    }
}

#[cfg(test)]
mod tests;
