//! `basicauth`: user names and passwords (RFC 7617). Receivers check them against htpasswd lines,
//! exporters show one.

mod server;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use sluice_config::{ComponentKind, Fields, Kind, Secret};
use sluice_net::auth::client::{ClientAuth, ClientAuths};
use sluice_net::auth::server::ServerAuth;

use crate::extension::{BuildError, ClientExtension, Extension, ServerExtension};
use crate::secret::{
    MadeFromSecrets, SecretHeader, SecretSource, basic_credentials, optional_path, sensitive,
};

use server::BasicServer;

pub(crate) const KIND: ComponentKind<Extension> = ComponentKind::new(
    Kind::new(
        "basicauth",
        "User names and passwords, for receivers (htpasswd) and exporters (client_auth).",
    )
    .aliases(&["basic_auth"]),
    |fields| {
        let doc = "How requests to backends are authenticated.";
        let client = fields.section("client_auth", doc, ClientConfig::read);
        let server = fields.section("htpasswd", "Who may send.", ServerConfig::read);
        Extension {
            client: client.map(|client| Box::new(client) as _),
            server: server.map(|server| Box::new(server) as _),
            ..Extension::default()
        }
    },
);

/// `client_auth`.
#[derive(Debug, Default)]
struct ClientConfig {
    username: String,
    username_file: Option<String>,
    password: Secret,
    password_file: Option<String>,
}

impl ClientConfig {
    fn read(fields: &mut Fields<'_>) -> ClientConfig {
        let username = fields.string("username", "", "User name.");
        let doc = "File with the user name; read again when it changes.";
        let username_file = optional_path(fields, "username_file", doc);
        let password = fields.secret("password", "Password.").unwrap_or_default();
        let doc = "File with the password; read again when it changes.";
        let password_file = optional_path(fields, "password_file", doc);
        if username.is_empty() && username_file.is_none() {
            fields.error_missing("username");
        }
        ClientConfig { username, username_file, password, password_file }
    }
}

impl ClientExtension for ClientConfig {
    fn build(&self, _: &ClientAuths) -> Result<Arc<dyn ClientAuth>, BuildError> {
        let username = SecretSource::of(self.username_file.as_ref(), &self.username);
        let password = SecretSource::of(self.password_file.as_ref(), self.password.expose());
        let make = |[name, password]: [&str; 2]| sensitive(&basic_credentials(name, password));
        let value = MadeFromSecrets::new("user name and password", [username, password], make);
        Ok(Arc::new(SecretHeader { name: AUTHORIZATION, value }))
    }
}

/// `htpasswd`.
#[derive(Clone, Debug)]
struct ServerConfig {
    /// Lines of an htpasswd file.
    inline: Secret,
    /// An htpasswd file, read again when it changes. Users in `inline` win.
    file: Option<PathBuf>,
}

impl ServerConfig {
    fn read(fields: &mut Fields<'_>) -> ServerConfig {
        let doc = "Lines as of an htpasswd file: hashes of bcrypt or {SHA}, or plain passwords.";
        let inline = fields.secret("inline", doc).unwrap_or_default();
        let doc = "An htpasswd file; read again when it changes.";
        let file = optional_path(fields, "file", doc).map(PathBuf::from);
        if let Err(error) = server::read_lines(inline.expose()) {
            fields.error_at("inline", &format!("cannot be used: {error}"));
        } else if file.is_none() && inline.expose().trim().is_empty() && !fields.is_describing() {
            fields.error("names no user: give `inline` or `file`");
        }
        ServerConfig { inline, file }
    }
}

impl ServerExtension for ServerConfig {
    fn build(&self) -> Result<Arc<dyn ServerAuth>, BuildError> {
        Ok(Arc::new(BasicServer::new(self)?))
    }
}
