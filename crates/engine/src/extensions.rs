//! The extensions of a plan, made: authentication of both sides.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sluice_config::Class;
use sluice_extensions::{Extension, ServerExtension};
use sluice_net::auth::client::ClientAuths;
use sluice_net::auth::server::ServerAuth;

use crate::error::StartError;

/// What components find by the names of extensions.
#[derive(Default)]
pub(crate) struct Extensions {
    /// For exporters, and receivers that fetch.
    pub clients: ClientAuths,
    /// For receivers.
    pub servers: HashMap<String, Arc<dyn ServerAuth>>,
}

impl Extensions {
    pub(crate) fn build(
        planned: &BTreeMap<String, Box<dyn Extension>>,
    ) -> Result<Extensions, StartError> {
        let mut extensions = Extensions::default();
        for (id, extension) in planned {
            if let Some(server) = extension.server().map(ServerExtension::build) {
                extensions.servers.insert(
                    id.clone(),
                    server.map_err(|error| StartError::of(Class::Extension, id, error))?,
                );
            }
        }
        let clients = planned.iter().filter_map(|(id, extension)| Some((id, extension.client()?)));
        let mut clients: Vec<_> = clients.collect();
        // A foundation is there before what builds on it.
        clients.sort_by_key(|(_, client)| client.builds_on().is_some());
        for (id, client) in clients {
            let client = client
                .build(&extensions.clients)
                .map_err(|error| StartError::of(Class::Extension, id, error))?;
            extensions.clients.insert(id.clone(), client);
        }
        Ok(extensions)
    }
}
