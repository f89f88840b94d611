//! Extensions: authentication on both sides, the health check.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluice_config::{Fields, Kind};
use sluice_exporters::auth::{self, AuthConfig, RequestAuth};
use sluice_net::auth::server::{Authenticator, BasicOptions, BearerOptions};

use crate::error::StartError;

/// How often files with senders' credentials are looked at. They are small, and whoever takes a token away wants it gone.
const CREDENTIALS_RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// The kinds of extensions in this build.
pub(crate) fn kinds() -> &'static [Kind] {
    const ALL: &[Kind] = &[
        Kind::new("health_check", "Answers 200 while data can be accepted; the body names deliveries that are sick.")
            .aliases(&["healthcheck", "healthcheckv2"]),
        Kind::new("basicauth", "User names and passwords, for receivers (htpasswd) and exporters (client_auth).")
            .aliases(&["basic_auth"]),
        Kind::new("bearertokenauth", "Bearer tokens, for receivers and exporters.").aliases(&["bearer_token_auth"]),
        Kind::new("oauth2client", "OAuth 2.0 client credentials, for exporters.").aliases(&["oauth2_client"]),
        Kind::new("headers_setter", "Headers of requests to backends, from the senders' request metadata."),
        Kind::new(
            "file_storage",
            "Directory in which telemetry is held, for exporters whose `sending_queue.storage` names it; as `buffer.directory`.",
        ),
        Kind::new("memory_ballast", "")
            .missing("`memory_ballast` is gone from the Collector and means nothing here: remove it"),
        Kind::new("pprof", "")
            .missing("`pprof` shows the inside of Go programs: remove it; `perf` shows where Sluice spends its time"),
        Kind::new("zpages", "").missing(
            "`zpages` is not in this build of Sluice: see `/metrics` and `/dead-letters` on the metrics address",
        ),
    ];
    ALL
}

/// What an extension's section says.
#[derive(Clone, Debug)]
pub enum ExtensionPlan {
    HealthCheck {
        endpoint: String,
        path: String,
    },
    FileStorage {
        directory: String,
    },
    /// Either side may be absent.
    Basic {
        client: Option<AuthConfig>,
        server: Option<BasicServer>,
    },
    /// Serves both sides.
    Bearer(AuthConfig),
    /// Exporters only.
    Client(AuthConfig),
}

/// `basicauth.htpasswd`.
#[derive(Clone, Debug)]
pub struct BasicServer {
    pub inline: sluice_config::Secret,
    pub file: Option<String>,
}

/// Reads the options of an extension of a kind from [`kinds`].
pub(crate) fn read(kind: &str, fields: &mut Fields<'_>) -> ExtensionPlan {
    match kind {
        "health_check" => read_health_check(fields),
        "file_storage" => read_file_storage(fields),
        "basicauth" => ExtensionPlan::Basic {
            client: auth::read_basic_client(fields).map(AuthConfig::Basic),
            server: fields.section("htpasswd", "Who may send.", read_htpasswd),
        },
        "bearertokenauth" => ExtensionPlan::Bearer(AuthConfig::Bearer(auth::read_bearer(fields))),
        other => match auth::read(other, fields) {
            Some(config) => ExtensionPlan::Client(config),
            None => unreachable!("kinds() lists no extension without a reader"),
        },
    }
}

fn read_htpasswd(fields: &mut Fields<'_>) -> BasicServer {
    let inline =
        fields.secret("inline", "Lines as of an htpasswd file, hashed with bcrypt or {SHA}.").unwrap_or_default();
    let file = fields.optional_string("file", "An htpasswd file; read again when it changes.");
    let file = file.filter(|path| !path.is_empty());
    if let Err(error) = Authenticator::check_users(inline.expose()) {
        fields.error_at("inline", &format!("cannot be used: {error}"));
    } else if file.is_none() && inline.expose().trim().is_empty() && !fields.is_describing() {
        fields.error("names nobody: give `inline` or `file`");
    }
    BasicServer { inline, file }
}

fn read_health_check(fields: &mut Fields<'_>) -> ExtensionPlan {
    fields.no_effect("check_collector_pipeline", "the answer always tells whether data can be accepted");
    fields.no_effect("response_body", "the body names the deliveries that are sick");
    fields.not_yet("tls", "the health check over TLS");
    fields.no_effect("use_v2", "there is one health check");
    let endpoint = fields.string("endpoint", "localhost:13133", "Address to listen on, `host:port`.");
    let path = fields.string("path", "/", "Path of the check.");
    if !path.starts_with('/') {
        fields.error_at("path", "must begin with `/`");
    }
    ExtensionPlan::HealthCheck { endpoint, path }
}

/// The Collector's default.
const FILE_STORAGE_DIRECTORY: &str = "/var/lib/otelcol/file_storage";

fn read_file_storage(fields: &mut Fields<'_>) -> ExtensionPlan {
    fields.no_effect("timeout", "one process owns the directory; a second one is refused at once");
    fields.no_effect(
        "compaction",
        "segments that nobody needs are removed, and thinly used ones rewritten, all the time",
    );
    fields.no_effect("fsync", "what is acknowledged is always synced");
    fields.no_effect("create_directory", "the directory is created if it is missing");
    fields.no_effect("directory_permissions", "the directory is created with mode 0700");
    fields.no_effect("recreate", "what is damaged is passed over and counted, the rest is delivered");
    let directory = fields.string("directory", FILE_STORAGE_DIRECTORY, "Directory of the log.");
    if directory.is_empty() {
        fields.error_at("directory", "must not be empty");
    }
    ExtensionPlan::FileStorage { directory }
}

impl ExtensionPlan {
    pub(crate) fn file_storage(&self) -> Option<&str> {
        match self {
            ExtensionPlan::FileStorage { directory } => Some(directory),
            _ => None,
        }
    }

    pub(crate) fn health_check(&self) -> Option<(&str, &str)> {
        match self {
            ExtensionPlan::HealthCheck { endpoint, path } => Some((endpoint, path)),
            _ => None,
        }
    }

    /// Whether exporters can use it under `auth`.
    pub(crate) fn authenticates_requests(&self) -> bool {
        match self {
            ExtensionPlan::HealthCheck { .. } | ExtensionPlan::FileStorage { .. } => false,
            ExtensionPlan::Basic { client, .. } => client.is_some(),
            ExtensionPlan::Bearer(_) | ExtensionPlan::Client(_) => true,
        }
    }

    pub(crate) fn is_headers_setter(&self) -> bool {
        matches!(self, ExtensionPlan::Client(AuthConfig::HeadersSetter(_)))
    }

    /// Name of the extension that a `headers_setter` builds on.
    pub(crate) fn additional_auth(&self) -> Option<&str> {
        match self {
            ExtensionPlan::Client(AuthConfig::HeadersSetter(config)) => config.additional_auth.as_deref(),
            _ => None,
        }
    }

    /// Whether receivers can use it under `auth`.
    pub(crate) fn authenticates_senders(&self) -> bool {
        match self {
            ExtensionPlan::Basic { server, .. } => server.is_some(),
            ExtensionPlan::Bearer(_) => true,
            ExtensionPlan::HealthCheck { .. } | ExtensionPlan::FileStorage { .. } | ExtensionPlan::Client(_) => false,
        }
    }
}

/// Extensions that components use, made.
#[derive(Default)]
pub(crate) struct Extensions {
    pub requests: HashMap<String, RequestAuth>,
    pub senders: HashMap<String, Arc<Authenticator>>,
}

impl Extensions {
    pub(crate) fn build(plans: &BTreeMap<String, ExtensionPlan>) -> Result<Extensions, StartError> {
        let mut extensions = Extensions::default();
        // A headers_setter may build on another extension: those go last.
        let mut ordered: Vec<_> = plans.iter().collect();
        ordered.sort_by_key(|(_, plan)| plan.is_headers_setter());
        for (id, plan) in ordered {
            let failed = |reason: String| StartError::Extension { id: id.clone(), reason };
            let (client, server) = match plan {
                ExtensionPlan::HealthCheck { .. } | ExtensionPlan::FileStorage { .. } => (None, None),
                ExtensionPlan::Basic { client, server } => (client.as_ref(), server.as_ref().map(basic_server)),
                ExtensionPlan::Bearer(config) => (Some(config), Some(bearer_server(config))),
                ExtensionPlan::Client(config) => (Some(config), None),
            };
            if let Some(config) = client {
                let auth = config.build(&extensions.requests).map_err(|error| failed(error.to_string()))?;
                extensions.requests.insert(id.clone(), auth);
            }
            if let Some(server) = server {
                let authenticator = server.map_err(|error| failed(error.to_string()))?;
                extensions.senders.insert(id.clone(), Arc::new(authenticator));
            }
        }
        Ok(extensions)
    }
}

type ServerResult = Result<Authenticator, sluice_net::auth::server::AuthSetupError>;

fn basic_server(server: &BasicServer) -> ServerResult {
    Authenticator::basic(BasicOptions {
        inline: server.inline.expose().to_owned(),
        file: server.file.as_ref().map(Into::into),
        reload_interval: Some(CREDENTIALS_RELOAD_INTERVAL),
    })
}

fn bearer_server(config: &AuthConfig) -> ServerResult {
    let AuthConfig::Bearer(config) = config else { unreachable!("bearertokenauth reads a bearer configuration") };
    Authenticator::bearer(BearerOptions {
        header: config.header.clone(),
        scheme: config.scheme.clone(),
        tokens: config.tokens.iter().map(|token| token.expose().to_owned()).collect(),
        file: config.filename.as_ref().map(Into::into),
        reload_interval: Some(CREDENTIALS_RELOAD_INTERVAL),
    })
}
