use std::path::PathBuf;

use sluice_config::{Fields, Secret};

use super::server;

/// Options of `basicauth`. Either side may be absent.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub client: Option<ClientConfig>,
    pub server: Option<ServerConfig>,
}

/// `client_auth`.
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    pub username: String,
    pub username_file: Option<String>,
    pub password: Secret,
    pub password_file: Option<String>,
}

/// `htpasswd`.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Lines of an htpasswd file.
    pub inline: Secret,
    /// An htpasswd file, read again when it changes. Users in `inline` win.
    pub file: Option<PathBuf>,
}

impl Config {
    pub fn read(fields: &mut Fields<'_>) -> Config {
        Config {
            client: fields.section(
                "client_auth",
                "How requests to backends are authenticated.",
                read_client,
            ),
            server: fields.section("htpasswd", "Who may send.", read_server),
        }
    }
}

fn read_client(fields: &mut Fields<'_>) -> ClientConfig {
    let config = ClientConfig {
        username: fields.string("username", "", "User name."),
        username_file: crate::optional_path(
            fields,
            "username_file",
            "File with the user name; read again when it changes.",
        ),
        password: fields.secret("password", "Password.").unwrap_or_default(),
        password_file: crate::optional_path(
            fields,
            "password_file",
            "File with the password; read again when it changes.",
        ),
    };
    if config.username.is_empty() && config.username_file.is_none() {
        fields.error_missing("username");
    }
    config
}

fn read_server(fields: &mut Fields<'_>) -> ServerConfig {
    let inline = fields
        .secret("inline", "Lines as of an htpasswd file, hashed with bcrypt or {SHA}.")
        .unwrap_or_default();
    let file =
        crate::optional_path(fields, "file", "An htpasswd file; read again when it changes.")
            .map(PathBuf::from);
    if let Err(error) = server::check_lines(inline.expose()) {
        fields.error_at("inline", &format!("cannot be used: {error}"));
    } else if file.is_none() && inline.expose().trim().is_empty() && !fields.is_describing() {
        fields.error("names no user: give `inline` or `file`");
    }
    ServerConfig { inline, file }
}
