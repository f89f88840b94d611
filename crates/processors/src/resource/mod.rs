//! `resource`: actions on the attributes of resources.

mod config;

use bytes::Bytes;
use sluice_flow::Metadata;
use sluice_otlp::{Signal, count, edit_resources};

pub use config::{Config, read};

use crate::actions::Actions;
use crate::fingerprint::Fingerprint;
use crate::{Edit, ProcessError, Processor};

pub struct Resource {
    actions: Actions,
}

impl Resource {
    pub fn new(config: Config) -> Self {
        Resource { actions: config.attributes }
    }
}

impl Processor for Resource {
    fn process(&self, signal: Signal, request: &Bytes, metadata: &Metadata) -> Result<Edit, ProcessError> {
        let prepared = self.actions.prepare(metadata);
        match edit_resources(request, |attributes| prepared.apply(attributes))? {
            None => Ok(Edit::Unchanged),
            Some(payload) => Ok(Edit::Changed { items: count(signal, request)?, payload }),
        }
    }

    fn metadata_keys(&self) -> Vec<String> {
        self.actions.metadata_keys()
    }

    fn fingerprint(&self) -> u64 {
        let mut fingerprint = Fingerprint::new("resource");
        self.actions.fingerprint(&mut fingerprint);
        fingerprint.finish()
    }
}
