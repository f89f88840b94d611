//! `basicauth` (RFC 7617): passwords that exporters show, and receivers check by htpasswd lines.

mod server;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use sluice_config::{ComponentKind, Fields, Kind, Secret};
use sluice_net::auth::client::basic_credentials;

use crate::extension::{BuildServer, ClientExtension, CredentialsFile, Extension};
use crate::secret::{MadeFromSecrets, SecretHeader, SecretSource, sensitive};

use server::BasicServer;

pub(crate) const KIND: ComponentKind<Extension> = ComponentKind::new(
    Kind::new(
        "basicauth",
        "User names and passwords, for receivers (htpasswd) and exporters (client_auth).",
    )
    .aliases(&["basic_auth"]),
    |fields| {
        let doc = "Credentials for requests to backends.";
        let client = fields.section("client_auth", doc, ClientConfig::read);
        let server = fields.section("htpasswd", "Users that receivers accept.", ServerConfig::read);
        match (&client, &server) {
            _ if fields.is_describing() => {}
            (Some(_), Some(_)) => fields.error_at_with_hint(
                "client_auth",
                "cannot stand beside `htpasswd`",
                "define two extensions, as `basicauth/client` and `basicauth/server`",
            ),
            (None, None) => fields.error("needs `client_auth` or `htpasswd`"),
            _ => {}
        }
        let of_client = client.iter().flat_map(ClientConfig::credentials);
        let of_server = server.iter().filter_map(ServerConfig::credentials);
        let credentials = of_client.chain(of_server).collect();
        Extension {
            credentials,
            client: client.map(|it| ClientExtension::foundation(move || Ok(it.shown()))),
            server: server.map(|server| -> BuildServer {
                Box::new(move || Ok(Arc::new(BasicServer::new(&server)?)))
            }),
            ..Extension::default()
        }
    },
);

#[derive(Debug)]
struct ClientConfig {
    username: SecretSource,
    password: SecretSource,
}

impl ClientConfig {
    fn read(fields: &mut Fields<'_>) -> ClientConfig {
        let username = Secret::new(fields.string("username", "", "User name."));
        let doc = "File with the user name; read again when it changes.";
        let username = SecretSource::of(fields.non_empty_string("username_file", doc), username);
        let password = fields.secret("password", "Password.").unwrap_or_default();
        let doc = "File with the password; read again when it changes.";
        let password = SecretSource::of(fields.non_empty_string("password_file", doc), password);
        if username.is_unset() {
            fields.error_missing("username");
        }
        ClientConfig { username, password }
    }

    fn credentials(&self) -> impl Iterator<Item = CredentialsFile> {
        let username = self.username.credentials_file("client_auth.username_file");
        let password = self.password.credentials_file("client_auth.password_file");
        username.into_iter().chain(password)
    }

    /// The header that requests show.
    fn shown(&self) -> SecretHeader {
        let sources = [self.username.clone(), self.password.clone()];
        let make = |[name, password]: [&str; 2]| {
            sensitive(&basic_credentials(format!("{name}:{password}")))
        };
        let value = MadeFromSecrets::new("user name and password", sources, make);
        SecretHeader { name: AUTHORIZATION, value }
    }
}

#[derive(Clone, Debug)]
struct ServerConfig {
    inline: Secret,
    /// An htpasswd file, read again when it changes. Users in `inline` win.
    file: Option<PathBuf>,
}

impl ServerConfig {
    fn read(fields: &mut Fields<'_>) -> ServerConfig {
        let doc = "Lines of an htpasswd file, with bcrypt or {SHA} hashes or plain passwords.";
        let inline = fields.secret("inline", doc).unwrap_or_default();
        let doc = "An htpasswd file; read again when it changes.";
        let file = fields.non_empty_string("file", doc).map(PathBuf::from);
        if let Err(error) = server::read_lines(inline.expose()) {
            fields.error_at("inline", &format!("cannot be used: {error}"));
        } else if file.is_none() && inline.expose().trim().is_empty() && !fields.is_describing() {
            fields.error("names no user: give `inline` or `file`");
        }
        ServerConfig { inline, file }
    }

    fn credentials(&self) -> Option<CredentialsFile> {
        let (path, config) = (self.file.clone()?, self.clone());
        let check = Box::new(move || BasicServer::new(&config).map(drop));
        Some(CredentialsFile { option: "htpasswd.file", path, otherwise: None, check })
    }
}
