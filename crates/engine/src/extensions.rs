//! The extensions of a plan, made: authentication of both sides.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sluice_config::Class;
use sluice_extensions::Extension;
use sluice_net::auth::client::ClientAuths;
use sluice_net::auth::server::ServerAuth;

use crate::error::{Result, StartError};

/// Authenticators, by the names of their extensions.
#[derive(Default)]
pub(crate) struct Extensions {
    /// For exporters, and receivers that fetch.
    pub clients: ClientAuths,
    pub servers: HashMap<String, Arc<dyn ServerAuth>>,
}

impl Extensions {
    pub(crate) fn build(planned: &BTreeMap<String, Extension>) -> Result<Extensions> {
        let mut extensions = Extensions::default();
        for (id, extension) in planned {
            if let Some(server) = &extension.server {
                let failed = |error| StartError::of(Class::Extension, id, &extension.place, error);
                let server = server().map_err(failed)?;
                extensions.servers.insert(id.clone(), server);
            }
        }
        let clients =
            planned.iter().filter_map(|(id, extension)| Some((id, extension.client.as_ref()?)));
        // An extension is built before those that build on it.
        let (building, foundations): (Vec<_>, Vec<_>) =
            clients.partition(|(_, client)| client.builds_on.is_some());
        for (id, client) in foundations.into_iter().chain(building) {
            let built = (client.build)(&extensions.clients);
            let place = &planned[id].place;
            let client =
                built.map_err(|error| StartError::of(Class::Extension, id, place, error))?;
            extensions.clients.insert(id.clone(), client);
        }
        Ok(extensions)
    }
}
