//! The options of the `fluentforward` exporter.

use std::time::Duration;

use sluice_config::Fields;
use sluice_net::client::{Endpoint, Target};
use sluice_net::forward::handshake::{SharedSecret, User};
use sluice_net::tls::ClientTlsOptions;

use crate::client_options::{ClientOptions, GZIP_LEVELS};
use crate::fluent::Layout;

/// Of a request, with its acknowledgements: the receiver may wait for its own backend.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A common limit of receivers: Fluent Bit's `buffer_max_size` is 6 MB.
const REQUEST_LIMIT_BYTES: u64 = 1 << 20;
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct FluentForwardConfig {
    pub endpoint: String,
    pub target: Target,
    pub tls: bool,
    pub tag: String,
    /// The field of a record with its tag.
    pub tag_from: Option<String>,
    pub require_ack: bool,
    pub is_gzip: bool,
    pub secret: Option<SharedSecret>,
    pub user: Option<User>,
    pub idle_timeout: Duration,
    pub layout: Layout,
    pub client: ClientOptions,
}

impl FluentForwardConfig {
    pub(super) fn read(fields: &mut Fields<'_>) -> FluentForwardConfig {
        let doc = "The receiver's address: `host:port`, `[ipv6]:port`, or the path of its Unix \
                   socket as `unix:///path`. It has no scheme for TLS: that is what `tls` is for.";
        let endpoint = fields.required_string("endpoint", doc);
        let target = match Endpoint::parse(&endpoint) {
            Ok(Endpoint { target, tls: None }) => target,
            Ok(Endpoint { target, .. }) => {
                let hint = "write `host:port`, and `tls: {}` for TLS";
                fields.error_at_with_hint("endpoint", "must be an address without a scheme", hint);
                target
            }
            Err(error) => {
                if !endpoint.is_empty() {
                    fields.error_at("endpoint", &format!("cannot be used: {error}"));
                }
                Target::Host { host: String::new(), port: 0 }
            }
        };
        let tag = fields.string("tag", "sluice", "Tag of the records.");
        let doc = "Field of a record, such as the attribute `fluent.tag`, with the record's tag. \
                   The field is left out. Records without it get `tag`.";
        let tag_from = fields.optional_string("tag_from", doc);
        if tag_from.as_deref() == Some("") {
            let hint = "leave it out if all records are to have `tag`";
            fields.error_at_with_hint("tag_from", "must be the name of a field", hint);
        }
        let doc = "A request counts as delivered when the receiver has acknowledged it. If false, \
                   as soon as it is written to the connection: what is on its way when a \
                   connection ends is lost.";
        let require_ack = fields.boolean("require_ack", true, doc);
        let doc = "Compression of requests.";
        let codings = [("gzip", true), ("none", false), ("", false)];
        let is_gzip = fields.choice("compress", false, &codings, doc);
        let doc = "Authentication by the handshake of the protocol. Unset: there is no handshake.";
        let security = fields.section_unless_empty("security", doc, read_security);
        let doc = "Use a new connection for each request.";
        let is_kept = !fields.boolean("disable_keep_alives", false, doc);
        let doc = "An unused connection is closed after this time.";
        let idle_timeout = fields.duration("idle_conn_timeout", IDLE_TIMEOUT, doc);
        let layout = Layout::read(fields);
        // TLS is off unless the section is there, as in Fluent Bit.
        let has_tls = fields.is_present("tls");
        let levels = is_gzip.then_some(GZIP_LEVELS).flatten();
        let (tls, limit_bytes) = (ClientTlsOptions::read_where_present, REQUEST_LIMIT_BYTES);
        let client = ClientOptions::read_for(fields, false, tls, TIMEOUT, levels, limit_bytes);
        let (secret, user) = security.map_or((None, None), |(secret, user)| (Some(secret), user));
        FluentForwardConfig {
            endpoint,
            target,
            tls: has_tls && !client.tls.insecure,
            tag,
            tag_from,
            require_ack,
            is_gzip,
            secret,
            user,
            idle_timeout: if is_kept { idle_timeout } else { Duration::ZERO },
            layout,
            client,
        }
    }
}

fn read_security(fields: &mut Fields<'_>) -> (SharedSecret, Option<User>) {
    let key = fields.secret("shared_key", "The key that the receiver knows, too.");
    if key.as_ref().is_none_or(|key| key.expose().is_empty()) {
        fields.error_missing("shared_key");
    }
    let doc = "The name by which the exporter calls itself. The receiver must have another one.";
    let hostname = fields.string("self_hostname", "sluice-exporter", doc);
    let doc = "User name, if the receiver asks for one.";
    let name = fields.non_empty_string("username", doc);
    let password = fields.secret("password", "Password of `username`.");
    if name.is_none() && password.is_some() {
        fields.error_at("password", "needs `username`");
    }
    let user = name.map(|name| User { name, password: password.unwrap_or_default() });
    (SharedSecret { key: key.unwrap_or_default(), hostname }, user)
}
