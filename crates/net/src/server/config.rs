//! Options of servers that components share: the Collector's `confighttp` and `confignet`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use sluice_config::Fields;

use super::{Address, Answers, Cors, Family, ServerOptions};
use crate::headers;

/// Shorter ages, pings more often and the like would only cost CPU.
const AGE_LEAST: Duration = Duration::from_millis(1);
const TIMEOUT_LEAST: Duration = Duration::from_millis(10);

/// `keepalive`, `cors` and `response_headers`: what every answer has, and how long a connection may
/// idle.
pub fn answers(fields: &mut Fields<'_>, server: &mut ServerOptions) -> Answers {
    let keep_alive = keep_alive(fields, server);
    let cors = cors(fields);
    let doc = "Headers that are added to every answer.";
    let headers = headers::read(fields, "response_headers", doc, &[]);
    Answers { cors, headers, keep_alive }
}

/// Whether HTTP/1 connections carry several requests, and the longest time without one.
fn keep_alive(fields: &mut Fields<'_>, server: &mut ServerOptions) -> bool {
    let read = |fields: &mut Fields<'_>, enabled| {
        let doc = "A connection without a request for this long is closed. 0 or unset: never.";
        let idle = or_never(fields, "idle_timeout", doc);
        let doc = "Let HTTP/1 connections carry several requests.";
        (idle, fields.boolean(enabled, true, doc))
    };
    let flat = read(fields, "keep_alives_enabled");
    let doc = "`idle_timeout` and `keep_alives_enabled`, as the Collector spells them since 0.160.";
    let section = fields.section_unless_empty("keepalive", doc, |fields| {
        if flat != (None, true) {
            fields.error("cannot stand beside `idle_timeout` and `keep_alives_enabled`");
        }
        read(fields, "enabled")
    });
    let (idle, is_enabled) = section.unwrap_or(flat);
    server.max_connection_idle = idle;
    is_enabled
}

/// `cors`. `None`: no web page may send.
fn cors(fields: &mut Fields<'_>) -> Option<Cors> {
    let section = fields.section("cors", "Web pages that may send. Unset: none.", |fields| {
        let doc = "Origins such as `https://shop.example.com`; `*` in them stands for anything.";
        let origins = fields.string_list("allowed_origins", &[], doc);
        let doc = "Headers that pages may set beyond the usual ones.";
        let headers = fields.string_list("allowed_headers", &[], doc);
        let doc = "Response headers that pages may read.";
        let exposed = fields.string_list("exposed_headers", &[], doc);
        let doc = "Seconds for which browsers may cache the answer to a preflight request. 0: \
                   their default.";
        let max_age = fields.integer("max_age", 0_u64, 0..=86_400 * 365, doc);
        let max_age = (max_age > 0).then(|| Duration::from_secs(max_age));
        if origins.is_empty() {
            return None;
        }
        Cors::new(origins, &headers, &exposed, max_age)
            .inspect_err(|error| fields.error(error))
            .ok()
    });
    section.flatten()
}

/// `endpoint` and `transport`. Without a default, `endpoint` is required.
pub fn address(fields: &mut Fields<'_>, default_endpoint: &str) -> Address {
    let doc = "Address to listen on: `host:port`, `[ipv6]:port`, `:port` for all interfaces; or \
               the path of a Unix socket.";
    let endpoint = fields.string("endpoint", default_endpoint, doc);
    // `None`: a path.
    let transports = [
        ("tcp", Some(Family::Any)),
        ("tcp4", Some(Family::V4)),
        ("tcp6", Some(Family::V6)),
        ("unix", None),
    ];
    let doc = "`tcp4` and `tcp6` listen only on addresses of that family. With `unix`, `endpoint` \
               is a path, to which Sluice's own user and group may connect (mode 0660).";
    let family = fields.choice("transport", Some(Family::Any), &transports, doc);
    fields.no_effect("dialer", "a listener opens no connections");
    if endpoint.is_empty() && default_endpoint.is_empty() {
        fields.error_missing("endpoint");
        return Address::Tcp(endpoint, Family::Any);
    }
    if let Some(path) = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"))
    {
        return Address::Unix(PathBuf::from(path));
    }
    let Some(family) = family else { return Address::Unix(PathBuf::from(endpoint)) };
    match check_endpoint(&endpoint) {
        Err(why) => {
            let hint = "write `localhost:4317` or `0.0.0.0:4317`";
            fields.error_at_with_hint("endpoint", why, hint);
        }
        Ok(Some(ip)) if !family.has(ip) => {
            let message = format!("must be an {family} address with this `transport`");
            let hint = "write `transport: tcp`, or another address";
            fields.error_at_with_hint("endpoint", &message, hint);
        }
        Ok(_) => {}
    }
    Address::Tcp(endpoint, family)
}

/// Zero means the same as no value, as for gRPC's Go library.
pub fn or_never(fields: &mut Fields<'_>, key: &str, doc: &str) -> Option<Duration> {
    let duration = fields.optional_duration(key, Duration::ZERO..=Duration::MAX, doc);
    duration.filter(|duration| !duration.is_zero()).map(|duration| duration.max(AGE_LEAST))
}

/// Zero stands for the default.
pub fn or_default(fields: &mut Fields<'_>, key: &str, default: Duration, doc: &str) -> Duration {
    match fields.duration(key, default, doc) {
        Duration::ZERO => default,
        duration => duration.max(TIMEOUT_LEAST),
    }
}

/// `auth.authenticator`.
pub fn authenticator(fields: &mut Fields<'_>, doc: &str) -> Option<String> {
    let name = fields.section_unless_empty("auth", doc, |fields| {
        let doc = "Id of the extension that authenticates clients: `type` or `type/name`.";
        let name = fields.required_string("authenticator", doc);
        fields.no_effect("request_params", "authenticators see headers only");
        name
    });
    name.filter(|name| !name.is_empty())
}

/// The address in `host:port`, if the host is one and not a name.
pub fn check_endpoint(endpoint: &str) -> Result<Option<IpAddr>, &'static str> {
    if endpoint.contains("://") {
        return Err("must be an address without a scheme");
    }
    let (host, port) = endpoint.rsplit_once(':').ok_or("must be `host:port`")?;
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if host.contains(':') && in_brackets.is_none() {
        return Err("must have its IPv6 address in brackets");
    }
    port.parse::<u16>().map_err(|_| "must end in a port from 0 to 65535")?;
    Ok(in_brackets.unwrap_or(host).parse().ok())
}

/// `max_connections` of a port. `is_own`: the Collector's receiver does not have it.
pub fn max_connections(fields: &mut Fields<'_>, is_own: bool) -> usize {
    let doc = "Maximum number of connections. One more replaces the connection that has been idle \
               longest; if none is idle, the new one is closed. 0 or unset: as many as memory \
               allows. An eighth of the memory limit, at most 256 MiB, is reserved for the \
               connections of all receivers; `sluice plan` shows it.";
    let doc = format!("{doc}{}", if is_own { " (Sluice's own option.)" } else { "" });
    let limit = fields.optional_integer("max_connections", 0..=1_000_000, &doc);
    limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX)
}
