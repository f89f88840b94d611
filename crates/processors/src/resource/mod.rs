//! `resource`: actions on the attributes of resources.

use bytes::Bytes;
use sluice_config::{ComponentKind, Kind};
use sluice_flow::Metadata;
use sluice_otlp::{Signal, edit_resources_within};

use crate::actions::{self, Actions};
use crate::fingerprint::Fingerprint;
use crate::processor::{Built, Edited, Processor, ProcessorConfig};

pub(crate) const KIND: ComponentKind<ProcessorConfig> = ComponentKind::new(
    Kind::new("resource", "Sets, removes, hashes, extracts and converts attributes of resources"),
    |fields| {
        let doc = "Actions on the attributes of every resource, in this order.";
        let actions = actions::read(fields, "attributes", doc);
        ProcessorConfig::Edits(Box::new(move |_| {
            let processor = Box::new(Resource { actions: actions.clone() });
            Ok(Built { processor, warnings: Vec::new() })
        }))
    },
);

struct Resource {
    actions: Actions,
}

impl Processor for Resource {
    fn process(
        &self,
        _: Signal,
        request: &Bytes,
        metadata: &Metadata,
        limit_bytes: usize,
    ) -> Edited {
        edit_resources_within(request, limit_bytes, self.actions.prepare(metadata))
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
        let mut fingerprint = Fingerprint::new("resource");
        self.actions.fingerprint(&mut fingerprint);
        fingerprint.finish()
    }
}
