//! `attributes`: actions on the attributes of spans, data points and log records.

mod config;

use bytes::Bytes;
use sluice_config::{ComponentKind, Kind};
use sluice_flow::Metadata;
use sluice_otlp::{
    Attributes as ItemAttributes, Item, ItemEditor, Metric, Resource, Scope, Signal, count,
    edit_items,
};

use crate::actions::{Actions, Prepared};
use crate::fingerprint::Fingerprint;
use crate::matching::{Properties, Selecting, Selection};
use crate::{BuildError, Built, Edit, ProcessError, Processor, ProcessorConfig};

pub(crate) const KIND: ComponentKind<Box<dyn ProcessorConfig>> = ComponentKind::new(
    Kind::new(
        "attributes",
        "Sets, removes, hashes, extracts and converts attributes of spans, data points and log \
         records",
    ),
    |fields| Box::new(config::read(fields)),
);

/// The options, and for one signal the processor.
#[derive(Clone, Debug)]
struct Attributes {
    actions: Actions,
    selection: Selection,
}

impl ProcessorConfig for Attributes {
    fn build(&self, signal: Signal) -> Result<Option<Built>, BuildError> {
        let mut warnings = Vec::new();
        let mut restrict = |name, properties: &Option<Properties>| match properties.clone() {
            None => Ok(None),
            Some(properties) => config::restrict(name, properties, signal, &mut warnings),
        };
        let selection = Selection {
            include: restrict("include", &self.selection.include)?,
            exclude: restrict("exclude", &self.selection.exclude)?,
        };
        let processor = Box::new(Attributes { actions: self.actions.clone(), selection });
        Ok(Some(Built { processor, warnings }))
    }
}

impl Processor for Attributes {
    fn process(
        &self,
        signal: Signal,
        request: &Bytes,
        metadata: &Metadata,
    ) -> Result<Edit, ProcessError> {
        let mut editor =
            Editor { prepared: self.actions.prepare(metadata), selecting: self.selection.start() };
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
