//! The options of the `fluentforward` receiver. The Collector's has only `endpoint`; the others are
//! those of Fluent Bit's `in_forward`, in the Collector's words.

use std::path::PathBuf;

use sluice_config::Fields;
use sluice_net::forward::handshake::{SharedSecret, User};
use sluice_net::server::config::{check_endpoint, max_connections};
use sluice_net::server::{Address, Family, Protocols, ServerOptions};
use sluice_net::tls::TlsOptions;

const DEFAULT_LIMIT_BYTES: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub(super) struct FluentForwardConfig {
    pub address: Address,
    pub tls: Option<TlsOptions>,
    pub security: Option<Security>,
    /// The limit on a message, as sent, after decompression and as OTLP.
    pub limit_bytes: usize,
    pub server: ServerOptions,
}

/// The handshake that senders have to pass.
#[derive(Clone, Debug)]
pub(super) struct Security {
    pub secret: SharedSecret,
    pub users: Vec<User>,
}

impl FluentForwardConfig {
    pub(super) fn read(fields: &mut Fields<'_>) -> FluentForwardConfig {
        let doc = "Address to listen on: `host:port`, `[ipv6]:port`, `:port` for all interfaces; \
                   or the path of a Unix socket, as `/path` or `unix:///path`, to which Sluice's \
                   own user and group may connect (mode 0660).";
        let endpoint = fields.required_string("endpoint", doc);
        let path = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"));
        let address = match path.or(Some(&*endpoint).filter(|it| it.starts_with('/'))) {
            Some(path) => Address::Unix(PathBuf::from(path)),
            None => {
                if let (false, Err(why)) = (endpoint.is_empty(), check_endpoint(&endpoint)) {
                    let hint = "write `localhost:24224` or `unix:///run/fluent.sock`";
                    fields.error_at_with_hint("endpoint", why, hint);
                }
                Address::Tcp(endpoint, Family::Any)
            }
        };
        let doc = "TLS. Unset: connections are not encrypted. (Sluice's own option.)";
        let tls = fields.section_unless_empty("tls", doc, TlsOptions::read_server);
        let doc = "Authentication of senders by the handshake of the protocol. Unset: every \
                   client that can connect may send. (Sluice's own option.)";
        let security = fields.section_unless_empty("security", doc, Security::read);
        let doc = "Largest message in bytes, as it is sent, after decompression and as OTLP. \
                   (Sluice's own option.)";
        let range = 1024..=1 << 30;
        let limit_bytes = fields.size("max_message_size", DEFAULT_LIMIT_BYTES, range, doc);
        let mut server = ServerOptions::new(Protocols::Other);
        server.max_connections = max_connections(fields, true);
        FluentForwardConfig {
            address,
            tls,
            security,
            limit_bytes: usize::try_from(limit_bytes).unwrap_or(usize::MAX),
            server,
        }
    }
}

impl Security {
    fn read(fields: &mut Fields<'_>) -> Security {
        let doc = "The key that senders have to know: `shared_key` of Fluentd and Fluent Bit. It \
                   proves who is there; only `tls` encrypts what is sent.";
        let key = fields.secret("shared_key", doc);
        if key.as_ref().is_none_or(|key| key.expose().is_empty()) {
            fields.error_missing("shared_key");
        }
        let doc = "The name by which the receiver calls itself in the handshake. Senders refuse \
                   one that has their own name.";
        let hostname = fields.string("self_hostname", "sluice", doc);
        let doc = "Users one of whom the sender has to be, too. Empty: the key alone decides.";
        let users = fields.sections("users", doc, |fields| {
            let name = fields.required_string("username", "The user's name.");
            let password = fields.secret("password", "The user's password.");
            if password.as_ref().is_none_or(|it| it.expose().is_empty()) {
                fields.error_missing("password");
            }
            User { name, password: password.unwrap_or_default() }
        });
        Security { secret: SharedSecret { key: key.unwrap_or_default(), hostname }, users }
    }
}
